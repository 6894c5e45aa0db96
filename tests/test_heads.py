"""Appendix F: its patches against other computations, and its answers."""

import ast
import functools
from itertools import cycle

import pytest
import torch

from lessons import nF_heads as lesson
from lessons.texts import STORY
from llamalib import attention, record, replaced
from llamalib.load import ROOT
from tests.helpers import code_cells, random_ids, random_llama

NOTEBOOK = ROOT / "notebooks" / "appendix" / "F_heads.ipynb"
TRAVEL = "If you travel to the capital of {}, you arrive in"
CAPITALS = dict(
    France="Paris", Peru="Lima", Japan="Tokyo", Kenya="Nairobi",
    Canada="Ottawa", Nepal="Kathmandu", Italy="Rome", Cuba="Havana",
)  # fmt: skip


@functools.cache
def functions() -> dict[str, str]:
    """Return the source of each function that the notebook defines."""
    found = {}
    for _, source in code_cells(NOTEBOOK):
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef):
                found[node.name] = ast.unparse(node)
    return found


def notebook_of(llama, *names):
    """Return functions of the notebook, which see this Llama."""
    c = llama.config
    scope = dict(L=c.n_layers, H=c.n_heads, hd=c.head_dim, llama=llama)
    scope |= dict(torch=torch, cycle=cycle, attention=attention)
    scope |= dict(record=record, replaced=replaced)
    for name in {*names, "moved"}:
        exec(functions()[name], scope)
    return [scope[name] for name in names]


@pytest.fixture(scope="module")
def runs():
    """Return a random Llama, a base and a donor with other answers."""
    llama = random_llama(tied=False)
    base = random_ids(7)
    donor = base.clone()
    donor[2], donor[5] = 290, 291
    assert llama(base)[-1].argmax() != llama(donor)[-1].argmax()
    return llama, base, donor


def expected(llama, base, donor, patched):
    """Return how far the answer moved, and whether it is the donor's."""
    low, high = llama(base)[-1], llama(donor)[-1]
    a, b = low.argmax(), high.argmax()
    leads = [z[b] - z[a] for z in (low, high, patched)]
    share = (leads[2] - leads[0]) / (leads[1] - leads[0])
    return [share.item(), float(patched.argmax() == b)]


def test_moved_as_on_the_page():
    """The example of section 7: the lead is -8, 8, and -4 after the patch."""
    (moved,) = notebook_of(random_llama(), "moved")
    paris_lima = [[1.0, 9, 0], [9.0, 1, 0], [6.0, 2, 0]]  # donor, base, patch
    paris_lima += paris_lima[:2]  # the donor's own logits, the base's
    share, is_b = moved(torch.tensor(paris_lima)[:, [1, 0, 2]])
    assert share.tolist() == [0.25, 1, 0] and is_b.tolist() == [0, 1, 0]
    # question 1: both answers fall, a third token leads
    z = torch.tensor([[1.0, 8, 0], [9.0, 2, 0], [4.5, 4, 5]])
    share, is_b = moved(z)
    assert share[0] == pytest.approx(0.46, abs=0.005) and is_b[0] == 0
    # both runs have one answer: 0, not 0/0
    z = torch.tensor([[9.0, 1], [9.0, 2], [9.0, 3]])
    assert moved(z).tolist() == [[0], [0]]


def test_a_patch_before_block_0_exchanges_a_token(runs):
    llama, base, donor = runs
    (patch_stream,) = notebook_of(llama, "patch_stream")
    found = patch_stream(base, donor, 0)  # (2, T)
    for t in range(len(base)):
        tokens = base.clone()
        tokens[t] = donor[t]
        right = expected(llama, base, donor, llama(tokens)[-1])
        assert found[:, t].tolist() == pytest.approx(right, abs=1e-4)


def test_a_patch_of_the_stream_enters_the_block_at_one_position(runs):
    llama, base, donor = runs
    (patch_stream,) = notebook_of(llama, "patch_stream")
    block, at = 1, 5
    given = record(llama, donor)[f"layers.{block}.in"]
    stream = record(llama, base)[f"layers.{block}.in"].clone()
    stream[at] = given[at]
    hook = llama.layers[block].register_forward_pre_hook(
        lambda module, args: (stream[None], *args[1:])
    )
    right = expected_with(hook, llama, base, donor)
    found = patch_stream(base, donor, block)
    assert found[:, at].tolist() == pytest.approx(right, abs=1e-4)
    others = torch.arange(len(base)) < 2  # where both runs are the same
    assert found[0, others].abs().max() < 1e-4


def expected_with(hook, llama, base, donor):
    patched = llama(base)[-1]
    hook.remove()
    return expected(llama, base, donor, patched)


