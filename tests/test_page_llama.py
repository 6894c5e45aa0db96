"""The Llama in a page, run by Node, compared with llamalib.

tests/test_explorer.py shows it in a browser, too.
"""

import itertools
import json
import math
import os
import random
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from threading import Timer

import pytest
import torch
from safetensors.torch import save

import llamalib
from llamalib import next_token_probs
from llamalib.config import params_of
from llamalib.tokenizer import SPECIAL_TOKENS
from tests.helpers import random_llama, small_config
from tools import page_models

pytestmark = pytest.mark.skipif(
    not shutil.which("node") and os.environ.get("CI") != "true",
    reason="Node is not installed: it runs the page's Llama",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the pocket's files, as in the site."""
    folder = tmp_path_factory.mktemp("pocket")
    page_models.write_pocket(folder)
    return folder


@pytest.fixture(scope="module")
def call(folder):
    """Return what runs JavaScript; one Node answers all of this file.

    The code has `llama`, what the page's modules export, `model`, the Model
    in a folder, and `given`. A file that is not in it is the pocket's.
    `causes`: how many lines the console must have.
    """
    pocket = folder
    command = ["node", Path(__file__).with_name("page.mjs")]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with subprocess.Popen(command, encoding="utf-8", **pipes) as process:

        def call(code, *given, folder=pocket, about=None, causes=0):
            about = about or about_of(folder, pocket)
            asked = dict(folders=[str(folder), str(pocket)], about=about)
            asked |= dict(code=code, given=given)
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.flush()
            late = Timer(300, process.kill)
            late.start()
            line = process.stdout.readline()
            late.cancel()
            assert line, "Node ended, or gave no answer for five minutes"
            found = json.loads(line)
            assert "error" not in found, found["error"]
            assert len(found["errors"]) == causes, found["errors"]
            return found["value"]

        yield call


def about_of(folder, pocket):
    """Return what made.js says of the model in a folder."""
    parts = sorted(folder.glob("part-*.gz"))
    if not parts:
        file = folder / "model.safetensors"
        parts = [file if file.exists() else pocket / file.name]
    found = [page_models.part_of(file) for file in parts]
    return dict(key="a", name="", knows="", prompts=[], longest=512) | {
        "parts": found
    }


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
def test_ids_of_texts(call, pocket, tokens, special):
    """With a token for each two bytes, a wrong split shows in the ids."""
    texts = [*many_texts(), "<|nothing|>'D", "<|x|> <|eot_id|>'s"]
    texts += ["'ſx 'Sx 'Lx", "  \ufeff", " \x85 \x85x", "\x1c\x1cx"]
    ours, ranks = pocket.tokenizer, pairs_of_bytes(texts)
    if tokens == "pairs of bytes":
        ours = llamalib.Tokenizer(ranks)
    found = call(
        "let t = await model.tokenizer();"
        "const special_tokens = {}, tokens = [...given[1]];"
        "for (const [name, id] of t.special_tokens) {"
        "  special_tokens[name] = id - t.ranks.size + tokens.length;"
        "}"
        "const spec = {kind: 'Llama 3', tokens, special_tokens, bos: 0,"
        "  stop: []};"
        "if (given[3]) t = new llama.Tokenizer(spec);"
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


def test_texts_of_ids(call, pocket):
    """Whole texts, and streamed pieces, of ids that are no valid UTF-8."""
    draw, t = random.Random(4), pocket.tokenizer
    rows = [draw.choices(range(t.vocab_size), k=12) for _ in range(150)]
    rows += [draw.choices(range(128, 256), k=20) for _ in range(150)]
    rows += [t.encode(x, bos=False, eos=True) for x in many_texts()[:200]]
    found = call(
        "const t = await model.tokenizer();"
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
    *("Once upon a time there was a", "12 + 7 =", "\n\n", "🦙"),
    "Once upon a time " * 12,
]


def prompt_ids(pocket, texts=PROMPTS):
    t = pocket.tokenizer
    return [t.encode(text, bos=True, eos=False) for text in texts]


def difference(call, llama, ids, **where):
    """Return the largest difference of the page's last logits from ours."""
    code = "const m = await model.load(() => {});"
    code += "return Array.from(await m.logits(given[0]))"
    with torch.no_grad():
        expected = llama(torch.tensor(ids), last_only=True)[-1]
    found = torch.tensor(call(code, ids, **where))
    return (found - expected).abs().max().item()


def test_logits(call, pocket):
    long = random.Random(1).choices(range(3000), k=150)
    rows = [*prompt_ids(pocket), [pocket.tokenizer.bos_id, *long]]
    differences = [difference(call, pocket, ids) for ids in rows]
    assert max(differences) < 1e-3, differences


def test_another_llama(call, tmp_path):
    """Untied, with other heads, a head width and another factor of RoPE."""
    heads = dict(n_heads=4, n_kv_heads=1, head_width=12)
    config = small_config(dim=24, vocab_size=3328, rope_theta=1e4, **heads)
    config = replace(config, use_scaled_rope=True, rope_scaling_factor=3.0)
    ours = random_llama(config, tied=False)
    for weight in ours.parameters():
        weight.copy_(weight.bfloat16())  # as the file has it
    weights = {k: w.bfloat16() for k, w in ours.state_dict().items()}
    (tmp_path / "params.json").write_text(json.dumps(params_of(config)))
    (tmp_path / "model.safetensors").write_bytes(save(weights))
    ids = random.Random(2).choices(range(3328), k=71)
    assert difference(call, ours, ids, folder=tmp_path) < 1e-4


GENERATE = """
const m = await model.load(() => {}), ids = [], options = given[1];
if (options.stop) options.stop = new Set(options.stop);
for await (const id of m.generate(given[0], options)) ids.push(id);
return ids;
"""


def test_greedy_ids(call, pocket):
    """Ten of each prompt, and one text up to the token that ends it."""
    rows = [
        (ids, dict(max_new_tokens=10, stop=[])) for ids in prompt_ids(pocket)
    ]
    rows.append((rows[0][0], dict(max_new_tokens=200)))
    for ids, how in rows:
        expected = list(llamalib.generate(pocket, ids, **how))
        assert call(GENERATE, ids, how) == expected
    assert 40 < len(expected) < 200


def test_distributions(call, pocket):
    values = [0.3, 0.7, 1, 1.7], [None, 1, 5, 40, 5000], [None, 0.1, 0.9, 1]
    settings = list(itertools.product(*values))
    code = (
        "const m = await model.load(() => {}), l = await m.logits(given[0]);"
    )
    code += "return given[1].map(s => "
    code += "Array.from(llama.next_token_probs(l, ...s)))"
    for ids in prompt_ids(pocket)[:4]:
        with torch.no_grad():
            logits = pocket(torch.tensor(ids), last_only=True)[-1]
        found = torch.tensor(call(code, ids, settings))
        for probs, setting in zip(found, settings, strict=True):
            expected = next_token_probs(logits, *setting)
            assert (probs - expected).abs().max() < 1e-4, setting
            assert torch.equal(probs > 0, expected > 0), setting


def test_frequencies_are_probabilities(call, pocket):
    (ids,) = prompt_ids(pocket, ["Once upon a time there was a"])
    with torch.no_grad():
        logits = pocket(torch.tensor(ids), last_only=True)[-1]
    probs, n = next_token_probs(logits, 1.3, 8, 0.95), 400
    code = """
    const m = await model.load(() => {}), [ids, n] = given, drawn = [];
    const how = {temperature: 1.3, top_k: 8, top_p: 0.95};
    const logits = await m.logits(ids);
    for (let seed = 0; seed < n; seed++)
      drawn.push(llama.pick(logits, llama.generator(seed), how));
    for (const seed of [0, 1, 2, 3, 4, 5, 6, 7]) {
      const new_ids = m.generate(ids, {...how, max_new_tokens: 1, seed});
      for await (const id of new_ids)
        if (id !== drawn[seed]) throw new Error(`seed ${seed}: ${id}`);
    }
    return drawn;"""
    drawn = torch.tensor(call(code, ids, n)).bincount(minlength=3328)
    assert drawn.sum() == n and drawn[probs == 0].sum() == 0
    spread = (n * probs * (1 - probs)).sqrt()
    assert ((drawn - n * probs).abs() <= 4 * spread + 1e-3).all()


# -- SmolLM2, in groups of 4 and 8 bits -------------------------------------

ENGLISH = [
    *("The capital of France is", "\n\n🦙"),
    "<|im_start|>user\nHow are you?<|im_end|>\n<|im_start|>assistant\n",
]


@pytest.fixture(scope="module")
def smollm2(smollm2_file):
    """Return SmolLM2 in float32: the numbers of its groups, spread."""
    return llamalib.load(smollm2_file, device="cpu", dtype=torch.float32)


@pytest.fixture(scope="module")
def smollm2_folder(smollm2_file, tmp_path_factory):
    """Return a folder with SmolLM2's files, as in the site."""
    folder = tmp_path_factory.mktemp("smollm2")
    page_models.write_smollm2(smollm2_file, folder)
    return folder


def test_ids_of_smollm2(call, smollm2, smollm2_folder):
    texts = many_texts()
    code = "const t = await model.tokenizer();"
    code += "return given[0].map(text => t.encode(text, {bos: true}))"
    found = call(code, texts, folder=smollm2_folder)
    ours = smollm2.tokenizer
    expected = [ours.encode(text, bos=True, eos=False) for text in texts]
    pairs = zip(texts, found, expected)
    assert [text for text, a, b in pairs if a != b] == []


def test_logits_and_greedy_ids_of_smollm2(call, smollm2, smollm2_folder):
    """Six ids of three texts; the last has special tokens."""
    t, how = smollm2.tokenizer, dict(max_new_tokens=6, stop=[])
    for text in ENGLISH:
        special = dict(allowed_special="all")
        ids = t.encode(text, bos=True, eos=False, **special)
        where = dict(folder=smollm2_folder)
        assert difference(call, smollm2, ids, **where) < 1e-3, text
        expected = list(llamalib.generate(smollm2, ids, **how))
        assert call(GENERATE, ids, how, **where) == expected, text


def test_the_lens_of_smollm2(call, smollm2, smollm2_folder):
    """The ranks of the answer, and the three best of each layer."""
    ids = smollm2.tokenizer.encode(ENGLISH[0], bos=True, eos=False)
    found = page_models.activations(smollm2, ids)
    code = """
    const m = await model.load(() => {}), trace = new llama.Trace(m.config, m.w, m);
    await trace.follow(given[0], () => true);
    return trace.lens(given[0].length - 1);"""
    lens = call(code, ids, folder=smollm2_folder)
    assert [each["rank"] for each in lens] == found["lens.ranks"][
        :, -1
    ].tolist()
    for layer, each in enumerate(lens):
        best = found["lens.probs"][layer, -1]
        shown = torch.tensor([guess["p"] for guess in each["top"]])
        assert torch.allclose(shown, best, atol=1e-4), layer


def test_files_of_smollm2_fit_a_site(smollm2_folder):
    """95 MB at most, 20 MB a file, with the licence and what was changed."""
    files = [*smollm2_folder.iterdir()]
    sizes = [file.stat().st_size for file in files]
    assert sum(sizes) < 95e6 and max(sizes) < 20e6
    assert "Apache License" in (smollm2_folder / "LICENSE").read_text()
    assert "Changed:" in (smollm2_folder / "NOTICE.txt").read_text()


# -- files that do not fit ---------------------------------------------------

REASON = """
try { await model.load(() => {}); return "loaded"; } catch (e) { return e.message; }
"""


@pytest.mark.parametrize(
    "changes",
    [
        dict(rope_theta=None),
        dict(norm_eps=None),
        dict(norm_eps="0.1"),
        dict(dim=10**9),
        dict(n_layers=10**9),
        dict(n_layers=5),
        dict(n_heads=16),
        dict(n_kv_heads=3),
        dict(n_heads=0.5),
        dict(ffn_dim_multiplier=1.0),
        dict(vocab_size=4000),
        dict(use_scaled_rope="yes"),
        dict(rope_scaling_factor=-1),
    ],
    ids=str,
)
def test_settings_that_do_not_fit(call, pocket_folder, tmp_path, changes):
    """No hang, no logits that are no numbers: the file is named."""
    text = (pocket_folder / "params.json").read_text()
    params = json.loads(text) | changes
    params = {k: v for k, v in params.items() if v is not None}
    (tmp_path / "params.json").write_text(json.dumps(params))
    said = call(REASON, folder=tmp_path, causes=1)
    assert "is damaged or incomplete. Press “Try again”." in said


def test_weights_that_do_not_fit(call, folder, tmp_path):
    """A missing output matrix is tied only if the file says so."""
    name = "model.safetensors"
    whole = (folder / name).read_bytes()
    size = int.from_bytes(whole[:8], "little")
    header = whole[8 : 8 + size]
    assert header.count(b'"tied":"true"') == 1
    untied = header.replace(b'"tied":"true"', b'"tied":"nope"')
    renamed = header.replace(b"layers.3.ffn_norm", b"layers.3.ffn_form")
    rest = whole[8 + size :]
    for change, data in {
        "untied": whole[:8] + untied + rest,
        "renamed": whole[:8] + renamed + rest,
        "cut off": whole[:-1000],
    }.items():
        folder = tmp_path / change
        folder.mkdir()
        (folder / name).write_bytes(data)
        said = call(REASON, folder=folder, causes=1)
        assert "model.safetensors is damaged" in said


def test_a_part_that_was_changed_on_its_way(call, folder, tmp_path):
    """A wrong number in the weights is found by the part's SHA-256."""
    name = "model.safetensors"
    data = bytearray((folder / name).read_bytes())
    data[-7] ^= 1
    (tmp_path / name).write_bytes(data)
    about = about_of(folder, folder) | {"key": "changed"}
    said = call(REASON, folder=tmp_path, about=about, causes=1)
    assert "model.safetensors is damaged" in said
    assert call(REASON, about=about | {"key": "whole"}) == "loaded"


def test_weights_that_give_no_numbers(call, folder, pocket, tmp_path):
    """NaN is found before a text is computed with it."""
    weights = {k: w.bfloat16() for k, w in pocket.named_parameters()}
    name = "layers.2.attention.wo.weight"
    weights[name] = torch.full_like(weights[name], math.nan)
    data = save(weights, {"tied": "true"})
    (tmp_path / "model.safetensors").write_bytes(data)
    said = call(REASON, folder=tmp_path, causes=1)
    assert "model.safetensors is damaged" in said


# the browser's store, whose copy is then cut, then changed
KEPT = """
const kept = new Map();
const store = {
  match: async (key) => kept.has(key) ? new Response(kept.get(key)) : undefined,
  put: async (key, answer) => kept.set(key, new Uint8Array(await answer.arrayBuffer())),
  delete: async (key) => kept.delete(key),
};
globalThis.caches = { open: async () => store };
let came = 0;
const read = () => llama.read_part("models/a", given[0], () => came++);
const text = (bytes) => Buffer.from(bytes).toString("base64");
const whole = await read(), first = came;
const [key] = kept.keys(), changed = whole.slice();
changed[9] ^= 1;
const found = [];
for (const bytes of [whole, whole.slice(0, 100), changed]) {
  kept.set(key, bytes);
  came = 0;
  found.push([text(await read()) === text(whole), came > 0, text(kept.get(key)) === text(whole)]);
}
delete globalThis.caches;
return [first > 0, ...found];
"""


def test_a_kept_part_that_changed_is_fetched_again(call, folder):
    (part,) = about_of(folder, folder)["parts"]
    again = [True, True, True]
    assert call(KEPT, part) == [True, [True, False, True], again, again]
