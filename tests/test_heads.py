"""Appendix F: its patches against other computations, and its answers."""

import ast
import functools
from contextlib import ExitStack, contextmanager

import pytest
import torch

from lessons import nF_heads as lesson
from llamalib import causal_mask, precompute_freqs_cis, record, replaced
from llamalib.load import ROOT
from tests.helpers import code_cells, random_ids, random_llama

NOTEBOOK = ROOT / "notebooks" / "appendix" / "F_heads.ipynb"


@functools.cache
def functions() -> dict[str, str]:
    """Return the source of each function that the notebook defines."""
    found = {}
    for _, source in code_cells(NOTEBOOK):
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef):
                found[node.name] = ast.unparse(node)
    return found


def notebook_of(llama, *names, **more):
    """Return functions of the notebook, which see this Llama."""
    c = llama.config
    scope = dict(L=c.n_layers, H=c.n_heads, hd=c.head_dim, llama=llama)
    scope |= dict(torch=torch, partial=functools.partial, record=record)
    scope |= dict(ExitStack=ExitStack, contextmanager=contextmanager)
    for name in {*names, "put", "lead"}:
        exec(functions()[name], scope)
    scope |= more
    return [scope[name] for name in names]


@pytest.fixture(scope="module")
def runs():
    """Return a random Llama, two bases, and each one's donor."""
    llama = random_llama(tied=False)
    asked = random_ids(7).repeat(2, 1)
    asked[:, 2] = torch.tensor([290, 291])
    z = llama(asked)[:, -1]
    right = z.argmax(-1)
    assert right[0] != right[1]
    names = dict(asked=asked, donors=asked.flip(0), z_base=z)
    names |= dict(right=right, wanted=right.flip(0))
    return llama, asked, names


def expected(names, patched):
    """Return how far each answer moved."""
    found = []
    for b in (0, 1):
        a, to = names["right"][b], names["wanted"][b]
        low, high, now = (
            (z[to] - z[a]).item()
            for z in (names["z_base"][b], names["z_base"][1 - b], patched[b])
        )
        found.append((now - low) / (high - low))
    return found


def test_moved_as_on_the_page():
    """The example of section 4: -8, 8, and -4 after the patch; question 1."""
    z_base = torch.tensor([[9.0, 1, 0], [1.0, 9, 0]])
    names = dict(z_base=z_base, right=torch.tensor([0, 1]))
    names |= dict(wanted=torch.tensor([1, 0]))
    (moved,) = notebook_of(random_llama(), "moved", **names)
    assert moved(torch.tensor([[6.0, 2, 0], [1, 9, 0]])).tolist() == [0.25, 0]
    assert moved(z_base.flip(0)).tolist() == [1, 1]
    names["z_base"] = torch.tensor([[9.0, 2, 0], [1.0, 8, 0]])
    (moved,) = notebook_of(random_llama(), "moved", **names)
    share = moved(torch.tensor([[4.5, 4, 5], [1, 8, 0]]))[0].item()
    assert share == pytest.approx(0.46, abs=0.005)


def test_a_patch_before_block_0_exchanges_a_token(runs):
    llama, asked, names = runs
    given = record(llama, names["donors"])
    names = names | dict(streams=record(llama, asked), donor_streams=given)
    c, T = llama.config, asked.shape[1]
    rope = c.head_dim, T, c.rope_theta, c.scaling_factor
    names |= dict(freqs_cis=precompute_freqs_cis(*rope), mask=causal_mask(T))
    patch_stream, _ = notebook_of(llama, "patch_stream", "moved", **names)
    # the two texts differ there only, so the answer is the donor's
    assert patch_stream(0, [2]).tolist() == pytest.approx([1, 1], abs=1e-4)
    assert patch_stream(0, [1]).tolist() == pytest.approx([0, 0], abs=1e-4)
    assert patch_stream(1, [1]).tolist() == pytest.approx([0, 0], abs=1e-4)
    # question 2: nothing reads another position after the last block
    last = llama.config.n_layers - 1
    given = record(llama, names["donors"])[f"layers.{last}.out"]
    z = llama.output(llama.norm(given[:, -1]))
    assert expected(names, z) == pytest.approx([1, 1], abs=1e-4)


