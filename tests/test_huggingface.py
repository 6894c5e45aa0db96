"""Hugging Face's format: the same model; other models are refused."""

import json
import os
import random
import re

import pytest
import tokenizers
import torch
from safetensors.torch import load_file, save_file
from tokenizers import (
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers.trainers import BpeTrainer

import llamalib
from llamalib import Tokenizer
from llamalib.__main__ import main
from llamalib.hugging_face import HuggingFaceTokenizer, read_tokenizer_json
from llamalib.load import ROOT
from llamalib.tokenizer import SPECIAL_TOKENS
from tests.helpers import (
    OTHER_SETTINGS,
    random_ids,
    random_llama,
    small_config,
    small_ranks,
    write_checkpoint,
    write_tokenizer,
)
from tests.reference import write_transformers

PLAIN = dict(device="cpu")
SAFE, INDEX = "model.safetensors", "model.safetensors.index.json"
CONFIG, TOKENIZER = "config.json", "tokenizer.json"
GENERATION = "generation_config.json"


def tokenizer_json(model_file, path, special=SPECIAL_TOKENS):
    """Hugging Face's own conversion of a tokenizer.model."""
    from transformers.convert_slow_tokenizer import TikTokenConverter

    os.environ["TIKTOKEN_CACHE_DIR"] = ""  # it caches by the file's name
    converter = TikTokenConverter(
        str(model_file), extra_special_tokens=list(special)
    )
    converter.converted().save(str(path))
    return path


def write_folder(folder, llama=None, special=SPECIAL_TOKENS, n_ranks=300):
    """What save_pretrained of the transformers library writes."""
    write_transformers(llama or random_llama(), folder)
    write_tokenizer(folder / "spare.model", small_ranks(n_ranks))
    tokenizer_json(folder / "spare.model", folder / TOKENIZER, special)
    (folder / "spare.model").unlink()
    return folder


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "model")


def change_json(file, **changes):
    found = json.loads(file.read_text()) | changes
    for key in [k for k, v in found.items() if v is ...]:
        del found[key]
    file.write_text(json.dumps(found))


def lose_a_merge(data):
    """Then the tokenizer is not Llama 3's."""
    data["model"]["merges"].pop()


def change_tokenizer(folder, change=lose_a_merge):
    path = folder / TOKENIZER
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    return path


def change_tensors(folder, change):
    tensors = load_file(folder / SAFE)
    change(tensors)
    save_file(tensors, folder / SAFE, metadata={"format": "pt"})


# -- the same model ----------------------------------------------------------


@pytest.mark.parametrize("KV", [1, 2, 8])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("more", OTHER_SETTINGS)
@torch.no_grad()
def test_is_the_transformers_librarys_model(tmp_path, KV, tied, more):
    from transformers import LlamaForCausalLM

    config = small_config(n_kv_heads=KV, **more)
    write_folder(tmp_path, random_llama(config, tied=tied))
    llama = llamalib.load(tmp_path, **PLAIN)
    theirs = LlamaForCausalLM.from_pretrained(tmp_path).eval()
    assert llama.tied is tied and llama.config.head_dim == config.head_dim
    assert llama.config.hidden_dim == config.hidden_dim
    tokens = random_ids(2, 40)
    logits = llama(tokens)
    assert (logits - theirs(tokens).logits).abs().max() < 1e-5
    prompt = random_ids(1, 6, seed=1)
    expected = theirs.generate(
        prompt, max_new_tokens=20, do_sample=False, eos_token_id=None
    )
    ours = llamalib.generate(llama, prompt[0], max_new_tokens=20, stop=())
    assert list(ours) == expected[0, 6:].tolist()


