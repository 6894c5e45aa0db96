"""The Llama in a page, in headless Chromium, compared with llamalib.

Run by `make test-browser`; needs chromium and chromedriver on the PATH.
"""

import itertools
import json
import random
import re
import shutil
import time
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save

import llamalib
from llamalib import next_token_probs
from llamalib.config import params_of
from llamalib.tokenizer import SPECIAL_TOKENS
from tests.browser import (
    FAINT,
    chromium,
    elements,
    foreign,
    served,
    show,
    wait_for,
)
from tests.helpers import random_llama, small_config
from tests.test_site import SITE, write_pocket

pytestmark = pytest.mark.browser
# `make test` may have no selenium; `make test-browser` demands it
Keys = pytest.importorskip("selenium.webdriver.common.keys").Keys

PARTS = "tokens", "rotation", "attention", "next", "sampling", "generate"
PROMPT = "The capital of France is"
# the variables of the theme that the site has, light and dark
THEME = """
body { --color-foreground-primary: black; --color-foreground-muted: #6b6f76;
  --color-background-primary: white; --color-background-secondary: #f8f9fb;
  margin: 16px; background: var(--color-background-primary); }
body[data-theme="dark"] { --color-foreground-primary: #cfd0d0;
  --color-foreground-muted: #81868d; --color-background-primary: #131416;
  --color-background-secondary: #1a1c1e; }
"""


