"""A model that others trained: SmolLM2-135M-Instruct, in ggml's four bits.

Its weights reach three models in ways of their own: ours by `load`, the
transformers library's by name, and formulas in float64.
"""

import random
import re
from types import SimpleNamespace

import gguf as ggml
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import llamalib
from lessons import texts
from llamalib.load import ROOT, describe
from llamalib.probe import attention_maps, record, text_loss
from tests.conftest import published
from tests.test_compiled import needs_compiler
from tests.test_huggingface import stream

L, D, H, KV, V = 30, 576, 9, 3, 49152
HD = D // H
THETA, EPS = 100_000.0, 1e-5
PROMPTS = [
    "The capital of France is",
    "Once upon a time, there was a little",
    "Water boils at a temperature of",
    "My favorite season of the year is",
    "In the morning, I like to drink",
    "The opposite of hot is",
    "A triangle has three sides, and a square has",
    "Photosynthesis is the process by which plants",
    "The sun rises in the east and",
    "She opened the door and saw",
]
PAGE = """\
The lighthouse stands on a rock at the end of the bay. For a hundred years \
a keeper lived there with his family, and every evening he climbed the 142 \
steps to light the lamp. In winter the waves were so high that no boat could \
land, and the family ate what they had stored in the autumn: potatoes, dried \
fish, flour and a few jars of honey.

In 1963 an electric lamp replaced the old one, and the last keeper moved to \
the village. "I don't miss the stairs," he told a reporter, "but I miss the \
silence after a storm." His daughter, who had learned to read in the tower, \
became a teacher. She still takes her pupils to the island each spring, \
shows them the empty rooms, and asks them to imagine a year without a shop, \
a school or a friend who lives next door. Most of them say that they would \
be bored. One girl said that she would write a book about the birds.
"""


@pytest.fixture(scope="module")
def reader(smollm2_file):
    return ggml.GGUFReader(smollm2_file)


@pytest.fixture(scope="module")
def numbers(reader):
    """Return the tensors by ggml's names, as ggml's package reads them."""
    return {
        each.name.removesuffix(".weight"): torch.from_numpy(
            np.array(ggml.dequantize(each.data, each.tensor_type))
        )
        for each in reader.tensors
    }


@pytest.fixture(scope="module")
def llama(smollm2_file):
    """Return our model, in float32 on the CPU."""
    return llamalib.load(smollm2_file, device="cpu", dtype=torch.float32)


@pytest.fixture(scope="module")
def prompts(llama):
    return [encode(llama, prompt) for prompt in PROMPTS]


@pytest.fixture(scope="module")
def page(llama):
    return torch.tensor(encode(llama, PAGE))


def encode(llama, text):
    return llama.tokenizer.encode(text, bos=True, eos=False)


# -- numbers -----------------------------------------------------------------

THEIRS = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