def test_converted_to_metas_format(folder, tmp_path, capsys):
    """For the notebooks, which read Meta's files."""
    with pytest.raises(ValueError, match="convert .*model data/model-orig"):
        llamalib.find_checkpoint(folder, metas=True)
    assert main(["convert", str(folder), str(tmp_path / "metas")]) == 0
    place = llamalib.find_checkpoint(tmp_path / "metas", metas=True)
    found = llamalib.load(place, check=True, **PLAIN)
    expected = llamalib.load(folder, **PLAIN)
    assert found.config == expected.config and found.tied == expected.tied
    for name, weight in expected.state_dict().items():
        assert torch.equal(found.state_dict()[name], weight), name
    assert found.tokenizer.ranks == expected.tokenizer.ranks
    change_tokenizer(folder)
    assert main(["convert", str(folder), str(tmp_path / "other")]) == 1
    assert "needs Llama 3's tokenizer" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


# Llama 3's: before 3.1 three of the names were reserved ones
LLAMA_3 = [f"<|reserved_special_token_{i}|>" for i in range(251)]
LLAMA_3[:0] = SPECIAL_TOKENS[:2]
LLAMA_3[6:6] = SPECIAL_TOKENS[6:8]
LLAMA_3[9:9] = [SPECIAL_TOKENS[9]]
OWN = [*SPECIAL_TOKENS[:20], "<|im_start|>", *SPECIAL_TOKENS[21:]]


@pytest.mark.parametrize(
    "special, ends, can",
    [
        (SPECIAL_TOKENS, 301, True),  # the published base models
        (SPECIAL_TOKENS, [301, 308, 309], True),  # and Instruct models
        (LLAMA_3, [301, 309], True),
        (SPECIAL_TOKENS, [13, 303], False),
        (OWN, [301, 308, 309], False),
    ],
)
def test_special_tokens_and_metas_format(tmp_path, special, ends, can):
    """It is written if no token and no end of a text is lost."""
    folder = write_folder(tmp_path / "model", special=special)
    change_json(folder / CONFIG, eos_token_id=7)  # the second file says more
    (folder / GENERATION).write_text(json.dumps({"eos_token_id": ends}))
    before = llamalib.load(folder, **PLAIN).tokenizer
    assert before.stop_tokens == set(
        ends if isinstance(ends, list) else [ends]
    )
    made = main(["convert", str(folder), str(tmp_path / "metas")])
    assert made == 1 - can
    if can:
        after = llamalib.load(tmp_path / "metas", **PLAIN).tokenizer
        assert after.eos_id == before.eos_id
        assert after.stop_tokens >= before.stop_tokens
        chat = [{"role": "user", "content": "abc <|eot_id|>"}]
        assert after.encode_chat(chat) == before.encode_chat(chat)


LLAMA3 = dict(
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=8192,
)
YARN = {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32}
PARTIAL = {"rope_theta": 10000.0, "partial_rotary_factor": 0.5}


def test_older_configs(folder):
    """Before transformers 5: rope_theta and rope_scaling on their own."""
    plain = dict(rope_parameters=..., rope_theta=12345.0)
    change_json(folder / CONFIG, **plain, rope_scaling=LLAMA3)
    found = llamalib.load(folder, **PLAIN).config
    assert found.rope_theta == 12345 and found.scaling_factor == 8
    both = LLAMA3 | {"type": "llama3", "attention_factor": None}
    change_json(folder / CONFIG, rope_scaling=both)
    assert llamalib.load(folder, **PLAIN).config.scaling_factor == 8
    change_json(folder / CONFIG, rope_scaling=None, head_dim=...)
    found = llamalib.load(folder, **PLAIN).config
    assert found.rope_theta == 12345 and not found.use_scaled_rope


def test_several_files(folder):
    """Whatever their names are, the index lists them."""
    expected = llamalib.load(folder, **PLAIN).state_dict()
    tensors, listed = load_file(folder / SAFE), {}
    (folder / SAFE).unlink()
    for i in range(3):
        file = f"model-{i + 1:05d}-of-00003.safetensors"
        part = {name: tensors[name] for name in sorted(tensors)[i::3]}
        save_file(part, folder / file)
        listed |= dict.fromkeys(part, file)
    index = folder / INDEX
    index.write_text(json.dumps({"metadata": {}, "weight_map": listed}))
    found = llamalib.load(folder, **PLAIN).state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="has no model-00002-of-00003"):
        llamalib.load(folder)
    for names in ({"x": "../y"}, {"x": 5}, {}, None):
        index.write_text(json.dumps({"weight_map": names}))
        with pytest.raises(ValueError, match="weight_map must name files nex"):
            llamalib.load(folder)
    (folder / SAFE).touch()
    with pytest.raises(ValueError, match="has both"):
        llamalib.load(folder)


