"""The widget of 04_rope: the numbers it draws are RoPE's."""

import math

import pytest
import torch
from helpers import random_llama, small_config, write_checkpoint
from matplotlib.text import Annotation

import llamalib
from llamalib import (
    apply_rotary_emb,
    precompute_freqs_cis,
    rms_norm,
    widgets,
)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rope") / "other"
    config = small_config(dim=48, n_layers=1, n_heads=6, n_kv_heads=3)
    write_checkpoint(folder, random_llama(config))
    return llamalib.load(folder, device="cpu", dtype=torch.float32)


def tips(fig):
    """Where the arrows of the circle end: before and after."""
    return [
        a.xy
        for a in fig.axes[0].texts
        if isinstance(a, Annotation) and a.arrowprops
    ]


@pytest.mark.parametrize("position, pair", [(0, 0), (5, 1), (4096, 3)])
def test_it_turns_as_rope_does(llama, position, pair):
    play = widgets.rotation(llama, "abc")
    fig = play.draw(position=position, pair=pair, theta=10_000)
    w, c = llama.state_dict(), llama.config
    last = llama.tokenizer.encode("abc", bos=True, eos=False)[-1]
    x = w["tok_embeddings.weight"][last]
    x = rms_norm(x, w["layers.0.attention_norm.weight"], c.norm_eps)
    query = (w["layers.0.attention.wq.weight"] @ x)[: c.head_dim]
    table = precompute_freqs_cis(c.head_dim, position + 1, 10_000.0)
    turned, _ = apply_rotary_emb(
        query[None, None], query[None, None], table[-1:]
    )
    before, after = tips(fig)
    at = slice(2 * pair, 2 * pair + 2)
    assert before == pytest.approx(query[at].tolist(), abs=1e-5)
    assert after == pytest.approx(turned[0, 0, at].tolist(), abs=1e-3)
    wave, dot = fig.axes[1].lines
    frequency = 10_000 ** (-2 * pair / c.head_dim)
    xs, ys = (torch.tensor(v) for v in wave.get_data())
    assert torch.allclose(ys, (xs * frequency).cos(), atol=1e-6)
    assert xs[0] <= position <= xs[-1]
    assert (xs[1:] - xs[:-1]).max() * frequency < 0.1  # a smooth curve
    assert dot.get_xdata()[0] == position
    assert dot.get_ydata()[0] == pytest.approx(math.cos(position * frequency))


def test_each_control_changes_the_picture(llama):
    play = widgets.rotation(llama, "abc")
    assert repr(play) == "Play(position=5, pair=1, theta=500000)"
    for name, value in (("position", 40), ("pair", 2), ("theta", 1000)):
        picture = play.picture.value
        play.controls[name].value = value
        assert play.picture.value != picture, name
    assert play.message.value == ""


def test_a_position_under_0_is_a_message(llama):
    play = widgets.rotation(llama, "abc")
    picture = play.picture.value
    play.controls["position"].min = -1
    play.controls["position"].value = -1
    assert "wanted 0 or more" in play.message.value
    assert play.picture.value == picture
