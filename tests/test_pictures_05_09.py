"""Numbers that the pictures of 05 to 09 compute, and their widgets."""

import numpy as np
import pytest
import torch
from pytest import approx

import llamalib
from lessons import n05_attention as nb05
from lessons import n06_feed_forward as nb06
from lessons import n07_lm_head as nb07
from lessons import n08_sampling as nb08
from lessons import nG_speed as nbG
from lessons.theme import GROUPS
from llamalib import attention, attention_maps, next_token_probs
from tests.helpers import assert_follows, random_llama
from tests.test_pictures import drawn

PROMPT = "The capital of France is"


def encode(llama, text):
    return llama.tokenizer.encode(text, bos=True, eos=False)


@pytest.mark.parametrize("H, KV", [(6, 3), (8, 1), (4, 4), (20, 2)])
def test_heads_share_as_in_the_model(H, KV):
    q, k = torch.zeros(1, H, 1), torch.zeros(1, KV, 1)
    v = torch.arange(KV).float().view(1, KV, 1)  # says which one is read
    groups = attention(q, k, v)[0].long().tolist()  # of each query head
    (ax,) = nb05.sharing(H, {"": KV}).axes
    for h, (g, line) in enumerate(zip(groups, ax.lines, strict=True)):
        middle = np.mean([i for i in range(H) if groups[i] == g])
        assert line.get_xydata().tolist() == [[h, 1], [middle, 0]]
        assert line.get_color() == GROUPS[g]


@pytest.mark.parametrize("L, H", [(4, 2), (2, 4), (3, 3)])
def test_all_heads_are_in_their_places(L, H):
    """A frame lies around the head that its line in the legend names."""
    maps, marked = torch.rand(L, H, 5, 5), {"a": (L - 1, 0), "b": (1, H - 1)}
    (ax,) = nb05.all_heads(maps, marked, "").axes
    image, wide = ax.images[0].get_array(), L >= H
    assert image.shape == ((H * 6 + 1, L * 6 + 1) if wide else (13, 25))
    assert (ax.get_xlabel(), ax.get_ylabel()) == (
        ("layer", "head") if wide else ("head", "layer")
    )
    for layer, head in np.ndindex(L, H):
        x, y = (layer, head) if wide else (head, layer)
        found = image[1 + 6 * y : 6 + 6 * y, 1 + 6 * x : 6 + 6 * x]
        assert np.allclose(found, maps[layer, head])
        names = [
            patch.get_label()
            for patch in ax.patches
            if patch.contains_point(
                ax.transData.transform((6 * x + 3, 6 * y + 3))
            )
        ]
        assert names == [n for n, at in marked.items() if at == (layer, head)]


@pytest.mark.parametrize("size, batch, context", [(2, 1, 0), (0.5, 64, 1024)])
def test_the_widget_bounds_the_tokens_per_second(size, batch, context):
    llama = random_llama().to(torch.bfloat16)
    play = nbG.bound(llama)
    values = dict(size=size, bandwidth=500, batch=batch, context=context)
    (ax,) = drawn(play, **values)
    weights = sum(w.numel() for w in llama.parameters())
    cache = llamalib.KVCache(llama.config, 1, batch, dtype=torch.bfloat16)
    read = size * weights + cache.nbytes * context
    (dot,) = [line for line in ax.lines if line.get_marker() == "o"]
    expected = batch, pytest.approx(500e9 * batch / read)
    assert tuple(dot.get_xydata()[0]) == expected


# -- widgets ----------------------------------------------------------------

MAKE = {
    "heads": lambda llama: nb05.heads(llama, PROMPT, layer=3),
    "late_answer": lambda llama: nb06.late_answer(llama, PROMPT),
    "next_token": nb07.next_token,
    "sampling": lambda llama: nb08.sampling(llama, "Once there was a"),
}


@pytest.fixture(scope="module")
def plays(pocket):
    return {name: make(pocket) for name, make in MAKE.items()}


@pytest.mark.parametrize("name", MAKE)
def test_a_widget_follows_each_of_its_controls(plays, name):
    assert_follows(plays[name])


def test_heads_shows_the_head_that_is_chosen(plays, pocket):
    maps = attention_maps(pocket, torch.tensor(encode(pocket, PROMPT)))
    for layer, head, group in ((0, 0, "0 to 3"), (5, 7, "4 to 7")):
        ax = drawn(plays["heads"], layer=layer, head=head)[0]
        assert np.allclose(ax.images[0].get_array(), maps[layer, head])
        name = f"layer {layer}, head {head} · KV head {head // 4}, "
        name += f"shared by heads {group}"
        assert ax.get_title(loc="left") == name


def test_next_token_shows_the_models_probabilities(plays, pocket):
    long = "One, two, three, " * 60 + PROMPT
    ids = encode(pocket, long)
    cut = ids[:1] + ids[1 - nb07.LONGEST_PROMPT :]
    prompts = {p: encode(pocket, p) for p in (PROMPT, "")} | {long: cut}
    for prompt, ids_read in prompts.items():
        (ax,) = drawn(plays["next_token"], prompt=prompt, bars=5)
        found = [bar.get_width() for bar in ax.patches]
        probs = pocket(torch.tensor(ids_read))[-1].softmax(-1)
        assert found == approx(probs.topk(5).values.tolist(), abs=1e-6)
    assert f"its last 63 of {len(ids) - 1} tokens" in ax.get_title(loc="left")


@pytest.mark.parametrize(
    "temperature, k, p", [(1.0, 0, 1.0), (0.5, 5, 1.0), (2.0, 0, 0.6)]
)
def test_sampling_shows_the_distribution(plays, pocket, temperature, k, p):
    logits = pocket(torch.tensor(encode(pocket, "Once")))[-1]
    top, before = logits.topk(11).indices, logits.softmax(-1)
    after = next_token_probs(logits, temperature, k or None, p)
    values = dict(text="Once", temperature=temperature, k=k, p=p)
    axes = drawn(plays["sampling"], **values)
    for ax, probs in zip(axes, (before, after), strict=True):
        kept = [bar.get_width() for bar in ax.patches][12:]
        expected = [*probs[top].tolist(), 1 - probs[top].sum().item()]
        assert kept == approx(expected, abs=1e-5)
    axes = drawn(plays["sampling"], text="Once", temperature=0)
    assert [bar.get_width() for bar in axes[1].patches][12:] == [1] + [0] * 11


def test_sampling_runs_the_model_once_for_a_text(pocket):
    calls = []
    hook = pocket.register_forward_hook(lambda *args: calls.append(1))
    play = nb08.sampling(pocket, "Once")
    play.controls["temperature"].value = 1.5
    play.controls["k"].value = 7
    hook.remove()
    assert len(calls) == 1