def test_a_download_of_a_whole_page(tmp_path):
    """It has both formats: Meta's is taken, if it is complete."""
    write_folder(tmp_path)
    metas = write_checkpoint(tmp_path / "original")
    assert llamalib.find_checkpoint(tmp_path) == metas
    (metas / "consolidated.00.pth").unlink()
    assert llamalib.find_checkpoint(tmp_path) == tmp_path


# -- other architectures -----------------------------------------------------


@pytest.mark.parametrize(
    "said, changes",
    [
        ("must be llama, got 'mistral'", dict(model_type="mistral")),
        ("architectures", dict(architectures=["LlamaForTokens"])),
        ("attention_bias must be None, got True", dict(attention_bias=True)),
        ("sliding_window must be None, got 4096", dict(sliding_window=4096)),
        ("layer_types", dict(layer_types=["sliding_attention"])),
        ("quantization_config", dict(quantization_config={"bits": 4})),
        ("hidden_act must be silu, got 'gelu'", dict(hidden_act="gelu")),
        ("auto_map", dict(auto_map={"AutoModel": "code.Mine"})),
        ("rope_type", dict(rope_parameters={"rope_type": "yarn"})),
        ("rope_type", dict(rope_parameters=YARN)),
        ("rope_scaling and rope_parameters differ", dict(rope_scaling=LLAMA3)),
        ("a is 1, which RoPE .*'default'", dict(rope_parameters={"a": 1})),
        ("factor is 8.0, which", dict(rope_parameters={"factor": 8.0})),
        ("beta_fast is 32", dict(rope_parameters=LLAMA3 | {"beta_fast": 32})),
        ("type must be llama3", dict(rope_parameters=LLAMA3 | {"type": "x"})),
        ("partial_rotary_factor", dict(rope_parameters=PARTIAL)),
        *(
            (f"{name} must be an object", {name: value})
            for name in ("rope_parameters", "rope_scaling")
            for value in (False, 0, "", [])
        ),
        ("low_freq_factor", dict(rope_parameters={"rope_type": "llama3"})),
        ("hidden_size must be a whole .* got None", dict(hidden_size=...)),
        (r"weight has the shape \(556, 64\)", dict(vocab_size=557)),
        ("556 tokens, but vocab_size in config.json", dict(vocab_size=500)),
        ("has no tensor layers.2", dict(num_hidden_layers=3)),
        ("is false, but there is no lm_head", dict(tie_word_embeddings=False)),
    ],
)
def test_other_configs_are_refused(folder, said, changes):
    change_json(folder / CONFIG, **changes)
    with pytest.raises(ValueError, match=said) as error:
        llamalib.load(folder, **PLAIN)
    assert str(folder) in str(error.value)


Q = "model.layers.0.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    "name, change, said",
    [
        ("score.weight", lambda q: torch.ones(2), "score.weight is not a ten"),
        (Q, lambda q: q[:9], f"{Q} has the shape .9, 64."),
        (Q, lambda q: q.to(torch.float8_e4m3fn), "floats .*float8"),
        (Q, lambda q: q.half(), "matrices of torch.float16 and"),
        ("lm_head.weight", lambda q: torch.ones(556, 64), "not the embedding"),
    ],
)
def test_other_tensors_are_refused(folder, name, change, said):
    change_tensors(
        folder, lambda found: found.update({name: change(found[Q])})
    )
    with pytest.raises(ValueError, match=said) as error:
        llamalib.load(folder, **PLAIN)
    assert str(folder) in str(error.value)


def test_a_missing_tensor(folder):
    change_tensors(folder, lambda found: found.pop(Q))
    with pytest.raises(ValueError, match="no tensor layers.0.attention.wq.we"):
        llamalib.load(folder, **PLAIN)


