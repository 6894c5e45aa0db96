import pytest
import torch
import torch.nn.functional as F
from helpers import random_llama

from llamalib import Tokenizer, plots, widgets


def bars(fig):
    """(labels, widths) of the left picture."""
    ax = fig.axes[0]
    labels = [label.get_text() for label in ax.get_yticklabels()]
    return labels, [bar.get_width() for bar in ax.patches]


@pytest.mark.parametrize("centre", [False, True])
def test_nearest_draws_the_largest_cosines(pocket, centre):
    play = widgets.nearest(pocket, " France", n=5)
    W = pocket.tok_embeddings.weight
    (i,) = pocket.tokenizer.encode(" Monday", bos=False, eos=False)
    rows = W - W.mean(0) if centre else W
    wanted = F.cosine_similarity(rows, rows[i][None]).topk(6)
    labels, widths = bars(play.draw(token=" Monday", centre=centre))
    assert wanted.indices[0] == i  # itself, which is not drawn
    assert widths == pytest.approx(wanted.values[1:].tolist(), abs=1e-5)
    names = [pocket.tokenizer.decode([j]) for j in wanted.indices[1:].tolist()]
    assert labels == [plots.visible(name) for name in names]


def test_nearest_shows_the_whole_vocabulary(pocket):
    play = widgets.nearest(pocket)
    crowd = play.draw(token=" Paris", centre=False).axes[1]
    assert (
        sum(crowd.patches[0].get_data().values) == pocket.config.vocab_size - 1
    )


def test_nearest_follows_its_controls(pocket):
    play = widgets.nearest(pocket, " France")
    assert repr(play) == "Play(token=' France', centre=False)"
    seen = [play.picture.value]
    for name, value in (
        ("token", " three"),
        ("centre", True),
        ("token", "<|eot_id|>"),
        ("token", "#5"),
    ):
        play.controls[name].value = value
        assert play.message.value == ""
        assert play.picture.value not in seen
        seen.append(play.picture.value)


def test_nearest_takes_an_id(pocket):
    play = widgets.nearest(pocket)
    (i,) = pocket.tokenizer.encode(" France", bos=False, eos=False)
    by_id = bars(play.draw(token=f"#{i}", centre=False))
    assert by_id == bars(play.draw(token=" France", centre=False))


def test_nearest_says_what_is_wrong(pocket):
    play = widgets.nearest(pocket)
    before = play.picture.value
    play.controls["token"].value = " Mira"
    said = play.message.value
    ids = pocket.tokenizer.encode(" Mira", bos=False, eos=False)
    assert f"{len(ids)} tokens, not one" in said
    assert all(f"#{i}" in said for i in ids)
    assert play.picture.value == before
    play.controls["token"].value = ""
    assert "0 tokens, not one" in play.message.value
    V = pocket.config.vocab_size
    play.controls["token"].value = f"#{V}"
    assert f"id {V} is not in the vocabulary" in play.message.value
    assert f"0 to {V - 1}" in play.message.value


def test_nearest_opens_on_any_tokenizer():
    from helpers import small_ranks

    llama = random_llama()
    llama.tokenizer = Tokenizer(small_ranks())
    play = widgets.nearest(llama, " France")
    assert play.controls["token"].value == "e"
    assert play.message.value == "" and play.picture.value


def test_nearest_bears_a_row_of_zeros():
    from helpers import small_ranks

    llama = random_llama()
    llama.tokenizer = Tokenizer(small_ranks())
    with torch.no_grad():
        llama.tok_embeddings.weight[7] = 0
    play = widgets.nearest(llama, "a")
    crowd = play.draw(token="#7", centre=False).axes[1]
    assert (
        sum(crowd.patches[0].get_data().values) == llama.config.vocab_size - 1
    )