def page():
    sections = "".join(
        f'<section class="llama" data-part="{part}" data-prompt="{PROMPT}">'
        "</section>"
        for part in PARTS
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        '<title>Parts</title><link rel="icon" href="data:,">'
        '<link rel="stylesheet" href="llama.css">'
        f"<style>{THEME}</style><script defer src='llama.js'></script>"
        f"</head><body>{sections}</body></html>"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    write_pocket(folder / "pocket")
    for name in ("llama.js", "llama.css"):
        shutil.copy(SITE / name, folder)
    (folder / "index.html").write_text(page(), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        driver.set_script_timeout(300)
        yield driver


@pytest.fixture
def server(folder):
    """Serve the folder; `errors`: words that must be on the console."""
    with served(folder) as server:
        server.errors = []
        yield server


@pytest.fixture
def opened(server, driver):
    """Return the driver with the page; nothing unexpected may happen."""
    driver.get_log("browser")
    show(driver, f"{server.address}/index.html")
    yield driver
    found = [e["message"] for e in driver.get_log("browser")]
    for words in server.errors:
        assert any(words in m for m in found), (words, found)
    expected = "status of 404", "status of 500", *server.errors
    assert [m for m in found if not any(e in m for e in expected)] == []
    assert foreign(driver, server.address) == []


def call(driver, code, *arguments):
    """Return what JavaScript returns, after its promises."""
    done = driver.execute_async_script(
        "const given = [...arguments], done = given.pop();"
        f"(async () => {{ {code} }})().then(value => done([value]),"
        " error => done(error.message));",
        *arguments,
    )
    assert isinstance(done, list), done
    return done[0]


def section(driver, part):
    (found,) = elements(driver, f"section[data-part={part}]")
    return found


def inside(driver, part, selector):
    return elements(section(driver, part), selector)


def said(driver, part, expected):
    """Wait until a part's message has the expected words; return it."""

    def found():
        (message,) = inside(driver, part, "[role=status]")
        return message.text if re.search(expected, message.text) else None

    return wait_for(f"{part} to say {expected}", found, seconds=40)


def fill(driver, part, text, name="text"):
    """Set a field as if typed, without waiting for each key."""
    code = "const it = arguments[0]; it.value = arguments[1]; "
    code += "it.dispatchEvent(new Event('input', {bubbles: true}));"
    if name == "text":
        (found,) = inside(driver, part, "input[type=text], textarea")
    else:
        field = f"//*[@data-part='{part}']//label[contains(., '{name}')]//"
        found = driver.find_element("xpath", f"{field}input | {field}select")
    driver.execute_script(code, found, text)


def submit(driver, part):
    (button,) = inside(driver, part, "[type=submit]")
    driver.execute_script("arguments[0].click()", button)


DONE = {  # what each part says when it has drawn
    "tokens": r"\d+ tokens",
    "rotation": "is rotated by",
    "attention": "Shown: layer",
    "next": "most likely next token",
    "sampling": "can be drawn",
    "generate": "End of the text",
}


def draw_all(driver):
    for part in PARTS:
        submit(driver, part)
    for part in PARTS:
        said(driver, part, DONE[part])


# -- the same numbers as llamalib's ----------------------------------------

PIECES = [
    *("a", "Z", "word", " the", "don't", "I'LL", "'S", "'ſ", "it’s", "ſ", "K"),
    *("0", "42", "12345678", "٣٤", "½", "Ⅷ", "²", "三"),
    *("é", "e\u0301", "ñ", "Å", "\u0301", "\u20dd", "नमस्ते", "ก็", "ไทย"),
    *("你好", "日本語", "かな", "한국어", "العربية", "שלום", "\u200f"),
    *("🦙", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇫🇷"),
    *("𝔘", "𠜎", "\U000e0001", "\U0010ffff"),
    *(" ", "  ", "\t", "\n", "\r\n", "\r", "\n\n\n", "\v", "\f", "\x85"),
    *("\xa0", "\u1680", "\u2003", "\u2028", "\u2029", "\u202f", "\u3000"),
    *("\ufeff", "\u200b", "\u200d", "\u180e", "\x00", "\x1c", "\x1f", "\x7f"),
    *(".", ",", "!?", "...", "…", "—", "//", "# ", "$x$", "<b>&amp;", "\\n"),
    *("_a_b", "x=1;", "{}", "'", '"', "‘’", "€", "℃", "ﬁ", "ǅ", "ß", "İ"),
    *("<|begin_of_text|>", "<|eot_id|>", "<|reserved_special_token_9|>"),
    *("<|nothing|>", "<|", "|>", "\ufffd", "\u0378", "\ue000"),
]


def many_texts():
    """Return 1,300 different texts of every kind, the same each time."""
    draw, texts = random.Random(18), {"": None, "a" * 4000: None}
    texts |= dict.fromkeys(PIECES + SPECIAL_TOKENS[:12])
    texts |= dict.fromkeys([" " * 999 + "x", "ab" * 1500, "9" * 1000])
    texts |= dict.fromkeys(["🦙" * 300, "\n" * 500, "é" * 700, "Straße " * 90])
    while len(texts) < 1300:
        texts["".join(draw.choices(PIECES, k=draw.randint(2, 12)))] = None
    return list(texts)


def pairs_of_bytes(texts):
    """Return a token for each byte and each two that follow in the texts."""
    ranks = {bytes([b]): b for b in range(256)}
    for data in map(str.encode, texts):
        for pair in zip(data, data[1:]):
            ranks.setdefault(bytes(pair), len(ranks))
    return ranks


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("tokens", ["pocket", "pairs of bytes"])
def test_ids_of_texts(opened, pocket, tokens, special):
    """With a token for each two bytes, a wrong split shows in the ids."""
    texts = [*many_texts(), "<|nothing|>'D", "<|x|> <|eot_id|>'s"]
    texts += ["'ſx 'Sx 'Lx", "  \ufeff", " \x85 \x85x", "\x1c\x1cx"]
    ours, ranks = pocket.tokenizer, pairs_of_bytes(texts)
    if tokens == "pairs of bytes":
        ours = llamalib.Tokenizer(ranks)
    found = call(
        opened,
        "let t = await llama.load_tokenizer();"
        "const ranks = new Map(given[1].map((token, i) => [token, i]));"
        "if (given[3]) t = new t.constructor(ranks);"
        "return given[0].map(text => t.encode(text, {special: given[2]}))",
        texts,
        [token.decode("latin-1") for token in ranks],
        special,
        ours is not pocket.tokenizer,
    )
    allowed = "all" if special else ()
    how = dict(bos=False, eos=False, allowed_special=allowed)
    pairs = zip(texts, found, strict=True)
    assert [t for t, ids in pairs if ids != ours.encode(t, **how)] == []


def test_texts_of_ids(opened, pocket):
    """Whole texts, and streamed pieces, of ids that are no valid UTF-8."""
    draw, t = random.Random(4), pocket.tokenizer
    rows = [draw.choices(range(t.vocab_size), k=12) for _ in range(150)]
    rows += [draw.choices(range(128, 256), k=20) for _ in range(150)]
    rows += [t.encode(x, bos=True, eos=True) for x in many_texts()[:200]]
    found = call(
        opened,
        "const t = await llama.load_tokenizer();"
        "return given[0].map(ids => [t.decode(ids), "
        "[...ids, undefined].map(t.decode_stream())])",
        rows,
    )
    for ids, (text, pieces) in zip(rows, found, strict=True):
        assert text == t.decode(ids)
        expected = list(t.decode_stream(ids))
        assert pieces[: len(expected)] == expected
        assert "".join(pieces[len(expected) :]) == ""


PROMPTS = [
    *("Once upon a time there was a", "The capital of France is", "Monday,"),
    *("12 + 7 =", "The language of Brazil is", "\n\n", "🦙", "1, 2, 3,"),
    *('"Good," said', "Once upon a time " * 12),
]


def prompt_ids(pocket, texts=PROMPTS):
    t = pocket.tokenizer
    return [t.encode(text, bos=True, eos=False) for text in texts]


def difference(opened, llama, ids):
    """Return the largest difference of the page's last logits from ours."""
    code = "const m = await llama.load();"
    code += "return Array.from(await m.logits(given[0]))"
    with torch.no_grad():
        expected = llama(torch.tensor(ids), last_only=True)[-1]
    found = torch.tensor(call(opened, code, ids))
    return (found - expected).abs().max().item()


def test_logits(opened, pocket):
    long = random.Random(1).choices(range(3000), k=511)
    rows = [*prompt_ids(pocket), [pocket.tokenizer.bos_id, *long]]
    differences = [difference(opened, pocket, ids) for ids in rows]
    assert len(rows) == 11 and max(differences) < 1e-3, differences


def test_another_llama(opened, server):
    """Untied, with other heads, a head width and another factor of RoPE."""
    heads = dict(n_heads=4, n_kv_heads=1, head_width=12)
    config = small_config(dim=24, vocab_size=3328, rope_theta=1e4, **heads)
    config = replace(config, use_scaled_rope=True, rope_scaling_factor=3.0)
    ours = random_llama(config, tied=False)
    for weight in ours.parameters():
        weight.copy_(weight.bfloat16())  # as the file has it
    weights = {k: w.bfloat16() for k, w in ours.state_dict().items()}
    params = json.dumps(params_of(config)).encode()
    server.broken["params.json"] = 200, params
    server.broken["model.safetensors"] = 200, save(weights)
    ids = random.Random(2).choices(range(3328), k=71)
    assert difference(opened, ours, ids) < 1e-4


GENERATE = """
const m = await llama.load(), ids = [], options = given[1];
if (options.stop) options.stop = new Set(options.stop);
for await (const id of m.generate(given[0], options)) ids.push(id);
return ids;
"""


def test_greedy_ids(opened, pocket):
    """Forty of each prompt, and one text up to the token that ends it."""
    rows = [
        (ids, dict(max_new_tokens=40, stop=[])) for ids in prompt_ids(pocket)
    ]
    rows.append((rows[0][0], dict(max_new_tokens=200)))
    for ids, how in rows:
        expected = list(llamalib.generate(pocket, ids, **how))
        assert call(opened, GENERATE, ids, how) == expected
    assert len(rows) == 11 and 40 < len(expected) < 200


def test_distributions(opened, pocket):
    values = [0.3, 0.7, 1, 1.7], [None, 1, 5, 40, 5000], [None, 0.1, 0.9, 1]
    settings = list(itertools.product(*values))
    code = "const m = await llama.load(), l = await m.logits(given[0]);"
    code += "return given[1].map(s => "
    code += "Array.from(llama.next_token_probs(l, ...s)))"
    for ids in prompt_ids(pocket)[:4]:
        with torch.no_grad():
            logits = pocket(torch.tensor(ids), last_only=True)[-1]
        found = torch.tensor(call(opened, code, ids, settings))
        for probs, setting in zip(found, settings, strict=True):
            expected = next_token_probs(logits, *setting)
            assert (probs - expected).abs().max() < 1e-4, setting
            assert torch.equal(probs > 0, expected > 0), setting


def test_frequencies_are_probabilities(opened, pocket):
    (ids,) = prompt_ids(pocket, ["Once upon a time there was a"])
    with torch.no_grad():
        logits = pocket(torch.tensor(ids), last_only=True)[-1]
    probs, n = next_token_probs(logits, 1.3, 8, 0.95), 400
    code = "const m = await llama.load(), ids = [];"
    code += "const how = {max_new_tokens: 1, temperature: 1.3, top_k: 8,"
    code += " top_p: 0.95}; for (let seed = 0; seed < given[1]; seed++)"
    code += "for await (const id of m.generate(given[0], {...how, seed}))"
    code += "ids.push(id); return ids"
    drawn = torch.tensor(call(opened, code, ids, n)).bincount(minlength=3328)
    assert drawn.sum() == n and drawn[probs == 0].sum() == 0
    spread = (n * probs * (1 - probs)).sqrt()
    assert ((drawn - n * probs).abs() <= 4 * spread + 1e-3).all()


# -- the parts, by keyboard --------------------------------------------------


def press(driver, *keys):
    driver.switch_to.active_element.send_keys(*keys)


FOCUSED = """
const it = document.activeElement, part = it.closest("section")?.dataset.part;
if (!it.matches(arguments[0]) || part !== arguments[1]) return null;
const outlined = it.type === "radio" ? it.nextElementSibling : it;
return getComputedStyle(outlined).outlineStyle;
"""


def tab_to(driver, part, selector):
    """Press Tab until the part's element has the focus, visibly."""
    for _ in range(120):
        press(driver, Keys.TAB)
        if outline := driver.execute_script(FOCUSED, selector, part):
            assert outline == "solid", (part, selector)
            return
    raise AssertionError(f"Tab does not reach {selector} in {part}")


@pytest.mark.parametrize(
    "part, selector, keys, expected",
    [
        ("tokens", "textarea", (Keys.END, "!!"), "26 characters"),
        ("rotation", "[type=range]", Keys.ARROW_RIGHT, "At position 6,"),
        ("attention", "[type=radio]", Keys.ARROW_UP, "layer 4, head 6"),
        ("next", "[type=text]", (Keys.END, " Paris"), r"token: “\.”"),
        ("sampling", "[type=range]", Keys.END, r"^(?!1 of)[\d,]+ of 3,328"),
    ],
)
def test_a_part_by_keyboard(opened, part, selector, keys, expected):
    tab_to(opened, part, "[type=submit]")
    press(opened, Keys.ENTER)
    first = said(opened, part, DONE[part])
    opened.execute_script("document.activeElement.blur(); scrollTo(0, 0)")
    tab_to(opened, part, selector)
    press(opened, *keys)
    assert said(opened, part, expected) != first


def test_a_text_is_stopped_by_keyboard(opened):
    fill(opened, "generate", "Once upon a time there was a")
    fill(opened, "generate", "500", "new tokens")
    # no token ends the text, so that it grows until the keys are pressed
    call(opened, "(await llama.load_tokenizer()).stop_tokens.clear()")
    tab_to(opened, "generate", "[type=submit]")
    press(opened, Keys.ENTER)
    new = ".llama-text > span + span"
    wait_for(
        "text", lambda: any(e.text for e in inside(opened, "generate", new))
    )
    tab_to(opened, "generate", "[type=button]")
    press(opened, Keys.SPACE)
    last = said(opened, "generate", "End of the text")
    n = int(re.search(r"you stopped it. (\d+) new tokens", last)[1])
    assert 0 < n < 500
    (text,) = inside(opened, "generate", ".llama-text")
    before = text.text
    time.sleep(0.5)
    assert text.text == before


# -- what the parts show -----------------------------------------------------


def test_tokens_are_shown(opened, pocket):
    text = "Hi <|eot_id|> é\n<b>x</b>"
    fill(opened, "tokens", text)
    (box,) = inside(opened, "tokens", "[type=checkbox]")
    box.send_keys(Keys.SPACE)
    t = pocket.tokenizer
    ids = t.encode(text, bos=False, eos=False, allowed_special="all")
    said(opened, "tokens", f" {len(ids)} tokens")
    boxes = [e.text.split("\n") for e in inside(opened, "tokens", "li")]
    assert [int(box[1]) for box in boxes] == ids
    for i, (label, _, code) in zip(ids, boxes):
        if i in t.special_tokens.values():
            assert code == "special" and label == "<|eot_id|>"
        else:
            assert bytes.fromhex(code) == t.decode_bytes([i])


def cells(driver, part):
    """Return the texts of a table's rows, at one moment."""
    code = "const rows = [...arguments[0].querySelectorAll('tbody tr')];"
    code += "return rows.map(row => [...row.cells].map(e => e.textContent))"
    return driver.execute_script(code, section(driver, part))


def test_next_tokens_are_shown(opened, pocket):
    submit(opened, "next")
    said(opened, "next", "most likely next token: “␣Paris")
    (ids,) = prompt_ids(pocket, [PROMPT])
    with torch.no_grad():
        probs = pocket(torch.tensor(ids), last_only=True)[-1].softmax(-1)
    expected = probs.topk(10).indices.tolist()
    assert [int(c[1]) for c in cells(opened, "next")] == expected


def test_maps_are_shown(opened, pocket):
    submit(opened, "attention")
    said(opened, "attention", "Shown: layer 5, head 6 · KV head 1")
    assert len(inside(opened, "attention", "canvas")) == 48
    (ids,) = prompt_ids(pocket, [PROMPT])
    maps = llamalib.attention_maps(pocket, torch.tensor(ids))
    for layer, head in ((0, 0), (4, 6)):
        name = f"layer {layer}, head {head}, KV head {head // 4}"
        (radio,) = inside(opened, "attention", f"[aria-label='{name}']")
        opened.execute_script("arguments[0].click()", radio)
        said(opened, "attention", f"layer {layer}, head {head} ·")
        shown = "return [...arguments[0].querySelectorAll('.llama-map "
        shown += ".llama-black, .llama-white')].map(e => e.textContent)"
        found = opened.execute_script(shown, section(opened, "attention"))
        rows, columns = torch.tril_indices(len(ids), len(ids))
        expected = maps[layer, head][rows, columns]
        found = torch.tensor([float(text) for text in found])
        assert (found - expected).abs().max() < 0.0051


def test_a_query_is_rotated(opened, pocket):
    submit(opened, "rotation")
    said(opened, "rotation", "At position 5")
    chosen = {"layer": 3, "head": 5, "token": 2, "pair": 4, "position": 9}
    for name, value in chosen.items():
        fill(opened, "rotation", str(value), name)
        time.sleep(0.1)
    said(opened, "rotation", "At position 9, pair 4")
    (ids,) = prompt_ids(pocket, [PROMPT])
    seen = llamalib.record(pocket, torch.tensor(ids))
    x = seen["layers.3.attention.in"][2]
    heads = (pocket.layers[3].attention.wq.weight @ x).view(8, -1)
    query = torch.view_as_complex(heads[5].view(-1, 2).contiguous())[4]
    config = pocket.config
    angles = llamalib.precompute_freqs_cis(
        config.head_dim, 10, config.rope_theta, config.scaling_factor
    )
    after = query * torch.view_as_complex(angles)[9, 4]
    numbers = dict(cells(opened, "rotation"))
    for name, value in (("before", query.item()), ("after", after.item())):
        found = eval(numbers[f"pair 4 {name}"])
        assert found == pytest.approx((value.real, value.imag), abs=6e-4)


def test_samples_are_counted(opened):
    """What is cut off is never drawn; a seed draws the same again."""
    fill(opened, "sampling", "Once upon a time there was a")
    submit(opened, "sampling")
    said(opened, "sampling", "far: 0")
    (button,) = inside(opened, "sampling", "[type=button]")
    tables = []
    for seed in (5, 6, 5):
        fill(opened, "sampling", str(seed), "seed")
        for n in (20, 40):
            opened.execute_script("arguments[0].click()", button)
            said(opened, "sampling", f"far: {n}, with seed {seed}")
        tables.append(cells(opened, "sampling"))
        assert sum(int(row[3]) for row in tables[-1]) == 40
        assert all(r[3] == "0" for r in tables[-1] if r[2] == "cut off")
    assert tables[0] == tables[2] != tables[1]


def test_a_text_grows(opened, pocket):
    submit(opened, "generate")
    said(opened, "generate", r"End of the text: .*\d+ a second")
    (ids,) = prompt_ids(pocket, [PROMPT])
    new = llamalib.generate(pocket, ids, max_new_tokens=120)
    expected = PROMPT + pocket.tokenizer.decode(new)
    (text,) = inside(opened, "generate", ".llama-text")
    assert text.get_attribute("textContent") == expected
    (aloud,) = inside(opened, "generate", "[role=status] .llama-aloud")
    assert PROMPT + aloud.get_attribute("textContent") == expected


# -- files and errors --------------------------------------------------------


def test_files_are_fetched_once_and_late(opened, server):
    """Typing does not fetch 13 MB."""
    files = "tokenizer.model", "params.json", "model.safetensors"
    assert not set(files) & set(server.asked)
    fill(opened, "tokens", "abc")
    said(opened, "tokens", "3 characters")
    fill(opened, "next", "abc")
    assert [server.asked.count(name) for name in files] == [1, 1, 0]
    draw_all(opened)
    assert [server.asked.count(name) for name in files] == [1, 1, 1]


@pytest.mark.parametrize(
    "name, status, expected",
    [
        ("model.safetensors", 404, "answered with status 404.*Check"),
        ("tokenizer.model", 500, "answered with status 500"),
        ("model.safetensors", 200, "is damaged"),
        ("params.json", 200, "is damaged"),
        ("tokenizer.model", 200, "is damaged"),
        ("tokenizer.model", "line", "is damaged"),
    ],
)
def test_a_second_use_after_an_error_works(
    opened, server, folder, name, status, expected
):
    whole = (folder / "pocket" / name).read_bytes()
    half = whole[: len(whole) // 2]
    if status == "line":  # cut where a line ends
        half, status = half[: half.rindex(b"\n") + 1], 200
    server.broken[name] = status, half if status == 200 else b"none"
    server.errors += ["Error"] * (status == 200)  # the cause
    submit(opened, "next")
    said(opened, "next", f"{name} {'.*' * (status != 200)}{expected}")
    server.broken.clear()
    submit(opened, "next")
    said(opened, "next", DONE["next"])
    assert not inside(opened, "next", ".llama-error")


LONG = {  # what a part says of a text of 600 words
    "tokens": "The first 300 are shown",
    "attention": "Only the first 40 tokens",
    "rotation": "Only the first 40 tokens",
}


@pytest.mark.parametrize("part", PARTS)
def test_texts_that_do_not_fit(opened, part):
    too_long = LONG.get(part, r"\d+ tokens; .*at most 512. Shorten it by \d+")
    for text, expected in (
        ("", "The text is empty. Type a word"),
        ("a" * 10_001, "10001 characters; this page takes at most 10000"),
        ("word " * 600, too_long),
        (PROMPT, DONE[part] + "(?!.*Only)"),
    ):
        fill(opened, part, text)
        submit(opened, part)
        said(opened, part, expected)


# -- for every reader --------------------------------------------------------

SMALL = """
const small = [];
for (const it of document.querySelectorAll(
    ".llama button, .llama input, .llama select, .llama textarea, summary")) {
  const box = (it.type === "checkbox" ? it.closest("label") : it)
    .getBoundingClientRect();
  if (box.width < 40 || box.height < 40)
    small.push([it.outerHTML.slice(0, 80), box.width, box.height]);
}
return [small, document.documentElement.scrollWidth, innerWidth];
"""


def test_on_a_phone(opened, server):
    show(opened, f"{server.address}/index.html", 390)
    for part in PARTS:  # a long word does not widen the page either
        fill(opened, part, "Llama" * 30 + " 🦙 " + PROMPT)
    draw_all(opened)
    small, width, screen = opened.execute_script(SMALL)
    assert small == [] and width <= screen == 390


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_have_contrast(opened, theme):
    opened.execute_script(f"document.body.dataset.theme = '{theme}'")
    found = section(opened, "next").value_of_css_property("color-scheme")
    assert found == theme  # of check boxes, sliders and scroll bars
    draw_all(opened)
    fill(opened, "next", "")
    said(opened, "next", "empty")
    assert opened.execute_script(FAINT, ".llama *") == []


def test_names_for_screen_readers(opened):
    draw_all(opened)
    controls = "button, input, select, textarea, svg, fieldset"
    found = elements(opened, f".llama :is({controls})")
    assert len(found) > 80
    assert [e.tag_name for e in found if not e.accessible_name.strip()] == []
    for part in PARTS:
        (message,) = inside(opened, part, "[role=status]")
        assert message.aria_role == "status"  # a polite live region


def test_texts_are_never_markup(opened):
    text = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    for part in PARTS:
        fill(opened, part, text)
    draw_all(opened)
    assert not elements(opened, ".llama img, .llama script")
    (shown,) = inside(opened, "generate", ".llama-prompt")
    assert shown.text == text