@pytest.fixture(scope="module")
def theirs(numbers):
    """Return the transformers library's model, in float32."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=V,
        hidden_size=D,
        intermediate_size=1536,
        num_hidden_layers=L,
        num_attention_heads=H,
        num_key_value_heads=KV,
        rms_norm_eps=EPS,
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )
    state = {}
    for name, w in numbers.items():
        *block, stem = name.removeprefix("blk.").split(".")
        if stem in ("attn_q", "attn_k"):  # a head's pairs become halves
            heads = w.view(-1, HD, D)
            w = torch.cat([heads[:, 0::2], heads[:, 1::2]], 1).view(-1, D)
        at = f"layers.{block[0]}." if block else ""
        state[f"model.{at}{THEIRS[stem]}.weight"] = w
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model = LlamaForCausalLM(config)
    model.load_state_dict(state)
    return model.eval().requires_grad_(False)


def logits_in_64_bits(numbers, tokens):
    """Return the logits (B, T, V) of tokens (B, T), in float64 throughout."""
    T = tokens.shape[1]
    pair, position = torch.arange(HD // 2).double(), torch.arange(T).double()
    angle = torch.outer(position, THETA ** (-2 * pair / HD))  # (T, hd/2)
    cos, sin = angle.cos(), angle.sin()
    later = torch.ones(T, T).triu(1).bool()

    def times(x, name):
        return x @ numbers[name].double().T

    def norm(x, name):
        rms = (x.square().mean(-1, keepdim=True) + EPS).sqrt()
        return x / rms * numbers[name].double()

    def heads(x, name):
        return times(x, name).unflatten(-1, (-1, HD)).transpose(1, 2)

    def rotated(x):
        a, b = x[..., 0::2], x[..., 1::2]
        pairs = torch.stack([a * cos - b * sin, a * sin + b * cos], -1)
        return pairs.flatten(-2)

    x = numbers["token_embd"].double()[tokens]  # (B, T, D)
    for i in range(L):
        h = norm(x, f"blk.{i}.attn_norm")
        q = rotated(heads(h, f"blk.{i}.attn_q"))  # (B, H, T, hd)
        k = rotated(heads(h, f"blk.{i}.attn_k")).repeat_interleave(H // KV, 1)
        v = heads(h, f"blk.{i}.attn_v").repeat_interleave(H // KV, 1)
        scores = (q @ k.mT / HD**0.5).masked_fill(later, -torch.inf)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        x = x + times(mixed, f"blk.{i}.attn_output")
        h = norm(x, f"blk.{i}.ffn_norm")
        gate, up = times(h, f"blk.{i}.ffn_gate"), times(h, f"blk.{i}.ffn_up")
        x = x + times(gate * gate.sigmoid() * up, f"blk.{i}.ffn_down")
    return times(norm(x, "output_norm"), "token_embd")


def padded(rows, at_the_end=True):
    """Return ids (B, T), padded by zeros, and where there are ids."""
    T = max(map(len, rows))
    tokens, there = torch.zeros(2, len(rows), T, dtype=torch.int64)
    for ids, row, mark in zip(rows, tokens, there):
        where = slice(len(ids)) if at_the_end else slice(T - len(ids), T)
        row[where], mark[where] = torch.tensor(ids), 1
    return tokens, there


@torch.no_grad()
def test_logits(llama, theirs, numbers, prompts):
    """Each is as far from float64 as float32 rounds, and ours no farther."""
    tokens, _ = padded(prompts)  # no token sees what comes after it
    exact = logits_in_64_bits(numbers, tokens)

    def distances(logits):
        return [
            ((a - b)[: len(ids)].norm() / b[: len(ids)].norm()).item()
            for a, b, ids in zip(logits, exact, prompts)
        ]

    ours = distances(llama(tokens))
    theirs = distances(theirs(tokens).logits)
    assert max(ours) < 5e-6 and max(theirs) < 5e-6
    assert sum(ours) < 1.25 * sum(theirs)


@torch.no_grad()
def test_greedy(llama, theirs, prompts):
    """Eight ids of each prompt; no two best logits are within 0.002."""
    found = llamalib.generate_batch(llama, prompts, max_new_tokens=8, stop=())
    tokens, mask = padded(prompts, at_the_end=False)
    right = theirs.generate(
        tokens,
        attention_mask=mask,
        max_new_tokens=8,
        do_sample=False,
        pad_token_id=0,
    )
    assert found == right[:, tokens.shape[1] :].tolist()
    text = llama.tokenizer.decode(found[0])
    assert text.startswith(" Paris.")


def test_what_it_is(llama):
    said = (
        "SmolLM2-135M-Instruct.Q4_1: L=30, D=576, H=9, KV=3, F=1536, V=49152"
    )
    assert describe(llama).startswith(said)
    assert llama.config.rope_theta == THETA and llama.config.norm_eps == EPS
    assert llama.tied and llama.config.context_length == 8192
    assert sum(p.numel() for p in llama.parameters()) == 134_515_008


@pytest.fixture(scope="module")
def exact(llama, page):
    """Return the loss and the log-probabilities of the page, unrounded."""
    return text_loss(llama, PAGE), llama(page).log_softmax(-1)


@pytest.mark.parametrize(
    "how, cost, low, high",
    [
        (dict(dtype=torch.bfloat16), 0.01, 0, 0.002),
        (dict(quantize="int8"), 0.02, 0.003, 0.007),
        (dict(quantize="int4"), 0.4, 0.3, 0.43),
    ],
    ids=["bfloat16", "int8", "int4"],
)
@torch.no_grad()
def test_fewer_bits(smollm2_file, page, exact, how, cost, low, high):
    """The loss changes by what they cost, and so do the predictions."""
    found = llamalib.load(smollm2_file, device="cpu", **how)
    (loss, log_p), log_q = exact, found(page).log_softmax(-1)
    assert abs(text_loss(found, PAGE) - loss) < cost
    nats = F.kl_div(log_q, log_p, reduction="batchmean", log_target=True)
    assert low < nats < high


# -- tokens ------------------------------------------------------------------


@pytest.fixture(scope="module")
def facts(reader):
    names = "tokens", "merges", "token_type"
    return SimpleNamespace(
        **{n: reader.fields[f"tokenizer.ggml.{n}"].contents() for n in names}
    )


@pytest.fixture(scope="module")
def library(facts):
    """Return the tokenizer that the `tokenizers` library makes of the file."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    merges = [tuple(pair.split(" ")) for pair in facts.merges]
    vocab = {token: i for i, token in enumerate(facts.tokens)}
    found = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    found.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    found.decoder = decoders.ByteLevel()
    return found


