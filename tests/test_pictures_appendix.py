"""Numbers that the pictures of A to D compute, and their widgets."""

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
from llamalib.load import tensor_shapes
from llamalib.probe import record
from tests.helpers import random_ids, random_llama, small_ranks

TEXT = "The capital of France is Paris. 2 + 3 = 5"
IDS = random_ids(6).tolist()
FREQS = torch.tensor([1.0, 0.1, 0.001])
XS = torch.tensor([100.0, 300.0])
E = 8
REPRS = {
    "training": "step=100, head=(1, 2)",
    "quantization": "name='layers.0.attention.wq.weight', bits=4, g=0",
    "routing": f"text={TEXT!r}, run='run 1', stage=2",
    "longer": "way='by wavelength', factor=8",
    "cuts": "model='1B', n=8, rank=3",
}
MOVES = [
    ("training", "step", 50),
    ("training", "head", (0, 7)),
    ("quantization", "name", "tok_embeddings.weight"),
    ("quantization", "bits", 3),
    ("quantization", "g", 32),
    ("routing", "text", "One, two"),
    ("routing", "run", "run 4"),
    ("routing", "stage", 0),
    ("longer", "way", "positions divided"),
    ("longer", "factor", 2),
    ("cuts", "model", "wide"),
    ("cuts", "n", 16),
    ("cuts", "rank", 7),
]


SHAPES = {"1B": LLAMA_1B, "wide": replace(LLAMA_1B, dim=4096)}


def halves(config, name, rank, n):
    """Cut w2 and wo by columns, all other matrices by rows."""
    dim = int(name.endswith((".wo.weight", ".w2.weight")))
    length = tensor_shapes(config)[name][dim] // n
    return dim, rank * length, length


def texts(labels):
    return [label.get_text() for label in labels]


def named(ax):
    """Return the numbers of each line by its label."""
    lines = {line.get_label(): line.get_ydata() for line in ax.lines}
    return {name: torch.as_tensor(ys).tolist() for name, ys in lines.items()}


def fill(patch):
    return matplotlib.colors.to_hex(patch.get_facecolor())


def experts(numbers):
    return [tone.lower() for tone in nbC.expert_colours(numbers)]


def drawn(play, **values):
    """Return the axes of the picture with some controls' values changed."""
    shown = {name: c.value for name, c in play.controls.items()}
    return play.draw(**shown | values).axes


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


def choices():
    return {
        (way, factor): (FREQS / factor / slow, XS, XS / 100 + factor + slow)
        for way, slow in (("positions divided", 1), ("by wavelength", 3))
        for factor in (2, 8)
    }


@pytest.fixture(scope="module")
def plays(pocket):
    known = {"last keys only": (XS, XS / 300)}
    some = runs(pocket.config.dim)
    return {
        "training": nbA.training(*snapshots(), IDS, head=(1, 2)),
        "quantization": nbB.quantization(pocket),
        "routing": nbC.routing(pocket, 4, STEPS, some, TEXT, 2, route=route),
        "longer": nbD.longer(FREQS, 256, choices(), (XS, XS / 50), known),
        "cuts": nbE.cuts(SHAPES, halves, lambda c, n: c.dim * 1e6 / n),
    }


@pytest.mark.parametrize("name", REPRS)
def test_a_widget_opens_with_a_picture(plays, name):
    play = plays[name]
    assert repr(play) == f"Play({REPRS[name]})"
    assert play.picture.value and not play.message.value
    assert play._repr_mimebundle_()[0]["text/html"]


@pytest.mark.parametrize("name, control, value", MOVES)
def test_every_control_changes_the_picture(plays, name, control, value):
    play = plays[name]
    moved, first = play.controls[control], play.picture.value
    before, moved.value = moved.value, value
    assert play.picture.value != first and not play.message.value
    moved.value = before
    assert play.picture.value == first


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


@pytest.mark.parametrize("bits, g", [(2, 3), (4, 5), (8, 2)])
def test_what_is_kept_is_the_nearest_step_of_its_group(bits, g):
    w = torch.randn(3, 10, generator=torch.Generator().manual_seed(0))
    w[1, :g] = 0
    found = nbB.kept_at(w, bits, g)  # the last group may be smaller
    top = 2 ** (bits - 1) - 1
    for row, kept in zip(w, found):
        for numbers, group in zip(row.split(g), kept.split(g)):
            size = numbers.abs().max().item()
            steps = torch.arange(-top, top + 1) * size / top
            nearest = (numbers[:, None] - steps).abs().argmin(1)
            assert torch.allclose(group, steps[nearest], atol=1e-6)


def test_the_widget_rounds_any_matrix_by_rows_or_groups(pocket, plays):
    play = plays["quantization"]
    weights = pocket.state_dict()
    matrices = {name for name in weights if weights[name].dim() == 2}
    assert set(play.controls["name"].options) == matrices
    name = "layers.3.feed_forward.w2.weight"
    for bits, g in ((8, 0), (4, 32)):
        left, _ = drawn(play, name=name, bits=bits, g=g)
        w = weights[name][:1].detach()
        expected = nbB.kept_at(w, bits, g or w.shape[1])[0, :48]
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
    said = words.texts[0].get_text()
    assert said == f"{run}, after {5 * stage} of 10 steps"
    words, _ = drawn(plays["routing"], text="")
    assert len(words.patches) == 1  # <|begin_of_text|>


# -- D ----------------------------------------------------------------------


