import time

import matplotlib
import pytest
import torch
from helpers import random_llama, small_config

from llamalib.viz import nbC as plots
from llamalib.viz import nbC as widgets
from llamalib.experts import route
from llamalib.model import transformer_block

TEXT = "The capital of France is Paris. 2 + 3 = 5"
E = 8


@pytest.fixture(scope="module")
def runs(pocket):
    """Two runs of three stages each, on two layers."""
    g = torch.Generator().manual_seed(0)
    shape = 3, E, pocket.config.dim
    return {
        f"run {layer}": (layer, [0, 5, 10], torch.randn(shape, generator=g))
        for layer in (1, 4)
    }


@pytest.fixture
def play(pocket, runs):
    return widgets.routing(pocket, runs, TEXT, 2)


def inputs_by_hand(llama, text, layer):
    """What a layer's network is given, from the blocks and their halves."""
    ids = llama.tokenizer.encode(text, bos=True, eos=False)
    w, T = llama.weights(), len(ids)
    freqs_cis = llama.freqs_cis_for(0, T)
    mask = torch.full((T, T), -torch.inf).triu(1)
    x = w["tok_embeddings.weight"][ids]
    for i in range(layer):
        x = transformer_block(x, w, i, freqs_cis, mask, llama.config)
    silent = dict(w)  # a network that adds nothing leaves attention's sum
    name = f"layers.{layer}.feed_forward.w2.weight"
    silent[name] = torch.zeros_like(w[name])
    h = transformer_block(x, silent, layer, freqs_cis, mask, llama.config)
    gamma = w[f"layers.{layer}.ffn_norm.weight"]
    scale = (h.square().mean(-1, keepdim=True) + llama.config.norm_eps).rsqrt()
    return h * scale * gamma


def drawn(play, **values):
    """Colours of the boxes, and the heights of the bars."""
    settings = {name: c.value for name, c in play.controls.items()} | values
    fig = play.draw(**settings)
    words, bars = fig.axes
    colours = [
        matplotlib.colors.to_hex(b.get_facecolor()) for b in words.patches
    ]
    heights = [bar.get_height() for bar in bars.patches]
    return fig, colours, heights


def test_opens_with_the_last_stage_of_the_first_run(play):
    assert repr(play) == f"Play(text={TEXT!r}, run='run 1', stage=2)"
    assert play.picture.value and not play.message.value
    assert play.controls["stage"].max == 2


@pytest.mark.parametrize("run, stage", [("run 1", 0), ("run 4", 2)])
def test_colours_and_loads_are_the_routers(pocket, runs, play, run, stage):
    layer, _, routers = runs[run]
    x = inputs_by_hand(pocket, TEXT, layer)
    _, chosen, _ = route(x, routers[stage], 2)
    fig, colours, heights = drawn(play, run=run, stage=stage)
    wanted = [plots.expert_colour(e).lower() for e in chosen[:, 0].tolist()]
    assert colours == wanted and len(set(wanted)) > 2
    loads = torch.bincount(chosen.flatten(), minlength=E) / chosen.numel()
    assert heights == pytest.approx(loads.tolist())
    said = fig.axes[0].texts[0].get_text()
    assert said == f"{run}, after {5 * stage} of 10 steps"


def test_controls_change_the_picture(play):
    seen = {bytes(play.picture.value)}
    for name, value in (("run", "run 4"), ("stage", 0), ("text", "One, two")):
        play.controls[name].value = value
        assert not play.message.value
        seen.add(bytes(play.picture.value))
    assert len(seen) == 4


def test_long_and_empty_texts(pocket, runs, play):
    long = "a b c " * 200
    _, colours, heights = drawn(play, text=long)
    assert len(colours) == widgets.MOST_ROUTED
    x = inputs_by_hand(pocket, long, 1)[: widgets.MOST_ROUTED]
    _, chosen, _ = route(x, runs["run 1"][2][2], 2)
    loads = torch.bincount(chosen.flatten(), minlength=E) / chosen.numel()
    assert heights == pytest.approx(loads.tolist())
    _, colours, _ = drawn(play, text="")
    assert len(colours) == 1  # <|begin_of_text|>


def test_answers_at_once(play):
    start = time.perf_counter()
    play.controls["stage"].value = 1
    play.controls["run"].value = "run 4"
    assert time.perf_counter() - start < 2  # 0.4 s where nothing else runs


def test_runs_have_as_many_stages(pocket, runs):
    layer, steps, routers = runs["run 1"]
    other = {"short": (layer, steps[:2], routers[:2])}
    with pytest.raises(ValueError, match=r"the runs have \[2, 3\] stages"):
        widgets.routing(pocket, runs | other, TEXT, 2)


def test_the_models_function_is_put_back(pocket, runs):
    import llamalib

    before = llamalib.feed_forward
    widgets.routing(pocket, runs, "One", 2)
    assert llamalib.model.feed_forward is before is widgets.feed_forward


def test_other_proportions(pocket):
    llama = random_llama(small_config(n_layers=1, vocab_size=3328))
    llama.tokenizer = pocket.tokenizer
    routers = torch.randn(2, 4, llama.config.dim)
    play = widgets.routing(llama, {"a": (0, [0, 1], routers)}, "One day", 1)
    assert len(drawn(play)[2]) == 4