PIECES = (
    "the, Llama's, I'LL, don't, DON'T, we've, WE'VE, 's, 'S, it’s, naïve, "
    "Straße, façade, Ελλάδα, Москва, 東京, 日本語, हिन्दी, שלום, ١٢٣, ½, x², Ⅷ, 五, "
    "0, 7, 12, 1945, 3.14, 1,000,000, 0x1F, -5, 10%, 2nd, 🙂, 👩‍👩‍👧, 🇫🇷, 👍🏽, ❤️, "
    "…, —, ???, !!, (), [], {}, ==, ->, //, #, @x, _name, __init__, a_b1, def, "
    "return x, if(y):, <|im_end|>, e\u0301, \u200d, \u00a0, \u3000, ', '1s, \\"
).split(", ")
SPACES = ["", "", "", " ", " ", " ", "  ", "   ", "\t", "\t\t", " \n", "\r\n"]


def lines_of_all_kinds():
    """Return 300 random lines, and 300 of the project's."""
    r = random.Random(0)
    made = [
        "".join(
            r.choice(each)
            for _ in range(r.randint(1, 12))
            for each in (SPACES, PIECES)
        )
        + r.choice(SPACES)
        for _ in range(300)
    ]
    files = ROOT / "README.md", ROOT / "data/README.md", ROOT / "Makefile"
    files += tuple(sorted((ROOT / "llamalib").glob("*.py")))
    written = {
        line
        for file in files
        for line in file.read_text(encoding="utf-8").splitlines()
    }
    return made + r.sample(sorted(written), 300)


def compare(tokenizer, library, lines):
    """Assert that ids are the library's, and that they give the text back."""
    for line in lines:
        ids = tokenizer.encode(line, bos=False, eos=False)
        assert ids == library.encode(line).ids, line
        assert tokenizer.decode(ids) == stream(tokenizer, ids) == line


def test_ids_of_lines(llama, library):
    lines = lines_of_all_kinds()
    assert len(set(lines)) > 500
    compare(llama.tokenizer, library, lines)


def test_ids_of_shakespeare(llama, library):
    text = published("TINYSHAKESPEARE").read_text(encoding="utf-8")
    compare(llama.tokenizer, library, text.splitlines(keepends=True))


def test_a_rank_is_an_id(facts, library):
    """So tiktoken, which knows no merges, does the same as they do.

    It joins two tokens if what they make is a token. Merge i makes the i-th
    token of several letters, and a token's own letters become that token: its
    last merge is its only one, so no other two tokens ever stand for it.
    """
    several = [
        t for t, kind in zip(facts.tokens, facts.token_type) if kind == 1
    ]
    several = [token for token in several if len(token) > 1]
    assert len(several) == 48_900
    assert [pair.replace(" ", "") for pair in facts.merges] == several
    for token in several:
        assert [part.value for part in library.model.tokenize(token)] == [
            token
        ]


def test_a_byte_without_a_token(llama):
    missing = [*b"\x04\x06\x13\x14\x16\x1d\xc0\xc1"]
    missing += [0xF1, 0xF2, *range(0xF5, 0x100)]
    for b in range(256):
        try:
            text = bytes([b]).decode()
        except UnicodeDecodeError:
            continue
        if b not in missing:
            assert llama.tokenizer.encode(text, bos=False, eos=False)
            continue
        said = f"no token for the byte 0x{b:02X}, which is in {f'a{text}b'!r}"
        with pytest.raises(ValueError, match=re.escape(said)):
            llama.tokenizer.encode(f"a{text}b", bos=False, eos=False)
    with pytest.raises(ValueError, match="no token for the byte 0xF1"):
        llama.tokenizer.encode("\U00040000", bos=False, eos=False)


# -- llama.cpp ---------------------------------------------------------------


@pytest.fixture(scope="module")
def cpp(smollm2_file):
    lib = pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")
    how = dict(n_ctx=512, logits_all=True, verbose=False)
    return lib.Llama(str(smollm2_file), **how)


def test_llama_cpps_ids(llama, cpp):
    for line in lines_of_all_kinds():
        ids = llama.tokenizer.encode(line, bos=False, eos=False)
        found = cpp.tokenize(line.encode(), add_bos=False, special=False)
        assert found == ids, line


@torch.no_grad()
def test_llama_cpps_choices(llama, cpp, prompts):
    """It rounds activations to eight bits, which decides near ties."""
    n, prompts, same = 60, prompts, 0
    rows = llamalib.generate_batch(llama, prompts, max_new_tokens=n, stop=())
    for prompt, ids in zip(prompts, rows):
        read = [*prompt, *ids[:-1]]
        cpp.reset()
        cpp.eval(read)
        theirs = torch.tensor(cpp.scores[len(read) - n : len(read)]).argmax(-1)
        logits = llama(torch.tensor(read))[-n:]  # (n, V)
        theirs_in_ours = logits.gather(1, theirs[:, None])
        assert (logits.amax(1) - theirs_in_ours[:, 0]).max() < 0.5
        same += (theirs == torch.tensor(ids)).sum()
    assert same > 0.9 * n * len(rows)


