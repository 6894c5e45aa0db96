"""Numbers that the pictures of 00 to 04 compute, and their widgets."""

import cmath
import math
from unittest.mock import patch

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from matplotlib.text import Annotation
from torch import Tensor

from lessons import n00_initialization as nb00
from lessons import n01_tokenize as nb01
from lessons import n02_embed as nb02
from lessons import n03_rmsnorm as nb03
from lessons import n04_rope as nb04
from lessons.theme import visible
from llamalib import (
    RMSNorm,
    Tokenizer,
    apply_rotary_emb,
    precompute_freqs_cis,
    rms_norm,
    text_loss,
)
from tests.helpers import assert_follows, random_llama, small_ranks
from tests.test_pictures import drawn, texts

MAKE = {
    "silenced": (nb00.silenced, ("The capital of France is",)),
    "tokens": (nb01.tokens, ("Hello <|eot_id|>",)),
    "nearest": (nb02.nearest, ()),
    "rotation": (nb04.rotation, ()),
}


@pytest.fixture(scope="module")
def plays(pocket):
    return {name: make(pocket, *more) for name, (make, more) in MAKE.items()}


@pytest.mark.parametrize("name", MAKE)
def test_a_widget_follows_each_of_its_controls(plays, name):
    assert_follows(plays[name])


# -- 01 ---------------------------------------------------------------------


def shown(play, text, **values):
    """Return the texts of the picture of a text's tokens."""
    return texts(drawn(play, text=text, **values)[0].texts)


def test_tokens_show_text_id_and_bytes(pocket, plays):
    t, text = pocket.tokenizer, "The capital é水"
    title, *found = shown(plays["tokens"], text)
    ids = t.encode(text, bos=False, eos=False)
    assert title.startswith(f"14 characters · 17 bytes · {len(ids)} tokens")
    n = len(ids)
    assert found[:2] == ["The", "␣capital"]
    assert found[n::2] == [str(i) for i in ids]
    assert bytes.fromhex("".join(found[n + 1 :: 2])) == text.encode()
    assert "special" not in shown(plays["tokens"], "a<|eot_id|>")
    found = shown(plays["tokens"], "a<|eot_id|>", special=True)
    assert "<|eot_id|>" in found and found[-1] == "special"


@pytest.mark.parametrize("text", ["", " ", "\n\n", "$", "a" * 100_000])
def test_texts_of_all_kinds(plays, text):
    found = shown(plays["tokens"], text)
    assert ("no tokens" in found[0]) == (not text)
    assert found[-1].endswith("more tokens, not drawn") == (len(text) > 9)


# -- 02 ---------------------------------------------------------------------


@pytest.mark.parametrize("centre", [False, True])
def test_nearest_draws_the_largest_cosines(pocket, plays, centre):
    W = pocket.tok_embeddings.weight
    (i,) = pocket.tokenizer.encode(" Monday", bos=False, eos=False)
    rows = W - W.mean(0) if centre else W
    expected = F.cosine_similarity(rows, rows[i][None]).topk(13)
    play = plays["nearest"]
    ax, crowd = drawn(play, token=" Monday", centre=centre)
    widths = [bar.get_width() for bar in ax.patches]
    # the first is the token itself, which is not drawn
    assert widths == pytest.approx(expected.values[1:].tolist(), abs=1e-5)
    names = [pocket.tokenizer.decode([j]) for j in expected.indices.tolist()]
    labels = texts(ax.get_yticklabels())
    assert labels == [visible(name) for name in names[1:]]
    assert crowd.patches[0].get_data().values.sum() == len(W) - 1


def test_nearest_says_why_a_text_is_no_token(pocket, plays):
    ids = pocket.tokenizer.encode(" Mira", bos=False, eos=False)
    V = pocket.config.vocab_size
    for text, message in (
        (" Mira", rf"{len(ids)} tokens, not one: .*#{ids[-1]}\)"),
        ("", "0 tokens, not one: none"),
        (f"#{V}", f"id {V} is not in the vocabulary; expected 0 to {V - 1}"),
    ):
        with pytest.raises(ValueError, match=message):
            drawn(plays["nearest"], token=text)