@pytest.mark.parametrize("zero", [False, True])
def test_a_patch_of_heads_changes_their_columns_at_the_end(runs, zero):
    llama, base, donor = runs
    (patch_heads,) = notebook_of(llama, "patch_heads")
    groups, hd = [[(0, 3)], [(1, 0), (1, 7)], []], llama.config.head_dim
    found = patch_heads(base, donor, groups, zero)  # (2, groups)
    # a batch of runs is rounded otherwise than a run alone
    assert found[:, 2].tolist() == pytest.approx([0, 0], abs=1e-5)
    for i, heads in enumerate(groups[:2]):
        wo, kept = llama.layers[heads[0][0]].attention.wo, []
        hook = wo.register_forward_pre_hook(
            lambda _, args, kept=kept: kept.append(args)
        )
        llama(donor)
        hook.remove()
        given = 0 * kept[0][0] if zero else kept[0][0]

        def put(_, args, heads=heads, given=given):
            x = args[0].clone()
            for _, h in heads:
                columns = slice(h * hd, (h + 1) * hd)
                x[..., -1, columns] = given[..., -1, columns]
            return (x,)

        hook = wo.register_forward_pre_hook(put)
        right = expected_with(hook, llama, base, donor)
        assert found[:, i].tolist() == pytest.approx(right, abs=1e-4)


# -- the answers to "Test yourself" ------------------------------------------


def test_order_needs_two_blocks_that_attend(pocket):
    """Question 3: without RoPE, with the mask."""
    (silence,) = notebook_of(pocket, "silence")
    encode = functools.partial(pocket.tokenizer.encode, eos=False)
    words = [encode(x, bos=False) for x in (" I", " love", " apple")]
    start, stop = [pocket.tokenizer.bos_id], encode(".", bos=False)
    texts = [sum([start, *w, stop], []) for w in (words, words[::-1])]
    L, H = pocket.config.n_layers, pocket.config.n_heads

    def change(*attending):
        heads = [(i, h) for i in range(L) if i not in attending
                 for h in range(H)]  # fmt: skip
        same = dict(apply_rotary_emb=lambda xq, xk, freqs_cis: (xq, xk))
        with replaced(attention=silence(heads), **same):
            a, b = (pocket(torch.tensor(text))[-1] for text in texts)
        return ((a - b).norm() / a.norm()).item()

    assert max(change(i) for i in range(L)) < 1e-5
    assert min(change(0, i) for i in range(1, L)) > 1e-3


def capitals(pocket, heads):
    (silence,) = notebook_of(pocket, "silence")
    right = 0
    for country, capital in CAPITALS.items():
        prompt = TRAVEL.format(country)
        ids = pocket.tokenizer.encode(prompt, bos=True, eos=False)
        (name,) = pocket.tokenizer.encode(f" {capital}", bos=False, eos=False)
        with replaced(attention=silence(heads)):
            right += int(pocket(torch.tensor(ids))[-1].argmax() == name)
    return right


def test_no_single_head_is_needed_for_the_capitals(pocket):
    """Question 4: without nine none is left, without five of these 4."""
    c = pocket.config
    single = [(i, h) for i in range(c.n_layers) for h in range(c.n_heads)]
    assert all(capitals(pocket, [head]) == 8 for head in single)
    lookers = [*single[24:28], (5, 1), (5, 2), (5, 4), (5, 5), (5, 6)]
    assert capitals(pocket, lookers) == 0
    assert capitals(pocket, lookers[4:]) == 4


def test_a_probe_fits_any_hundred_vectors():
    """Question 6: 256 inputs, 100 vectors, targets drawn at random."""
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 100, 256, generator=g).double()
    weights = torch.linalg.lstsq(x, y).solution
    assert torch.allclose(x @ weights, y)


def test_the_two_neurons_respond_as_told(pocket):
    """Section 9: to the first comma only, and to each “ M”."""
    ids = pocket.tokenizer.encode(STORY, bos=True, eos=False)
    words = [pocket.tokenizer.decode([i]) for i in ids]
    _, activations = lesson._gated(pocket, ids)  # (L, T, F)
    sizes = activations[:, 1:].abs()
    first, *others = sizes[4, :, 439].topk(2)[0]
    assert (
        words[1:][sizes[4, :, 439].argmax()] == "," and words.count(",") == 2
    )
    assert words.index(",") == sizes[4, :, 439].argmax() + 1
    assert first > 20 * others[0]
    places = [t for t, word in enumerate(words[1:]) if word == " M"]
    largest = sizes[0, :, 503].topk(len(places) + 1)
    assert sorted(largest.indices[:-1].tolist()) == places
    assert largest.values[-2] > 5 * largest.values[-1]
