import pytest
import torch
from helpers import random_llama, small_config

from llamalib.viz import nb00 as widgets


def test_a_card_shows_the_tensor(pocket):
    play = widgets.tensors(pocket)
    weights = pocket.weights()
    assert list(play.controls["name"].options) == list(weights)
    for name in ("layers.1.attention.wk.weight", "norm.weight"):
        weight = weights[name]
        ax, side = play.draw(name, False).axes
        drawn = ax.patches[0].get_data()
        assert sum(drawn.values) == weight.numel()  # none is left out
        low, high = (end.item() for end in weight.aminmax())
        assert drawn.edges[0] == pytest.approx(low)
        assert drawn.edges[-1] == pytest.approx(high)
        first, shape, figures = ax.get_title(loc="left").split("\n")
        assert first == name
        total = sum(p.numel() for p in pocket.parameters())
        share = 100 * weight.numel() / total
        sizes = " × ".join(str(size) for size in weight.shape)
        wanted = f"{sizes} float32, {share:.3g} % of the parameters"
        assert shape == wanted
        std = weight.std(correction=0)
        mean = f"{weight.mean():.4f}".replace("-0.0000", "0.0000")
        assert f"mean {mean}, std {std:.4f}," in figures
        assert f"from {low:.3f} to {high:.3f}" in figures
        spreads = [
            weights[f"layers.{i}.attention.wk.weight"].std(correction=0)
            for i in range(6 if name.startswith("layers") else 0)
        ]
        heights = [bar.get_height() for bar in side.patches]
        assert heights == pytest.approx([s.item() for s in spreads])


def test_controls_change_the_picture(pocket):
    play = widgets.tensors(pocket)
    seen = {play.picture.value}
    play.controls["name"].value = "layers.3.feed_forward.w2.weight"
    seen.add(play.picture.value)
    play.controls["log"].value = True
    seen.add(play.picture.value)
    assert len(seen) == 3
    values = dict(name="norm.weight", log=True)
    assert play.draw(**values).axes[0].get_yscale() == "log"
    text = "Play(name='layers.3.feed_forward.w2.weight', log=True)"
    assert repr(play) == text


def test_tied_and_untied_output(pocket):
    draw = widgets.tensors(pocket).draw
    heading = draw("output.weight", False).axes[0].get_title(loc="left")
    assert "the same numbers as tok_embeddings.weight" in heading
    untied = random_llama(small_config(), tied=False)
    draw = widgets.tensors(untied).draw
    heading = draw("output.weight", False).axes[0].get_title(loc="left")
    assert "the same numbers" not in heading


def test_a_large_tensor_is_sampled(pocket, monkeypatch):
    monkeypatch.setattr(widgets, "EXACT", 65535)  # wq has one more
    monkeypatch.setattr(widgets, "SAMPLE", 1000)
    draw = widgets.tensors(pocket).draw
    ax = draw("layers.0.attention.wq.weight", False).axes[0]
    assert sum(ax.patches[0].get_data().values) == 1000
    assert "1,000 of its numbers" in ax.get_title(loc="left")
    spread = pocket.weights()["layers.0.attention.wq.weight"].std()
    bar = draw("layers.0.attention.wq.weight", False).axes[1].patches[0]
    assert bar.get_height() == pytest.approx(spread.item(), rel=0.1)


def test_weights_all_alike_and_bfloat16():
    llama = random_llama(small_config()).to(torch.bfloat16)
    llama.norm.weight.fill_(1)
    ax, _ = widgets.tensors(llama).draw("norm.weight", False).axes
    assert sum(ax.patches[0].get_data().values) == llama.config.dim
    heading = ax.get_title(loc="left")
    assert "bfloat16" in heading and "from 1.000 to 1.000" in heading


def test_a_name_that_is_not_there(pocket):
    play = widgets.tensors(pocket)
    with pytest.raises(ValueError, match="no tensor.*wanted one of its 57"):
        play.draw("layers.9.attention.wq.weight", False)