def test_a_tied_output_written_twice(folder):
    """And the frequencies that older files hold."""

    def twice(tensors):
        same = tensors["model.embed_tokens.weight"]
        tensors["lm_head.weight"] = same.clone()
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)

    change_tensors(folder, twice)
    assert llamalib.load(folder, **PLAIN).tied


@pytest.mark.parametrize("name", [SAFE, CONFIG, TOKENIZER])
@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_a_file_cut_short(folder, name, share):
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: int(share * len(data))])
    with pytest.raises(
        ValueError, match=f"{name} is (empty|damaged|not JSON)"
    ):
        llamalib.load(folder)


# -- tokenizers --------------------------------------------------------------

MIXED = [
    "The quick brown fox, 12345 times; isn't it?",
    "Straße, naïve café, ŁÓDŹ, İstanbul",
    "Быстрая бурая лиса… 2026 год",
    "速い茶色の狐が怠け者の犬を飛び越える。",
    "الثعلب البني السريع ١٢٣",
    "🦙👩‍👩‍👧‍👦🏳️‍🌈 ok",
    "\t\tdef f(x):\r\n\r\n    return x**2   \n\n\n",
    "   leading   spaces   ",
    "<|eot_id|> <|begin_of_text|>x",
]


def mixed_lines(n=2000):
    """Return n lines of mixed scripts, all different."""
    rng, lines = random.Random(0), []
    for _ in range(n):
        parts = rng.choices(MIXED, k=3)
        cut = [
            p[rng.randrange(len(p)) :] + p[: rng.randrange(9)] for p in parts
        ]
        lines.append(rng.choice(["", " ", "\n", "  "]).join(cut))
    return lines


def stream(tokenizer, ids):
    return "".join(tokenizer.decode_stream(ids))


def same_ids(ours, library):
    library.encode_special_tokens = True  # those in a text are text
    lines = mixed_lines()
    expected = library.encode_batch(lines, add_special_tokens=False)
    for line, found in zip(lines, expected):
        ids = ours.encode(line, bos=False, eos=False)
        assert ids == found.ids, line
        assert ours.decode(ids) == line == stream(ours, ids)


@pytest.mark.parametrize("source", ["the pocket's", "the published"])
def test_llama_3s_tokenizer_is_rebuilt(tmp_path, request, source):
    if source == "the pocket's":
        file = ROOT / "data" / "pocket-llama" / "tokenizer.model"
    else:
        file = request.getfixturevalue("llama3_file")
    path = tokenizer_json(file, tmp_path / TOKENIZER)
    ours = read_tokenizer_json(path)
    assert type(ours) is Tokenizer
    same_ids(ours, tokenizers.Tokenizer.from_file(str(path)))
    assert ours.special_tokens == Tokenizer.from_file(file).special_tokens


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["model"].update(ignore_merges=False),
        lambda d: d["model"]["merges"].pop(),
        lambda d: d["model"]["merges"].reverse(),
        lambda d: d["pre_tokenizer"]["pretokenizers"][0].update(invert=True),
        lambda d: d.update(normalizer={"type": "NFC"}),
        lambda d: d["added_tokens"][7].update(content="<t>", special=False),
        lambda d: d["added_tokens"][7].update(content="<t>", lstrip=True),
    ],
)
def test_any_other_is_run_by_the_library(folder, change):
    path = change_tokenizer(folder, change)
    ours = read_tokenizer_json(path)
    assert type(ours) is HuggingFaceTokenizer
    library = tokenizers.Tokenizer.from_file(str(path))
    library.encode_special_tokens = True
    for text in ("a <t> b", "a<t>b", "abc\n  aa"):
        expected = library.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, bos=False, eos=False) == expected


def sentencepiece_kind():
    """The tokenizer of Llama 2 and of small models like it."""
    special = ["<unk>", "<s>", "</s>"]
    pieces = [f"<0x{b:02X}>" for b in range(256)]
    vocab = {p: i for i, p in enumerate(special + pieces + ["▁"])}
    library = tokenizers.Tokenizer(
        models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True)
    )
    library.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    library.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    library.add_special_tokens(special)
    return library