def test_the_widget_draws_the_choice(plays):
    play = plays["longer"]
    assert play.controls["factor"].options == (2, 8)
    left, right = drawn(play, way="positions divided", factor=2)
    before = torch.tensor(named(left)["before"])
    assert torch.allclose(before, 2 * torch.pi / FREQS)
    assert named(left)["after"] == pytest.approx((2 * before).tolist())
    found = named(right)
    assert found["positions divided"] == [4, 6]
    assert found["as it is"] == [2, 6]
    assert found["last keys only"] == pytest.approx([1 / 3, 1])
    assert texts(left.texts) == ["trained: 256", "2 times: 512"]
    upright = [x for x in right.lines if len(set(x.get_xdata())) == 1]
    assert [x.get_xdata()[0] for x in upright] == [256]  # 512 is outside


# -- E ----------------------------------------------------------------------


@pytest.mark.parametrize("rank, n", [(0, 1), (3, 8), (15, 16)])
def test_a_part_covers_its_rows_or_columns(plays, rank, n):
    (ax,) = drawn(plays["cuts"], model="1B", rank=rank, n=n)
    shapes = tensor_shapes(LLAMA_1B)
    names = [n for n in shapes if "layers.0." in n and "norm" not in n]
    kinds = [n.split(".", 2)[2].removesuffix(".weight") for n in names]
    whole, parts = ax.patches[::2], ax.patches[1::2]
    assert len(whole) == len(parts) == len(kinds) == 7
    for kind, outer, inner in zip(kinds, whole, parts):
        name = f"layers.0.{kind}.weight"
        dim, start, length = halves(LLAMA_1B, name, rank, n)
        expected = list(shapes[name])
        assert [outer.get_height(), outer.get_width()] == expected
        expected[dim] = length
        assert [inner.get_height(), inner.get_width()] == expected
        moved = inner.get_y() - outer.get_y(), inner.get_x() - outer.get_x()
        assert moved[dim] == start and moved[1 - dim] == 0
    size = "2.05 GB" if n == 1 else f"{2048 / n:.0f} MB"
    title = f"1B, rank {rank} of {n} processes: {size} of weights in all"
    assert ax.get_title("left") == title
    assert ax.texts[0].get_text() == "wq\n2,048 × 2,048"


def test_a_rank_that_is_not_there_is_named(plays):
    play = plays["cuts"]
    play.controls["rank"].value = 15
    assert play.message.value == "the last of 8 processes has rank 7"
    play.controls["rank"].value = 3
    assert not play.message.value


def test_running_mean():
    assert nbA.running_mean([1, 3, 5, 7]) == [1, 2, 3, 4]
    assert nbA.running_mean([]) == []
    assert nbA.running_mean(range(100))[-1] == 89.5  # of 20


def test_errors_of_a_row_lie_within_half_a_step():
    row = torch.tensor([0.1, -0.3])
    _, below = nbB.stairs(row, [0.0, -0.25], [-0.25, 0.0, 0.25], "").axes
    bars = [bar.get_height() for bar in below.patches]
    assert bars == pytest.approx([-0.1, 0.05])
    halves = sorted(line.get_ydata()[0] for line in below.lines)
    assert halves == pytest.approx([-0.125, 0, 0.125])


def test_a_loss_is_drawn_above_the_base():
    (ax,) = nbB.loss_by_matrix(["output", "w2"], [1.5, 1.25], 1.0, 2).axes
    heights = [bar.get_height() for bar in ax.patches]
    assert heights == pytest.approx([0.5, 0.25])


def test_parameters_are_shares_that_fill_a_row():
    models = {"$ a": (1e6, 2e6, 7e6), "b": (1e9, 3e9, 4e9)}
    fig = nbC.active_parameters(models, [1, 2], [2, 3.5])
    left, right = fig.axes
    ends = [(bar.get_x(), bar.get_width()) for bar in left.patches]
    expected = [(0, 0.1), (0.1, 0.2), (0.3, 0.7)]
    expected += [(0, 0.125), (0.125, 0.375), (0.5, 0.5)]
    assert ends == [pytest.approx(pair) for pair in expected]
    active = [r"\$ a: 0.003 of 0.01 billion active"]
    active += ["b: 4 of 8 billion active"]
    assert texts(left.texts) == active
    assert right.lines[0].get_xydata().tolist() == [[1, 2], [2, 3.5]]


@pytest.mark.parametrize("errors", [[0.1, 0.2, 0.1], None])
def test_a_gap_is_marked_at_every_full_rotation(errors):
    waves = {3: 90.0, 4: 150.0, 5: 1000.0}
    fig = nbD.loss_by_gap([0, 100, 200], [1.0, 5.0, 2.0], errors, waves, 1.5)
    upper, lower = fig.axes
    at = [(line.get_xdata()[0], line.get_ydata()[0]) for line in lower.lines]
    assert at == [(0, 0), (90, 0), (180, 0), (0, 1), (150, 1), (0, 2)]
    assert texts(lower.texts) == ["1 rotation", "2 rotations", "1 rotation"]
    assert texts(lower.get_yticklabels())[0] == "pair 3: 90"
    assert len(upper.collections) == (errors is not None)
    assert named(upper)["first half not seen"] == [1.5, 1.5]


def test_memory_is_drawn_without_and_with_the_cache():
    weights = {"$ a": [8e9, 4e9], "b": [2e11, 1e11]}
    caches = {"$ a": [1e9, 5e8], "b": [1e10, 1e10]}
    (ax,) = nbE.memory_by_devices([1, 2], weights, caches).axes
    found = named(ax)
    assert found[r"\$ a"] == [8e9, 4e9] and found["b"] == [2e11, 1e11]
    assert found[r"\$ a and cache"] == [9e9, 4.5e9]
    assert found["b and cache"] == [2.1e11, 1.1e11]
    limits = [t.get_text() for t in ax.texts]
    assert limits == ["24 GB", "80 GB", "141 GB"]
    tones = {n.get_label(): n.get_color() for n in ax.lines}
    assert tones["b"] == tones["b and cache"] != tones[r"\$ a"]
