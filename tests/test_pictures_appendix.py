"""Numbers that the pictures of A to H compute, and their widgets."""

from dataclasses import replace
from types import SimpleNamespace

import matplotlib
import pytest
import torch
from IPython.display import DisplayHandle
from matplotlib import pyplot as plt

from lessons import nA_training as nbA
from lessons import nB_quantization as nbB
from lessons import nC_mixture_of_experts as nbC
from lessons import nD_long_context as nbD
from lessons import nE_tensor_parallel as nbE
from lessons.theme import visible
from llamalib import LLAMA_1B, Tokenizer, attention_maps
from llamalib.probe import record
from llamalib.tensors import tensor_shapes
from tests.drawings import CHOICES, CODES, FREQS, XS, cut
from tests.helpers import assert_follows, random_ids, random_llama, small_ranks
from tests.test_pictures import drawn, texts

TEXT = "The capital of France is Paris. 2 + 3 = 5"
IDS = random_ids(6).tolist()
E = 8
SHAPES = {"1B": LLAMA_1B, "wide": replace(LLAMA_1B, dim=4096)}


def named(ax):
    """Return the numbers of each line by its label."""
    lines = {line.get_label(): line.get_ydata() for line in ax.lines}
    return {name: torch.as_tensor(ys).tolist() for name, ys in lines.items()}


def fill(patch):
    return matplotlib.colors.to_hex(patch.get_facecolor())


def experts(numbers):
    return [tone.lower() for tone in nbC.expert_colours(numbers)]


# -- the widgets, all of them -----------------------------------------------


def snapshots():
    """Return a model, and what it was like at three steps."""
    shots = []
    for step in (0, 50, 100):
        llama = random_llama(seed=step)
        ids = torch.tensor(IDS)
        shot = SimpleNamespace(step=step, loss=5 - step / 50, held=5.5)
        shot.sample = f"text {step}"
        shot.probs = llama(ids)[-1].softmax(-1)
        shot.maps = attention_maps(llama, ids)
        shots.append(shot)
    llama.tokenizer = Tokenizer(small_ranks())
    return llama, shots


def route(x, router, k):
    logits = x @ router.T  # (T, E)
    top = logits.topk(k)
    return top.values.softmax(-1), top.indices, logits


STEPS = [0, 5, 10]


def runs(dim):
    """Return the routers of two runs, at three stages each."""
    g = torch.Generator().manual_seed(0)
    routers = torch.randn(2, len(STEPS), E, dim, generator=g)
    return {"run 1": routers[0], "run 4": routers[1]}


@pytest.fixture(scope="module")
def plays(pocket):
    known = {"last keys only": (XS, XS / 300)}
    some = runs(pocket.config.dim)
    return {
        "training": nbA.training(*snapshots(), IDS, head=(1, 2)),
        "quantization": nbB.quantization(pocket, CODES),
        "routing": nbC.routing(pocket, 4, STEPS, some, TEXT, 2, route=route),
        "longer": nbD.longer(FREQS, 256, CHOICES, (XS, XS / 50), known),
        "cuts": nbE.cuts(SHAPES, cut),
    }


@pytest.mark.parametrize(
    "name", ["training", "quantization", "routing", "longer", "cuts"]
)
def test_a_widget_follows_each_of_its_controls(plays, name):
    assert_follows(plays[name])


# -- A ----------------------------------------------------------------------


def test_a_live_picture_is_shown_once_and_then_changed(monkeypatch):
    calls = []
    for name in ("display", "update"):

        def note(self, image, name=name):
            calls.append((name, self.display_id, image.data))

        monkeypatch.setattr(DisplayHandle, name, note)
    live = nbA.LivePicture()
    for value in (1, 2, 3):
        fig, ax = plt.subplots()
        ax.plot([0, value])
        ax.set_title("the loss")
        live.show(fig)
        assert not plt.fignum_exists(fig.number)  # closed: not drawn twice
    names, places, images = zip(*calls)
    assert names == ("display", "update", "update")
    assert len(set(places)) == 1 and len(set(images)) == 3
    assert all('<img alt="the loss"' in page for page in images)


def test_every_step_and_head_shows_its_own_snapshot():
    llama, shots = snapshots()
    play = nbA.training(llama, shots, IDS, (0, 0))
    heads = dict(play.controls["head"].options)
    assert heads["layer 1, head 7"] == (1, 7) and len(heads) == 16
    for shot in shots:
        bars, maps = drawn(play, step=shot.step, head=(1, 7))
        loss, sample = texts(bars.figure.texts)
        assert loss.startswith(f"step {shot.step}: loss {shot.loss:.2f}")
        assert sample == shot.sample
        image = torch.tensor(maps.images[0].get_array())
        assert torch.equal(image, shot.maps[1, 7])
        top = shot.probs.topk(8)
        widths = [bar.get_width() for bar in bars.patches]
        assert widths == pytest.approx(top.values.tolist())
        names = [llama.tokenizer.decode([i]) for i in top.indices.tolist()]
        assert texts(bars.get_yticklabels()) == list(map(visible, names))