def gpt2_kind(alphabet=None, special=("<unk>", "<s>", "</s>")):
    """The tokenizer of SmolLM2; without its alphabet rare bytes are missing."""
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    library.decoder = decoders.ByteLevel()
    if alphabet is None:
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = BpeTrainer(
        vocab_size=900,
        special_tokens=list(special),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    library.train_from_iterator(MIXED, trainer)
    return library


@pytest.mark.parametrize("make", [gpt2_kind, sentencepiece_kind])
def test_other_tokenizers(tmp_path, make):
    library = make()
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    library.save(str(tmp_path / TOKENIZER))
    ours = read_tokenizer_json(tmp_path / TOKENIZER)
    assert type(ours) is HuggingFaceTokenizer and not hasattr(ours, "ranks")
    assert ours.n_words == library.get_vocab_size() and ours.bos_id == 1
    assert ours.eos_id is None and not ours.stop_tokens
    same_ids(ours, library)
    ours.eos_id = 2
    ids = ours.encode("a🦙b</s>c", bos=True, eos=True)
    assert ids[0] == 1 and ids[-1] == 2 and ids.count(2) == 1
    some = dict(bos=False, eos=False)
    assert ours.encode("a</s>", **some, allowed_special=["</s>"])[-1] == 2
    ours.vocab_size += 1  # a row that is no token, inside a text with spaces
    spaced = ours.encode("a b c", **some)
    spaced.insert(len(spaced) - 2, ours.n_words)
    assert ours.decode(spaced) == "a b c" == stream(ours, spaced)
    assert "\ufffd" in stream(ours, ours.encode("🐍", **some)[:-1])
    with pytest.raises(ValueError, match="ids contains 9999, but the voc"):
        ours.decode([9999])
    with pytest.raises(ValueError, match="surrogates"):
        ours.encode("\ud800", **some)
    with pytest.raises(
        ValueError, match="this model's dialogues is not known: cont"
    ):
        ours.encode_chat([{"role": "user", "content": "Hi"}])


def test_a_vocabulary_without_rare_bytes(tmp_path):
    """Published ones lack some; no letter of a text is silently left out."""
    library = gpt2_kind(alphabet=[])
    library.save(str(tmp_path / TOKENIZER))
    with pytest.raises(ValueError, match="does not give back the letters"):
        read_tokenizer_json(tmp_path / TOKENIZER)
    ascii_only = [chr(b) for b in range(33, 127)]
    library = gpt2_kind(ascii_only)
    library.save(str(tmp_path / TOKENIZER))
    ours = read_tokenizer_json(tmp_path / TOKENIZER)
    same_ids(ours, library)
    with pytest.raises(ValueError, match="no token for the byte 0xF1, .*in '"):
        ours.encode("a\U00046131", bos=False, eos=False)
    assert library.encode("\U00046131").ids != []


OTHER_WORDS = dict(ignore_merges=False, end_of_word_suffix="x")


def two_tokens(data):
    vocab = data["model"]["vocab"]
    vocab["a"] = vocab["b"]


def many(kind, n=8, **more):
    """Return a change to n steps, of which each makes a text longer."""
    step = {"type": kind, "pattern": {"String": "a"}} | more
    return lambda d: d.update(
        normalizer={"type": "Sequence", "normalizers": [step] * n}
    )


def begins_with(i):
    begin = {"id": "x", "ids": [i], "tokens": ["a"]}
    pieces = {"SpecialToken": {"id": "x", "type_id": 0}}
    pieces = [pieces, {"Sequence": {"id": "A", "type_id": 0}}]
    form = dict(type="TemplateProcessing", single=pieces, pair=[])

    def change(data):
        lose_a_merge(data)
        data["post_processor"] = form | {"special_tokens": {"x": begin}}

    return change


def long_names(data):
    """Each is short enough, but together they are no regular expression."""
    for i, token in enumerate(data["added_tokens"][20:]):
        token["content"] = f"{i}" + "ü" * 990


@pytest.mark.parametrize(
    "said, change",
    [
        ("id of .* is not", lambda d: d["model"]["vocab"].pop("W")),
        ("the id 98 has two tokens", two_tokens),
        ("give back the letters", lambda d: d["model"].update(OTHER_WORDS)),
        ("the id of .* is not 304", lambda d: d["added_tokens"].pop(3)),
        ("damaged", lambda d: d["model"].update(merges=["a b c" * 50_000])),
        ("damaged", lambda d: d.clear()),
        ("normalizer makes texts 1e.16", many("Replace", content="a" * 99)),
        ("makes texts", many("Prepend", prepend="a" * 10**6)),
        ("makes texts", many("ByteLevel", n=40)),
        ("begins a text is not in", begins_with(4_000_000_000)),
        ("regex", long_names),
    ],
)
def test_a_damaged_tokenizer(folder, said, change):
    """No letter is lost, and the library's errors are short."""
    change_tokenizer(folder, change)
    with pytest.raises(ValueError, match=f"{TOKENIZER} is damaged") as error:
        llamalib.load(folder, **PLAIN)
    assert re.search(said, str(error.value)) and len(str(error.value)) < 300


def test_tokenizer_json_comes_first(folder):
    """A model that was trained further may have renamed its tokens."""
    path = folder / TOKENIZER
    text = path.read_text().replace("<|reserved_special_token_0|>", "<|im|>")
    path.write_text(text)
    write_tokenizer(folder / "tokenizer.model")
    assert "<|im|>" in llamalib.load(folder, **PLAIN).tokenizer.special_tokens
    path.unlink()
    assert llamalib.load(folder, **PLAIN).tokenizer.n_words == 556
    (folder / "tokenizer.model").write_bytes(b"\n\x0e\n\x05<unk>\x15")
    with pytest.raises(ValueError, match="SentencePiece .*save_pretrained"):
        llamalib.load(folder, **PLAIN)
    path.symlink_to("nowhere")
    with pytest.raises(FileNotFoundError, match="broken link"):
        llamalib.load(folder, **PLAIN)


def test_a_text_is_encoded_whole_and_alone(folder):
    """Truncation and padding are off; nothing that the file lacks is put."""
    library = tokenizers.Tokenizer.from_file(str(folder / TOKENIZER))
    expected = library.encode("abc abc abc").ids
    library.enable_truncation(4)
    library.enable_padding(length=20)
    library.model.ignore_merges = False
    library.save(str(folder / TOKENIZER))
    change_json(folder / CONFIG, bos_token_id=300)
    ours = llamalib.load(folder, **PLAIN).tokenizer
    assert type(ours) is HuggingFaceTokenizer and ours.bos_id == 300
    assert ours.encode("abc abc abc", bos=True, eos=False) == expected


@pytest.mark.parametrize("ids", [["x"], -1, 1.5, 556])
def test_invalid_end_ids(folder, ids):
    (folder / GENERATION).write_text(json.dumps({"eos_token_id": ids}))
    said = f"{GENERATION}: eos_token_id must be ids"
    with pytest.raises(ValueError, match=said):
        llamalib.load(folder, **PLAIN)


def test_an_unreadable_generation_config(folder):
    """Without it a text would not end where the model ends it."""
    (folder / GENERATION).write_text("{")
    with pytest.raises(ValueError, match=f"{GENERATION} is not JSON"):
        llamalib.load(folder, **PLAIN)
    (folder / GENERATION).unlink()
    (folder / GENERATION).symlink_to("nowhere")
    with pytest.raises(FileNotFoundError, match=f"{GENERATION} is .*broken"):
        llamalib.load(folder, **PLAIN)


def test_rows_that_are_no_tokens(tmp_path):
    """Some models have more rows than their tokenizer has tokens."""
    llama = random_llama(small_config(vocab_size=600))
    folder = write_folder(tmp_path / "model", llama)
    found = llamalib.load(folder, **PLAIN).tokenizer
    assert type(found) is Tokenizer and found.n_words == 556
    ids = [97, 599, 98]
    assert found.decode(ids) == "ab" == stream(found, ids)
    with pytest.raises(ValueError, match="ids contains 600, but the vocabula"):
        found.decode([600])
