import matplotlib
import pytest
import torch

from llamalib import attention_maps, plots, widgets

PROMPT = "The capital of France is"


@pytest.fixture
def ids(pocket):
    return pocket.tokenizer.encode(PROMPT, bos=True, eos=False)


def test_heads_shows_the_head_that_is_chosen(pocket, ids):
    maps = attention_maps(pocket, torch.tensor(ids))
    play = widgets.heads(pocket, ids)
    for layer, head in ((0, 0), (3, 0), (5, 7)):
        ax = play.draw(layer=layer, head=head).axes[0]
        drawn = torch.tensor(ax.images[0].get_array())
        assert torch.allclose(drawn, maps[layer, head].double(), atol=1e-6)
        group = head // 4
        name = f"layer {layer}, head {head} · KV head {group}, shared by "
        name += f"heads {4 * group} to {4 * group + 3}"
        assert ax.get_title(loc="left") == name
        colour = matplotlib.colors.to_rgba(plots.GROUPS[group])
        assert ax.spines["top"].get_edgecolor() == colour


def test_heads_follows_its_sliders(pocket, ids):
    play = widgets.heads(pocket, ids, layer=3)
    assert repr(play) == "Play(layer=3, head=0)"
    c = pocket.config
    layer, head = play.controls["layer"], play.controls["head"]
    assert (layer.max, head.max) == (c.n_layers - 1, c.n_heads - 1)
    pictures = [bytes(play.picture.value)]
    head.value = 5
    pictures.append(bytes(play.picture.value))
    layer.value = 5
    pictures.append(bytes(play.picture.value))
    assert len(set(pictures)) == 3
    assert all(picture.startswith(b"\x89PNG") for picture in pictures)
    assert play.message.value == ""
