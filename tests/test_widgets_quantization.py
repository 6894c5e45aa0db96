import torch
from helpers import random_llama, small_config

from llamalib import quantization, widgets


def kept(play, **values):
    shown = {name: c.value for name, c in play.controls.items()}
    left, _ = play.draw(**shown | values).axes
    lines = {line.get_label(): line.get_ydata() for line in left.lines}
    return torch.as_tensor(lines["kept"])


def test_shows_what_is_kept(pocket):
    play = widgets.quantization(pocket)
    name = "layers.3.feed_forward.w2.weight"
    w = pocket.weights()[name][:1].detach()
    by_row = quantization.dequantize_rows(*quantization.quantize_rows(w))
    found = kept(play, name=name, bits=8, g=0)
    assert torch.allclose(found, by_row[0, : len(found)])
    by_group = quantization.dequantize_groups(*quantization.quantize_groups(w))
    found = kept(play, name=name, bits=4, g=32)
    assert torch.allclose(found, by_group[0, : len(found)])
    assert len(set(kept(play, name=name, bits=2, g=0).tolist())) <= 3


def test_every_matrix_can_be_chosen(pocket):
    play = widgets.quantization(pocket)
    matrices = {n for n, w in pocket.weights().items() if w.dim() == 2}
    assert set(play.controls["name"].options) == matrices
    assert "bits=4" in repr(play)
    before = play.picture.value
    play.controls["bits"].value = 3
    assert play.picture.value != before and not play.message.value


def test_a_group_that_does_not_fit():
    config = small_config(dim=48, n_heads=6, n_kv_heads=3)
    play = widgets.quantization(random_llama(config))
    for _, g in play.controls["g"].options:
        assert kept(play, g=g).isfinite().all()
