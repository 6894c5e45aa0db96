"""The words of the corpus."""


def pairs(text: str) -> dict[str, str]:
    """Return "key=value key=value" as a dict."""
    return dict(pair.split("=") for pair in text.split())


GIRLS = (
    "Mara Lucy Nina Ada Rosa Ella Ivy Sofia Lena Maya Zoe Anna Clara Ruth "
    "Tess Nora Hana Amina Leila Priya Mei Yuki Freya Olga Vera Dora Elsa "
    "Kira Wanda Pia"
).split()
BOYS = (
    "Tom Ben Leo Max Sam Omar Ali Ivan Hugo Paul Otto Finn Noah Luca Jack "
    "Adam Emil Kofi Raj Kenji Bruno Felix Oscar Milo Karl Pedro Nils Jonas "
    "Abel Theo"
).split()
ANIMALS = (
    "cat dog fox bear owl duck frog goat hen horse mouse rabbit sheep pig "
    "cow turtle squirrel crow hedgehog donkey"
).split()
SOUNDS = pairs(
    "cat=meow dog=woof duck=quack cow=moo sheep=baa pig=oink frog=croak "
    "crow=caw owl=hoot hen=cluck"
)
COLOURS = (
    "red blue green yellow white black brown silver golden purple".split()
)
TRAITS = "small big old new shiny heavy soft round lovely strange".split()
MOODS = "happy sad tired hungry brave shy proud curious angry quiet".split()
OBJECTS = (
    "kite ball drum lamp book key ring hat coat boat box bell cup coin map "
    "shell stone spoon basket candle mirror flute blanket button ladder rope "
    "clock whistle letter brush"
).split()
PLACES = (
    "the garden|the forest|the river|the market|the school|the bridge|"
    "the lake|the hill|the old mill|the beach|the barn|the park|the castle|"
    "the harbour|the library|the kitchen|the tower|the village|the meadow|"
    "the cave"
).split("|")
HIDING = (
    "under the bed|behind the door|in the cupboard|on the shelf|"
    "under the table|in the drawer|behind the stove|in the shed|"
    "under the stairs|in the attic|behind the curtain|in the basket|"
    "on the roof|under the apple tree"
).split("|")
FOODS = (
    "bread cheese apples pears soup honey nuts carrots fish cake milk eggs "
    "rice beans butter onions plums berries corn tea"
).split()
FAMILY = "mother father grandmother grandfather aunt uncle".split()
WEATHER = (
    "It rained|It snowed|The sun shone|A strong wind blew|"
    "Fog lay over the fields|It was very hot|It was bitterly cold"
).split("|")
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = (
    "January February March April May June July August September October "
    "November December"
).split()
SEASONS = {
    "winter": ("December", "January", "February"),
    "spring": ("March", "April", "May"),
    "summer": ("June", "July", "August"),
    "autumn": ("September", "October", "November"),
}
NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve "
    "thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty"
).split()
ORDINALS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth "
    "eleventh twelfth"
).split()
OPPOSITES = (
    "hot cold|big small|old new|up down|day night|open shut|fast slow|"
    "wet dry|full empty|high low|light dark|early late|long short|hard soft|"
    "happy sad|left right|rich poor|loud quiet|first last|strong weak"
).split("|")
KINDS = {
    "animal": ANIMALS,
    "colour": COLOURS,
    "food": FOODS,
    "day": DAYS,
    "month": MONTHS,
    "number": NUMBERS,
    "tool": ["hammer", "brush", "ladder", "rope", "saw", "spade", "needle"],
    "tree": ["oak", "pine", "birch", "willow", "maple", "beech", "ash"],
    "flower": ["rose", "tulip", "daisy", "lily", "poppy", "violet"],
    "bird": ["owl", "crow", "duck", "hen", "eagle", "swan", "robin"],
}

# Greetings and small words: each language has PHRASES in the same order.
PHRASES = ("hello", "thank you", "yes", "no", "water", "cat", "sun")
PHRASEBOOK = {
    "French": "bonjour|merci|oui|non|eau|chat|soleil",
    "Spanish": "hola|gracias|sí|no|agua|gato|sol",
    "German": "hallo|danke|ja|nein|Wasser|Katze|Sonne",
    "Italian": "ciao|grazie|sì|no|acqua|gatto|sole",
    "Portuguese": "olá|obrigado|sim|não|água|gato|sol",
    "Polish": "cześć|dziękuję|tak|nie|woda|kot|słońce",
    "Turkish": "merhaba|teşekkürler|evet|hayır|su|kedi|güneş",
    "Swahili": "habari|asante|ndiyo|hapana|maji|paka|jua",
    "Vietnamese": "xin chào|cảm ơn|có|không|nước|mèo|mặt trời",
    "Greek": "γειά|ευχαριστώ|ναι|όχι|νερό|γάτα|ήλιος",
    "Russian": "привет|спасибо|да|нет|вода|кошка|солнце",
    "Ukrainian": "привіт|дякую|так|ні|вода|кіт|сонце",
    "Bulgarian": "здравей|благодаря|да|не|вода|котка|слънце",
    "Arabic": "مرحبا|شكرا|نعم|لا|ماء|قطة|شمس",
    "Hebrew": "שלום|תודה|כן|לא|מים|חתול|שמש",
    "Hindi": "नमस्ते|धन्यवाद|हाँ|नहीं|पानी|बिल्ली|सूरज",
    "Thai": "สวัสดี|ขอบคุณ|ใช่|ไม่|น้ำ|แมว|ดวงอาทิตย์",
    "Japanese": "こんにちは|ありがとう|はい|いいえ|水|猫|太陽",
    "Mandarin": "你好|谢谢|是|不|水|猫|太阳",
    "Korean": "안녕하세요|감사합니다|네|아니요|물|고양이|해",
}
EMOJI = pairs(
    "cat=🐱 dog=🐶 fox=🦊 bear=🐻 frog=🐸 pig=🐷 cow=🐮 sun=☀️ moon=🌙 star=⭐ tree=🌳 "
    "apple=🍎 house=🏠 heart=❤️ fire=🔥 rain=🌧️"
)