# -- B ----------------------------------------------------------------------


@pytest.mark.parametrize("name, g", [("three", 3), ("four", 5), ("four", 2)])
def test_what_is_kept_is_the_nearest_value_of_its_group(name, g):
    w = torch.randn(3, 10, generator=torch.Generator().manual_seed(0))
    w[1, :g] = 0
    found = nbB.kept_by(w, CODES[name], g)  # the last group may be smaller
    for row, kept in zip(w, found):
        for numbers, group in zip(row.split(g), kept.split(g)):
            values = CODES[name] * numbers.abs().max()
            nearest = (numbers[:, None] - values).abs().argmin(1)
            assert torch.allclose(group, values[nearest], atol=1e-6)


def test_the_widget_rounds_any_matrix_by_rows_or_groups(pocket, plays):
    play = plays["quantization"]
    weights = pocket.state_dict()
    matrices = {name for name in weights if weights[name].dim() == 2}
    assert set(play.controls["name"].options) == matrices
    name = "layers.3.feed_forward.w2.weight"
    for code, g in (("three", 0), ("four", 32)):
        left, _ = drawn(play, name=name, code=code, g=g)
        w = weights[name][:1].detach()
        expected = nbB.kept_by(w, CODES[code], g or w.shape[1])[0, :48]
        assert named(left)["kept"] == pytest.approx(expected.tolist())


# -- C ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "run, stage, text",
    [("run 1", 0, TEXT), ("run 4", 2, TEXT), ("run 1", 1, "a b c " * 99)],
)
def test_colours_and_loads_are_the_router_s(pocket, plays, run, stage, text):
    routers = runs(pocket.config.dim)[run]
    ids = pocket.tokenizer.encode(text, bos=True, eos=False)[:110]
    seen = record(pocket, torch.tensor(ids))
    x = seen["layers.4.feed_forward.in"]  # (T, D)
    _, chosen, _ = route(x, routers[stage], 2)
    words, bars = drawn(plays["routing"], run=run, stage=stage, text=text)
    tones = [fill(box) for box in words.patches]
    assert tones == experts(chosen[:, 0]) and len(set(tones)) > 2
    loads = torch.bincount(chosen.flatten(), minlength=E) / chosen.numel()
    heights = [bar.get_height() for bar in bars.patches]
    assert heights == pytest.approx(loads.tolist())


def test_a_run_is_a_bar_of_its_experts_shares():
    fig = nbC.shares_of_runs()
    assert len(fig.axes) == 2 * len(nbC.runs_of("mixture"))
    found = [*nbC.runs_of("balanced mixture").values()]
    for ax, runs in zip(fig.axes[len(found) :], found, strict=True):
        bars = [patch.get_height() for patch in ax.patches]
        bars = torch.tensor(bars).view(8, len(runs)).T  # (runs, E)
        for bar, run in zip(bars, runs, strict=True):
            shares = sorted(run["shares"], reverse=True)
            assert bar.tolist() == pytest.approx(shares, abs=1e-6)
        places = [patch.get_y() for patch in ax.patches]
        below = bars.cumsum(1) - bars  # the largest is at the bottom
        assert places == pytest.approx(below.T.flatten().tolist(), abs=1e-5)


# -- E ----------------------------------------------------------------------


@pytest.mark.parametrize("rank, n", [(0, 1), (3, 8), (15, 16)])
def test_a_part_covers_its_rows_or_columns(plays, rank, n):
    (ax,) = drawn(plays["cuts"], model="1B", rank=rank, n=n)
    shapes = tensor_shapes(LLAMA_1B)
    assert [t.get_text() for t in ax.texts].count("sum") == 2
    kinds = nbE.MATRICES
    names = {f"layers.0.{kind}.weight" for kind in kinds}
    assert names == {n for n in shapes if "s.0." in n and "norm" not in n}
    whole, parts = ax.patches[::2], ax.patches[1::2]
    assert len(whole) == len(parts) == len(kinds) == 7
    for kind, outer, inner in zip(kinds, whole, parts):
        name = f"layers.0.{kind}.weight"
        dim, start, length = cut(LLAMA_1B, name, rank, n)
        expected = list(shapes[name])
        assert [outer.get_height(), outer.get_width()] == expected
        expected[dim] = length
        assert [inner.get_height(), inner.get_width()] == expected
        moved = inner.get_y() - outer.get_y(), inner.get_x() - outer.get_x()
        assert moved[dim] == start and moved[1 - dim] == 0


def test_heads_stay_whole():
    play = nbE.cuts({"few heads": replace(LLAMA_1B, n_heads=8)}, cut)
    play.controls["n"].value = 16
    assert "16 does not divide 8 query heads" in play.message.value
    play.controls["n"].value = 8
    assert not play.message.value


def test_running_mean():
    assert nbA.running_mean([1, 3, 5, 7]) == [4] * 4
    assert nbA.running_mean([]) == []
    found = nbA.running_mean(range(100))
    assert found[0] == 4.5 and found[50] == 49.5 and found[-1] == 94