def test_nearest_on_another_tokenizer_and_a_row_of_zeros():
    llama = random_llama()
    llama.tokenizer = Tokenizer(small_ranks())
    llama.tok_embeddings.weight[7] = 0
    play = nb02.nearest(llama, " France")
    assert play.controls["token"].value == "e"  # the last of several tokens
    _, crowd = drawn(play, token="#7")
    counts = crowd.patches[0].get_data().values
    assert counts.sum() == llama.config.vocab_size - 1


# -- 03 ---------------------------------------------------------------------


def test_the_widget_normalizes_the_chosen_vectors():
    stream = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0))
    play = nb03.norm(1000 * stream, list("abcde"), 1)
    first, first_norm, other, other_norm = drawn(play, block=2, token=3)
    for (raw, normed), token in (
        ((first, first_norm), 0),
        ((other, other_norm), 3),
    ):
        x = 1000 * stream[2, token]
        for ax, expected in (
            (raw, x),
            (normed, F.rms_norm(x, (8,), eps=1e-5)),
        ):
            assert np.allclose(heights(ax), expected, rtol=1e-4)
            low, high = ax.get_ylim()
            assert max(abs(expected)) < high == -low
    assert first_norm.get_ylim() == other_norm.get_ylim()


def heights(ax):
    """Return the other ends of vertical lines that begin at 0."""
    (lines,) = ax.collections
    ends = [segment[:, 1] for segment in lines.get_segments()]
    assert all(start == 0 for start, _ in ends)
    return [end for _, end in ends]


def partial(x, weight, eps, k):
    square = x[..., :k].pow(2).mean(-1, keepdim=True)
    return x * torch.rsqrt(square + eps) * weight


@pytest.mark.parametrize("kind", [lambda y: y, Tensor.numpy, Tensor.tolist])
def test_the_check_runs_the_model_on_the_answer(pocket, kind):
    """With k = D, the loss is the model's own; with k = 1 it is not."""
    text, D = "The capital of France is Paris.", pocket.config.dim
    norms = [m for m in pocket.modules() if isinstance(m, RMSNorm)]

    def answer(*given):
        return kind(partial(*given))

    verdict, words = nb03.check_2.verdict(answer, norms, pocket, D - 1, text)
    usual = f"loss {text_loss(pocket, text):.1f}"
    assert verdict and words.endswith(f"with k = {D}: {usual}")
    _, words = nb03.check_2.verdict(answer, norms[3:], pocket, 0, text)
    assert words.startswith("with k = 0: loss") and usual not in words
    assert f"loss {text_loss(pocket, text):.1f}" == usual  # no hook is left


# -- 04 ---------------------------------------------------------------------


def tips(ax):
    """Return the tips of the arrows, from where they begin."""
    arrows = [a for a in ax.texts if isinstance(a, Annotation)]
    return [np.subtract(a.xy, a.xyann) for a in arrows if a.arrowprops]


def block_0(llama, text):
    """Return queries (T, H, hd) and keys (T, KV, hd), by the formulas."""
    w, c = llama.state_dict(), llama.config
    ids = llama.tokenizer.encode(text, bos=True, eos=False)
    x = w["tok_embeddings.weight"][ids]
    x = rms_norm(x, w["layers.0.attention_norm.weight"], c.norm_eps)
    weights = (w[f"layers.0.attention.w{name}.weight"] for name in "qk")
    return [(x @ each.T).unflatten(-1, (-1, c.head_dim)) for each in weights]