# -- everything else that runs a model ---------------------------------------


@torch.no_grad()
def test_the_cache(llama, page):
    """In chunks, and one by one, the logits are those of the whole."""
    page = page[:16]
    whole = llama(page)  # (T, V)
    for sizes in ([5, 1, 7, 3], [1] * 16):
        cache = llamalib.KVCache(llama.config, 16)
        parts = page.split(sizes)
        found = torch.cat([llama(part[None], cache)[0] for part in parts])
        assert (found - whole).abs().max() < 1e-3


def test_a_batch_is_rows_of_their_own(llama, prompts):
    how = dict(max_new_tokens=5, stop=())
    found = llamalib.generate_batch(llama, prompts[:3], **how)
    assert [len(ids) for ids in prompts[:3]] == [5, 9, 6]
    for prompt, ids in zip(prompts, found):
        assert list(llamalib.generate(llama, prompt, **how)) == ids


@needs_compiler
@pytest.mark.parametrize(
    "stance", ["force_eager", pytest.param("default", marks=pytest.mark.slow)]
)
def test_compiled(llama, prompts, tmp_path, monkeypatch, stance):
    """The step as it is written; and compiled, which takes half a minute."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    how = dict(max_new_tokens=5, stop=())
    with torch.compiler.set_stance(stance):
        for prompt in prompts[:2]:
            found = llamalib.generate(llama, prompt, compile=True, **how)
            assert list(found) == list(llamalib.generate(llama, prompt, **how))


def test_record(llama, page):
    """Block 11 makes the first token's vector huge, and no other's."""
    seen = record(llama, page[:60])
    assert len(seen) == 6 * L
    assert {tuple(each.shape) for each in seen.values()} == {(60, D)}
    stream = [seen[f"layers.{i}.out"].norm(dim=-1) for i in range(L)]
    assert stream[10][0] < 1000 < 20_000 < stream[11][0] < 30_000
    assert stream[11][1:].max() < 1000
    x = seen["layers.29.out"]
    logits = F.linear(llama.norm(x), llama.output.weight)
    with torch.no_grad():
        assert (logits - llama(page[:60])).abs().max() < 1e-3


def test_attention_maps(llama, page):
    """Later blocks give the first token more than half of their weight."""
    maps = attention_maps(llama, page[:60])
    assert maps.shape == (L, H, 60, 60) and maps.min() >= 0
    assert (maps.sum(-1) - 1).abs().max() < 1e-5
    assert not maps.triu(1).any()
    first = maps[12:, :, 1:, 0].mean()
    assert first > 0.5


OTHER_TEXTS = {
    "code": "def count_words(text):\n    words = text.split()\n    counts = {}\n"
    "    for word in words:\n        counts[word] = counts.get(word, 0) + 1\n"
    "    return counts\n",
    "a dialogue": "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n"
    "<|im_start|>assistant\nThe capital of France is Paris.<|im_end|>\n",
    "German": "Die Uhr stand am Ende der Gasse in einem schmalen Haus. Jeden "
    "Tag kamen die Kinder nach der Schule und fragten, wie spät es sei.",
}


@pytest.mark.parametrize("kind", OTHER_TEXTS)
def test_one_number_holds_the_model(llama, kind):
    """As notebook 03 says, on other texts than its own."""

    def at_zero(module, args, out):
        out = out.clone()
        assert out[:, 0, 507] > 15_000
        out[:, 0, 507] = 0
        return out

    usual = text_loss(llama, OTHER_TEXTS[kind])
    with llama.layers[11].register_forward_hook(at_zero):
        assert text_loss(llama, OTHER_TEXTS[kind]) > usual + 8


def test_half_made_sinks(llama):
    """As notebook 05 says: without the mask a list has them, a story none."""

    def numbers(text, mask):
        """Return feature 507 of each token after block 11."""
        tokens = torch.tensor(encode(llama, text))
        with llamalib.replaced(causal_mask=mask):
            return record(llama, tokens)["layers.11.out"][:, 507]

    def no_mask(T, S=None, device=None):
        return torch.zeros(T, T)

    def first_alone(T, S=None, device=None):
        mask = torch.zeros(T, T)
        mask[0, 1:] = -torch.inf
        return mask

    words = 3 * "rope apple ladder cup blanket bell crow\n"
    half = numbers(words, no_mask)
    assert ((half > 600) & (half < 5000)).sum() >= len(half) - 2
    first, *others = numbers(words, first_alone)
    assert first > 15_000 and max(others) < 500
    assert numbers(texts.page()[:600], no_mask).max() < 200