@pytest.mark.parametrize(
    "at",
    [slice(None), slice(-1, None), slice(3)],
    ids=["all", "last", "three"],
)
@pytest.mark.parametrize("kind", ["zeros", "mean", "donor"])
def test_put_changes_the_columns_of_its_heads(runs, kind, at):
    llama, asked, names = runs
    (put,) = notebook_of(llama, "put", **names)
    own = lesson.head_outputs(llama, asked)
    theirs = lesson.head_outputs(llama, names["donors"])
    new = dict(zeros=0 * own[:, :1, :1], mean=own.mean(1, keepdim=True))
    new = (new | dict(donor=theirs))[kind]
    heads, hd = [(0, 3), (1, 0), (1, 7)], llama.config.head_dim
    usual = llama(asked)
    with put([], new, at):
        assert torch.equal(llama(asked), usual)
    with put(heads, new, at):
        found = llama(asked)
    assert torch.equal(llama(asked), usual)  # it ends with the `with`

    def change(layer, args):
        x = args[0].clone()  # (B, T, H·hd)
        for block, h in heads:
            if block == layer:
                value = new[layer].expand(2, asked.shape[1], -1, -1)[:, :, h]
                x[:, at, h * hd : (h + 1) * hd] = value[:, at]
        return (x,)

    with ExitStack() as hooks:
        for i, layer in enumerate(llama.layers):
            hook = layer.attention.wo.register_forward_pre_hook(
                lambda wo, args, i=i: change(i, args)
            )
            hooks.enter_context(hook)
        right = llama(asked)
    assert (found - right).abs().max() < 1e-4
    assert (found - usual).abs().max() > 1e-2


# -- the answers to "Test yourself" ------------------------------------------


def test_order_needs_two_blocks_that_attend(pocket):
    """Question 3: without RoPE, with the mask."""
    (put,) = notebook_of(pocket, "put")
    encode = functools.partial(pocket.tokenizer.encode, eos=False)
    words = [encode(x, bos=False) for x in (" I", " love", " apple")]
    start, stop = [pocket.tokenizer.bos_id], encode(".", bos=False)
    texts = [sum([start, *w, stop], []) for w in (words, words[::-1])]
    c = pocket.config
    L, H = c.n_layers, c.n_heads
    zeros = torch.zeros(L, 1, 1, H, c.head_dim)

    def change(*attending):
        heads = [(i, h) for i in range(L) if i not in attending
                 for h in range(H)]  # fmt: skip
        same = dict(apply_rotary_emb=lambda xq, xk, freqs_cis: (xq, xk))
        with put(heads, zeros), replaced(**same):
            a, b = (pocket(torch.tensor(text))[-1] for text in texts)
        return ((a - b).norm() / a.norm()).item()

    assert max(change(i) for i in range(L)) < 1e-5
    assert min(change(0, i) for i in range(1, L)) > 1e-3


# -- the check of exercise 3 --------------------------------------------------


def left_forward(llama, base, donor, block):
    ffn, logits = llama.layers[block].feed_forward, llama(base)
    ffn.forward = lambda x: 0 * x
    return logits[-1]


def left_weights(llama, base, donor, block):
    logits = llama(base)[-1]
    llama.layers[block].feed_forward.w2.weight *= 2
    return logits


def left_module(llama, base, donor, block):
    logits = llama(base)[-1]
    llama.layers[block].feed_forward = torch.nn.Identity()
    return logits


def left_class(llama, base, donor, block):
    logits = llama(base)[-1]
    type(llama.layers[block].feed_forward).forward = lambda self, x: x
    return logits


def left_hook(llama, base, donor, block):
    ffn = llama.layers[block].feed_forward
    ffn.register_forward_hook(lambda *args: args[2] * 0)
    return llama(base)[-1]


def raises(llama, base, donor, block):
    llama.layers[block].feed_forward.forward = None
    raise KeyError(block)


LEFT = left_forward, left_weights, left_module, left_class, left_hook, raises


@pytest.mark.parametrize("answer", LEFT)
def test_the_check_refuses_a_changed_model(answer):
    llama, ids = random_llama(tied=False), random_ids(7)
    before = llama(ids)
    is_right, words = lesson.check_3.verdict(answer)
    assert is_right is False
    if answer is left_hook:
        assert words == "remove your hook: the model stays changed"
    elif answer is not raises:
        assert words.startswith("the model stays changed")
    assert torch.equal(llama(ids), before)