@pytest.mark.parametrize(
    "position, distance, pair", [(0, 0, 0), (5, 2, 1), (64, 64, 9), (9, 1, 15)]
)
def test_the_widget_rotates_as_rope_does(pocket, position, distance, pair):
    play, c = nb04.rotation(pocket, "a b c"), pocket.config
    now = dict(position=position, distance=distance, pair=pair)
    plane, along = drawn(play, **now)
    xq, xk = block_0(pocket, "a b c")
    q, k = xq[-1, 0], xk[-2, 0]  # of the last token, and of the one before
    table = precompute_freqs_cis(
        c.head_dim, 129, c.rope_theta, c.scaling_factor
    )
    two = slice(2 * pair, 2 * pair + 2)

    def at(x, m):
        x = x[None, None]
        return apply_rotary_emb(x, x, table[m : m + 1])[0][0, 0, two]

    arrows = at(q, position + distance), at(k, position)
    for tip, vector in zip(tips(plane), arrows, strict=True):
        assert tip == pytest.approx((vector / vector.norm()).numpy(), abs=1e-3)
    scores, dot = along.lines
    expected = [(at(q, d) @ k[two]).item() for d in range(65)]
    assert scores.get_ydata() == pytest.approx(expected, abs=1e-3)
    assert dot.get_xydata()[0].tolist() == [
        distance,
        scores.get_ydata()[distance],
    ]


def test_dragging_the_position_rotates_and_keeps_the_score(pocket):
    """Each step is seen, and no step is more than a small angle."""
    play = nb04.rotation(pocket)
    assert play.controls["position"].max == 64
    before, seen = None, set()
    for n in range(10):
        plane, along = drawn(play, position=n)
        q, k = (complex(*tip) for tip in tips(plane))
        if before is not None:
            step = math.degrees(cmath.phase(q / before))
            assert 2 < step < 12
        before = q
        seen.add((round(cmath.phase(k / q), 3), along.lines[1].get_ydata()[0]))
    assert len(seen) == 1  # the angle between them, the score


def test_what_the_heads_of_04_get_is_what_the_model_computes(pocket):
    tokens = torch.tensor(
        pocket.tokenizer.encode("a b c", bos=True, eos=False)
    )
    before, after = nb04.queries_and_keys(pocket, tokens)
    c, T = pocket.config, len(tokens)
    assert len(before) == len(after) == c.n_layers
    table = precompute_freqs_cis(c.head_dim, T, c.rope_theta, c.scaling_factor)
    for found, expected in zip(
        before[0], block_0(pocket, "a b c"), strict=True
    ):
        assert torch.allclose(found, expected, atol=1e-5)
    expected = apply_rotary_emb(*before[-1], table)
    assert all(map(torch.equal, after[-1], expected))
    scores = nb04.each_head(lambda q, k: (q[-1] * k[0]).sum(), before)
    assert scores.shape == (c.n_layers, c.n_heads)
    q, k = before[2]
    for head, shared in ((1, 0), (7, 1)):  # eight heads, two keys
        assert torch.allclose(scores[2, head], q[-1, head] @ k[0, shared])


def test_the_head_that_looks_back(pocket, capsys):
    """A model whose every head gives all tokens the same weight, but one."""
    ids = pocket.tokenizer.encode("The capital of", bos=True, eos=False)
    maps = torch.full((6, 8, 20, 20), 0.05)
    maps[4, 3].diagonal(-1).fill_(0.9)
    with patch.object(nb04, "attention_maps", lambda llama, tokens: maps):
        assert nb04.looks_back(pocket, torch.arange(20), ids) == (4, 3)
    said = capsys.readouterr().out.split("\n\n")
    assert said[0] == "block 4, head 3"
    name, *lines = said[1].splitlines()
    assert name == "as written"
    assert [line.split() for line in lines] == [
        ["'", "capital'", "looks", "at", "'The'", "90%"],
        ["'", "of'", "looks", "at", "'", "capital'", "90%"],
    ]
    name, *lines = said[2].splitlines()
    assert name == "backwards"
    assert [line.split() for line in lines] == [
        ["'", "capital'", "looks", "at", "'", "of'", "90%"],
        ["'The'", "looks", "at", "'", "capital'", "90%"],
    ]
