"""Appendix H: each row of its tables leads to a cell that exists."""

import contextlib
import io
import json
import math
import os
import pickle
import re
from functools import partial
from operator import ne
from pathlib import Path
from textwrap import dedent, indent

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import llamalib
from lessons.nH_documents import (
    DOCUMENTS,
    MARKS,
    SLIPS,
    every_table,
    rotated,
    verdicts,
)
from llamalib import (
    LLAMA_1B,
    apply_rotary_emb,
    causal_mask,
    precompute_freqs_cis,
    replaced,
    rms_norm,
    scale_frequencies,
)
from llamalib.load import ROOT
from llamalib.model import TransformerBlock
from llamalib.tensors import tensor_shapes
from llamalib.tokenizer import SPECIAL_TOKENS, SPLIT_PATTERN
from tests.helpers import code_cells
from tools.frame import NOTEBOOKS

H = NOTEBOOKS / "appendix" / "H_documents.ipynb"
FOLDER = Path(os.environ.get("DOCUMENTS", ROOT.parent / "shared/documents"))
PLACES = [
    (document, *row)
    for document, rows in DOCUMENTS["places"].items()
    for row in rows
]


def headings(file: Path) -> list[str]:
    """Return the headings of a notebook below its title, without the #s."""
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(c["source"]) for c in cells if c["cell_type"] != "code"]
    return re.findall(r"^##+ (.+)$", "\n".join(texts), flags=re.M)


def problem(stem: str, heading: str) -> str | None:
    """Return what is wrong with a row's target, or None."""
    file = NOTEBOOKS / f"{stem}.ipynb"
    if not file.is_file():
        return f"{stem} does not exist"
    found = headings(file).count(heading)
    if heading and found != 1:
        return f"{stem} has {found} sections {heading!r}"
    return None


def test_every_row_of_the_concordance_leads_to_a_section():
    problems = {row[:2]: problem(*row[2:4]) for row in PLACES}
    assert {row: words for row, words in problems.items() if words} == {}
    assert len(problems) == len(PLACES) > 100  # no row is there twice


PROMPT = "The capital of France is"
KINDS = "stated", "linked", "without", "misprints"
ROWS_OF_H = {
    name: row for kind in KINDS for name, row in DOCUMENTS[kind].items()
}


@pytest.mark.parametrize("document", DOCUMENTS["places"])
def test_the_concordance_has_every_row_of_its_document_and_no_other(document):
    """So a reader who looks a statement up finds what is wrong with it."""
    names = " ".join(row[3] for row in DOCUMENTS["places"][document]).split()
    about = {
        name
        for name, row in ROWS_OF_H.items()
        if document in row[0] or row[0] == "all four"
    }
    assert set(names) == about


def test_every_row_has_a_verdict():
    assert sum(len(DOCUMENTS[kind]) for kind in KINDS) == len(ROWS_OF_H)
    for kind in KINDS[:3]:
        assert all(row[2] in MARKS for row in DOCUMENTS[kind].values())
    assert verdicts("") == ""
    assert verdicts("eps f_i share") == (
        "**wrong**: Norms (RMS + ε), Attention, LM head, sampling (one query "
        "for a group); *misprint*: Misprints and letters (fᵢ)"
    )


def test_a_verdict_names_its_item():
    """Where a row has several, or its own statement is right."""
    assert set(DOCUMENTS["labels"]) <= set(ROWS_OF_H)
    for row in PLACES:
        names = row[4].split()
        for name in names:
            several = len(names) > 1 or "misprint" in verdicts(name)
            assert not several or name in DOCUMENTS["labels"], name


def test_every_row_is_in_one_folded_table_of_the_index():
    names = " ".join(DOCUMENTS["tables"].values()).split()
    assert sorted(names) == sorted(DOCUMENTS["stated"] | DOCUMENTS["linked"])
    shown = [table.data for table in every_table()]
    assert all(text.startswith("<details>") for text in shown)
    for _, *row in ROWS_OF_H.values():  # what it says and what is right
        lines = "\n".join(shown).splitlines()
        assert sum(all(words in line for words in row[:3:2]) for line in lines)
    *_, (_, last) = code_cells(H)
    assert last.endswith("display(*lesson.every_table())")


def section(stem: str, heading: str) -> str:
    """Return the text, code and printed lines of a notebook's section."""
    (file,) = NOTEBOOKS.glob(f"**/{stem}.ipynb")
    text = ""
    for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]:
        text += "".join(cell["source"]) + "\n"
        for output in cell.get("outputs", ()):
            text += "".join(output.get("text", ())) + "\n"
    if heading.isdigit():
        (heading,) = re.findall(rf"^## ({heading} · .*)$", text, re.M)
    return re.split(r"^## ", text.split(f"\n## {heading}\n")[1], flags=re.M)[0]


BY_H = {
    name: row[4]
    for name, row in DOCUMENTS["stated"].items()
    if re.search(r"\(section \d\)$", row[4])
}


@pytest.mark.parametrize("name", DOCUMENTS["linked"] | BY_H)
def test_a_row_repeats_what_its_section_says(name):
    if name in BY_H:
        found, heading = BY_H[name].rstrip(")").split(" (section ")
        stem = H.stem
    else:
        *_, stem, heading, found = DOCUMENTS["linked"][name]
        assert problem(stem, heading) is None
    words = re.findall("`(.+?)`", found)
    words += re.findall(
        r"(?<!\w)\d[\d,.]*(?:e-?\d+)?\b", found.replace("1B", "")
    )
    there = section(stem, heading)
    missing = [
        w for w in words if not re.search(rf"\b{re.escape(w)}\b", there)
    ]
    assert missing == []


def listings(document: str) -> list[str]:
    """Return the fenced listings of a source document, as printed."""
    files = list(FOLDER.glob(f"{document}_*.txt"))
    if not files:
        pytest.skip("DOCUMENTS names no folder with the four documents")
    text = files[0].read_text(encoding="utf-8")
    return re.findall(r"```(?:python)?\n(.*?)```", text, flags=re.S)


def code_of_003() -> list[str]:
    """Return its 17 listings of code: no output, no command."""
    code = r"^(# |from |def |seqlen|xq = |freqs|h = |x_norm|###|prompt)"
    return [each for each in listings("003") if re.match(code, each.strip())]


def test_five_listings_are_syntax_errors():
    """As section 6 says, in the text that was converted from the PDF."""
    code, broken = code_of_003(), []
    for n, listing in enumerate(code):
        try:
            compile(listing, "003", "exec")
        except SyntaxError:
            broken.append(n)
    assert (len(code), broken) == (17, [2, 5, 7, 11, 13])
    assert "pat_str" in code[2] and "verify_xq" in code[11]
    assert "hookrightarrow" in code[13]
    first, middle, last = code[5:8]  # one function, which 003 cuts
    assert first.strip().endswith(":") and last.strip().count("return") == 1
    compile(
        "\n".join([first, *(indent(e, " ") for e in (middle, last))]),
        "",
        "exec",
    )


IMPORTS = (
    "import math\n",
    "import torch.nn.functional as F\n",
    "from typing import Tuple\n",
)


def program_003(change, imports=IMPORTS) -> str:
    """Return the listings of 003 with the changes n for which change(n)."""
    code = code_of_003()

    def apply(n, listing, pattern, new, flags=re.M):
        changed, count = re.subn(pattern, new, code[listing], flags=flags)
        assert count, (n, pattern)
        code[listing] = changed if change(n) else code[listing]

    pattern = f"pat_str={SPLIT_PATTERN!r},\n"
    apply(0, 2, r"pat_str = .*?(?=\n *mergeable)", lambda _: pattern, re.S)
    for n in (6, 7):  # one function
        apply(1, n, r"^(?=.)", "    ")
    apply(2, 11, r"^( *)(return False)", r"\1    \2")
    apply(3, 14, r"^(# .*) (x = )", r"\1\n\2")
    apply(4, 0, r"\A", "".join(imports))
    apply(5, 13, r"\n +\\hookrightarrow ", "")
    norm = code[4].splitlines()[-1]
    body = [norm, *(code[n] for n in (9, 10, 12, 13, 14)), "return x"]
    body = "\n".join(body).replace('"layers.0.', 'f"layers.{layer}.')
    apply(6, 15, r"^ +\.\.\.", lambda _: indent(body, "    "))
    apply(7, 0, r'(torch\.load\("[^"]*")', r"\1, map_location=device")
    apply(
        8, 6, r"^( *)(?=t = )", r"\1freqs = scale_frequencies(freqs, 32.0)\n\1"
    )
    return "\n".join(code)


def run_003(folder, bos, dtype="bfloat16", **options) -> tuple[str, dict]:
    """Return what the program prints last, or its error, and its names."""
    source = program_003(**options)
    source = source.replace("torch.bfloat16", f"torch.{dtype}")
    source = source.replace("original/", f"{folder}/")
    source = source.replace("128000", str(bos))
    names = {"scale_frequencies": scale_frequencies}
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(source, "003", "exec"), names)
    except SyntaxError:  # or one of its kinds
        return "SyntaxError", names
    except Exception as error:
        return type(error).__name__, names
    last = printed.getvalue().splitlines()[-1]
    return f"prints {last.removeprefix('The next token is: ')!r}", names


def test_003_with_its_changes_is_our_model(pocket, pocket_folder):
    """And each change is needed, as the table says."""
    given = pocket_folder, pocket.tokenizer.bos_id
    changes = DOCUMENTS["changes"]
    words, names = run_003(*given, change=lambda n: True)
    assert words == "prints ' Paris'"
    ours = pocket(names["tokens"].cpu())[-1]
    gap = (names["logits"].float().cpu() - ours).abs().max()
    assert gap < 0.02 * ours.abs().max()
    angles, c = names["freqs_cis"].cpu(), pocket.config
    rope = c.head_dim, len(angles), c.rope_theta, c.scaling_factor
    ours = torch.view_as_complex(precompute_freqs_cis(*rope))
    assert torch.allclose(angles, ours)
    for name in IMPORTS:  # each of the three
        others = [each for each in IMPORTS if each != name]
        left_out = dict(change=lambda n: True, imports=others)
        assert run_003(*given, **left_out)[0] == "NameError"
    for left, (_, change, _, without) in enumerate(changes):
        found, names = run_003(*given, change=partial(ne, left))
        if "map_location" in change:
            assert found == words or torch.cuda.is_available()
        else:
            assert without.startswith(found), left
        if "other angles" in without:
            assert not torch.allclose(names["freqs_cis"].cpu(), angles)


def test_in_float32_003_differs_by_rounding(
    pocket, pocket_folder, monkeypatch
):
    """So it has no slip that bfloat16 hides, but the plain frequencies."""
    load = torch.load
    monkeypatch.setattr(
        torch,
        "load",
        lambda *args, **options: {
            name: weight.float()
            for name, weight in load(*args, **options).items()
        },
    )
    given = pocket_folder, pocket.tokenizer.bos_id, "float32"
    for left_out, low, high in ((None, 0, 2e-6), (8, 2e-5, 1e-2)):
        words, names = run_003(*given, change=partial(ne, left_out))
        ours = pocket(names["tokens"].cpu())[-1]
        gap = (names["logits"].cpu() - ours).abs().max() / ours.abs().max()
        assert words == "prints ' Paris'" and low <= gap < high


def test_how_many_special_names_of_003_differ():
    (listing,) = (e for e in listings("003") if "special_tokens = [" in e)
    printed = listing[listing.index("[") : listing.index("mergeable_ranks = ")]
    pairs = zip(eval(printed), SPECIAL_TOKENS, strict=True)
    same = [i for i, (theirs, ours) in enumerate(pairs) if theirs == ours]
    assert same == [0, 1, 2, 3, 6, 7, 9]
    right = DOCUMENTS["linked"]["names"][3]
    assert f"{256 - len(same)} of 256 differ" in right


def test_the_shapes_in_003s_comments_are_the_1bs():
    code = "\n".join(code_of_003())
    pattern = r"layers\.0\.(\S+\.w\w\.weight)\"\].*\((\d+), (\d+)\)"
    found = {n: (int(a), int(b)) for n, a, b in re.findall(pattern, code)}
    shapes = tensor_shapes(LLAMA_1B)
    assert found == {name: shapes[f"layers.0.{name}"] for name in found}
    assert len(found) == 7


def test_sentencepiece_takes_its_own_sign_for_a_space(pocket):
    """As section 6 says; a tokenizer of a few pieces is enough."""
    sentencepiece = pytest.importorskip("sentencepiece")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b ab ba aab bba"]),
        model_writer=model,
        model_type="bpe",
        vocab_size=265,
        byte_fallback=True,
        minloglevel=2,
    )
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    assert sp.decode(sp.encode("a▁b")) == sp.decode(sp.encode("a b")) == "a b"
    t = pocket.tokenizer
    assert t.decode(t.encode("a▁b", bos=False, eos=False)) == "a▁b"


def test_pytorch_refuses_a_pickle_that_names_a_function():
    """As the row on `torch.load` says, without options."""
    file = io.BytesIO()
    torch.save({"w": print}, file)
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError):
        torch.load(file)


# -- arithmetic and sources in the rows ---------------------------------------


def test_the_numbers_of_the_stated_rows():
    c, shapes = LLAMA_1B, tensor_shapes(LLAMA_1B)
    base, plain = c.rope_theta, precompute_freqs_cis(64, 2, 500_000.0)[1]
    plain = torch.atan2(plain[:, 1], plain[:, 0]).double()  # (32,)
    gain = (plain - scale_frequencies(plain, 32.0)) / math.tau
    at = 6, 256, 8192, 131_072
    even = (torch.full((4,), 0.25).cumsum(0) - 0.25).tolist()
    table = precompute_freqs_cis(128, 2048)
    expected = {
        "kv_heads": f"{4 * 128}; Llama 2 7B {32 * 128:,}, Llama 3 8B {8 * 128:,}",
        "of_000": str(tuple(table.shape)),
        "padding": f"{50_257 + 1:,} rows; 003's Llama has {c.vocab_size:,}",
        "learned": f"{c.context_length * c.dim:,}",
        "beta": f"{len(shapes)} tensors",
        "fixed": f"{len(shapes)} tensors",
        "gamma": f"{sum(len(shape) == 1 for shape in shapes.values())} vectors",
        "sigma": f"{1e-3 / math.sqrt(1e-6 + 1e-5):.2f}, as printed 0.001/0.00101 "
        f"= {1e-3 / (1e-3 + 1e-5):.2f}",
        "base": f"{math.tau * 1e4 ** (126 / 128):,.0f} positions, with 500,000 "
        f"it takes {math.tau * 5e5 ** (126 / 128):,.0f}",
        "exponent": f"{math.tau * 1e4 ** (126 / 128):,.0f} positions for a "
        f"rotation, in the code {math.tau * 1e4 ** (252 / 128) / 1e6:.0f},000,000",
        "last_pair": f"{np.hypot(-0.6, 5.6):.2f}",
        "clockwise": f"({math.cos(0.5):.2f}, {math.sin(0.5):.2f})",
        "over_d": f"{base ** (-31 / 32):.1e}, its key head at {base ** (-7 / 8):.1e}",
        "overhead": f"{40 * 32 * 6 * 16:,} operations a token; a table adds "
        f"{c.dim:,}",
        "memory": f"complex {32 * 8}, each cosine and sine twice {2 * 64 * 4}, "
        f"a matrix {64 * 64 * 4:,}",
        "scaled": "{:.4f} at position 6, {:.2f} at 256, {:.2f} at 8,192, "
        "{:.1f} at 131,072".format(*((n * gain).max().item() for n in at)),
        "grouped": f"36 scores of 2,048 products, 32 heads have {32 * 36:,} of "
        f"64: {36 * 2048:,}",
        "per_group": f"= {c.n_heads // c.n_kv_heads} query heads",
        "keeps": f"= {c.n_heads * c.head_dim:,} = d, but `wk` has 8 · 64 = "
        f"{c.n_kv_heads * c.head_dim} rows",
        "alphabets": f"ln 65 = {math.log(65):.2f}, ln 50,258 = "
        f"{math.log(50_258):.2f}",
    }
    settled = {name: row[4] for name, row in DOCUMENTS["stated"].items()}
    for name, words in expected.items():
        assert words in settled[name], (name, words)
    assert not any("bias" in name or "freq" in name for name in shapes)
    reached = sum(before < 0.75 for before in even)
    exceeded = sum(before <= 0.75 for before in even)
    assert (reached, exceeded) == (3, 4)  # "exceeds"
    assert not hasattr(torch.nn.Module(), "reset_parameters")
    assert not hasattr(torch.nn, "Parameters")
    assert torch.full((3,), -math.inf).softmax(0).isnan().all()  # "mask"


def test_a_llama_has_no_dropout(pocket):
    """So training mode changes no logit, as the row on dropout says."""
    modules = pocket.modules()
    assert not any(isinstance(m, torch.nn.Dropout) for m in modules)


def test_000s_last_listing_builds_a_table_of_its_shape():
    (listing,) = (e for e in listings("000") if "def precompute_theta" in e)
    names = {"torch": torch}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(listing, names)
        table = names["precompute_theta_pos_frequencies"](128, 2048, "cpu")
    assert table.shape == (2048, 64)


def test_the_class_of_004_squares_frequencies_and_returns_float32():
    (listing,) = (e for e in listings("004") if "class RoPE:" in e)
    names = {"torch": torch}
    exec(listing, names)
    rope = names["RoPE"]
    theirs = rope.compute_freq(32, 9, 10_000)
    ours = torch.view_as_complex(
        SLIPS["squared frequencies"]["precompute_freqs_cis"](
            32, 9, 10_000.0, None
        )
    )
    assert torch.allclose(theirs, ours)
    x = torch.ones(1, 9, 2, 32, dtype=torch.bfloat16)
    assert rope.apply_rotary_embedding(x, theirs).dtype == torch.float32
    kept, _ = apply_rotary_emb(x, x, torch.view_as_real(theirs))
    assert kept.dtype == torch.bfloat16


def test_tiny_shakespeare_has_65_characters():
    file = FOLDER.parent / "data" / "tinyshakespeare" / "input.txt"
    if not file.is_file():
        pytest.skip("Tiny Shakespeare is not there")
    assert len(set(file.read_text(encoding="utf-8"))) == 65


def test_rows_name_sections_of_the_main_road_that_exist():
    """Such as "(03, section 3)", in H and in its rows."""
    cells = json.loads(H.read_text(encoding="utf-8"))["cells"]
    text = "".join("".join(cell["source"]) for cell in cells)
    text += json.dumps(DOCUMENTS, ensure_ascii=False)
    found = re.findall(r"(?<!\d)(0\d)(?:\]\([^)]*\))?, section (\d+)", text)
    assert len(found) > 5
    for notebook, number in found:
        (file,) = NOTEBOOKS.glob(f"{notebook}_*.ipynb")
        assert any(h.startswith(f"{number} · ") for h in headings(file))


# -- the eight formulas -------------------------------------------------------


def test_a_formula_of_the_documents_is_the_one_that_they_print(pocket):
    """The pair 000 prints; 003's ε and gate; the sign of 004."""
    cis = precompute_freqs_cis(4, 3, 10.0)  # (3, 2, 2)
    x = torch.arange(1.0, 13).view(3, 1, 4)
    change = SLIPS["the last pair"]["apply_rotary_emb"]
    theirs, _ = change(x, x, cis)
    ours, _ = apply_rotary_emb(x, x, cis)
    degrees = math.degrees(math.atan2(*cis[2, 1].flip(0).tolist()))
    assert torch.equal(theirs[..., :2], ours[..., :2])
    printed = rotated(x[2, 0, 2:].tolist(), degrees, False)
    assert np.allclose(theirs[2, 0, 2:], printed)
    back, _ = SLIPS["the other sign"]["apply_rotary_emb"](x, x, cis)
    assert torch.allclose(apply_rotary_emb(back, back, cis)[0], x, atol=1e-5)
    small = 1e-3 * torch.tensor([1.0, -1.0])
    outside = SLIPS["ε outside the root"]["rms_norm"]
    assert abs(outside(small, torch.ones(2), 1e-5)[0] - 0.99) < 0.01
    network, u = pocket.layers[0].feed_forward, torch.randn(4, 256)
    gate, up = network.w1(u), network.w3(u)
    for name, middle in {
        "gate at W3": gate * F.silu(up),
        "two gates": F.silu(gate) * gate.sigmoid() * up,
    }.items():
        changed = SLIPS[name]["FeedForward.forward"](network, u)
        assert torch.allclose(changed, network.w2(middle), atol=1e-5)


@pytest.mark.parametrize("name", SLIPS)
def test_a_formula_changes_the_logits_and_keeps_the_answer(pocket, name):
    ids = pocket.tokenizer.encode(PROMPT, bos=True, eos=False)
    right = pocket(torch.tensor(ids))
    with replaced(**SLIPS[name]):
        found = pocket(torch.tensor(ids))
    assert torch.equal(found, right) == (name == "as Meta's code")
    assert pocket.tokenizer.decode([found[-1].argmax().item()]) == " Paris"


@pytest.mark.slow
def test_smollm2_loses_its_answer_with_either_gate(smollm2_file):
    """As the first page and section 5 say."""
    llama = llamalib.load(smollm2_file, device="cpu", dtype=torch.float32)
    ids = llama.tokenizer.encode(PROMPT, bos=True, eos=False)
    lead = llama(torch.tensor(ids))[-1].softmax(-1).topk(2).values
    assert (lead - torch.tensor([0.77, 0.06])).abs().max() < 0.01
    for name, functions in SLIPS.items():
        with replaced(**functions):
            answer = llama(torch.tensor(ids))[-1].argmax().item()
        kept = llama.tokenizer.decode([answer]) == " Paris"
        assert kept == ("gate" not in name), name


@pytest.mark.slow
def test_without_norms_it_depends_on_how_the_matrices_are_drawn():
    """Section 1: a gradient of about 3,000, or of 1 with smaller matrices."""

    def rms(x):
        return x.square().mean().sqrt().item()

    torch.manual_seed(0)
    block = TransformerBlock(LLAMA_1B).requires_grad_(False)
    for matrix in block.parameters():
        if matrix.dim() == 2:
            matrix.normal_(std=0.02)
    cis, mask = precompute_freqs_cis(LLAMA_1B.head_dim, 6), causal_mask(6)
    start = (0.02 * torch.randn(6, LLAMA_1B.dim)).requires_grad_()
    for gradient, low, high in ((3000, 10, 1e9), (1, 0.019, 0.023)):
        x = start
        with replaced(rms_norm=lambda x, weight, eps: x):
            for _ in range(16):
                x = block(x[:, torch.randperm(LLAMA_1B.dim)], cis, mask)
        (grad,) = torch.autograd.grad(x, start, torch.randn_like(x))
        assert 0.8 * gradient < rms(grad) < 1.2 * gradient
        assert low < rms(x) < high
        for matrix in block.attention.wo, block.feed_forward.w2:
            matrix.weight.div_(math.sqrt(32))


def test_the_norm_of_003_in_bfloat16_differs_by_0_3_percent():
    x = torch.randn(1000, 2048, generator=torch.Generator().manual_seed(0))
    x = (x * torch.logspace(-3, 2.5, 1000)[:, None]).bfloat16()
    theirs = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
    ours = rms_norm(x.float(), torch.ones(2048), 1e-5)
    assert 0.002 < (theirs - ours).norm() / ours.norm() < 0.004


def test_rotated_embeddings_would_show_their_positions(pocket):
    """The row on embedding vectors: shifted by 100, the scores change."""
    w, c = pocket.state_dict(), pocket.config
    ids = pocket.tokenizer.encode(PROMPT, bos=True, eos=False)
    x = w["tok_embeddings.weight"][ids]  # (T, D)
    x = rms_norm(x, w["layers.0.attention_norm.weight"], c.norm_eps)[:, None]
    wq, wk = (w[f"layers.0.attention.w{n}.weight"][: c.head_dim] for n in "qk")
    angles = precompute_freqs_cis(c.dim, 100 + len(ids), c.rope_theta)
    scores = []
    for start in (0, 100):
        v, _ = apply_rotary_emb(x, x, angles[start : start + len(ids)])
        scores.append((v[:, 0] @ wq.T) @ (v[:, 0] @ wk.T).T)  # (T, T)
    before, after = scores
    change = (after - before).abs().max() / before.abs().max()
    assert (
        f"change by {100 * change:.0f} %" in DOCUMENTS["stated"]["vectors"][4]
    )


def test_a_second_turn_begins_with_the_ids_of_the_first(pocket):
    said = ("user", PROMPT), ("assistant", "Paris."), ("user", "And Peru?")
    chat = [dict(role=role, content=text) for role, text in said]
    first, second = (pocket.tokenizer.encode_chat(chat[:n]) for n in (1, 3))
    assert second[: len(first)] == first
    words = f"{len(second)} ids begin with the first's {len(first)}"
    assert words in DOCUMENTS["stated"]["history"][4]


def test_the_documents_print_the_ids_of_the_published_tokenizers():
    path = ROOT / "data" / "Llama-3-tokenizer" / "tokenizer.model"
    llama_2 = os.environ.get("LLAMA2_TOKENIZER")
    if not path.is_file() or not llama_2:
        pytest.skip("LLAMA2_TOKENIZER, or the file of Llama 3, is not there")
    ids = llamalib.Tokenizer.from_file(path).encode(
        PROMPT, bos=True, eos=False
    )
    assert ids == [128000, 791, 6864, 315, 9822, 374]
    sentencepiece = pytest.importorskip("sentencepiece")
    sp = sentencepiece.SentencePieceProcessor(model_file=llama_2)
    ids = [1, *sp.encode("Hello, this is a test sentence."), 2]
    assert ids == [1, 15043, 29892, 445, 338, 263, 1243, 10541, 29889, 2]


# -- section 4: the labels ----------------------------------------------------


def of_section_4() -> dict:
    """Return the notebook's `collate` and `gen_labels`."""
    (cell,) = (s for _, s in code_cells(H) if "def gen_labels" in s)
    names = {"torch": torch}
    exec(cell, names)
    return names


ROWS = [[5, 2, 7], [5, 2, 6, 8, 2], [9], []]  # 2 is the end token


def collator(pad):
    """Return the transformers library's collator, for a padding id."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    words = {f"<{i}>": i for i in range(10)}
    model = tokenizers.models.WordLevel(words, unk_token="<1>")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(model),
        pad_token=f"<{pad}>",
        eos_token="<2>",
    )
    return tokenizer, transformers.DataCollatorForLanguageModeling(
        tokenizer=tokenizer, mlm=False
    )


@pytest.mark.parametrize("pad", [0, 2])
@pytest.mark.parametrize("rows", [ROWS, [[5, 6], [7, 8]]], ids=["", "equal"])
def test_our_gen_labels_is_that_of_004(rows, pad):
    """With the transformers library's collator, as there."""
    (listing,) = (e for e in listings("004") if "def gen_labels" in e)
    body = listing[listing.index("  def gen_labels") :]
    body = body[: body.index('  batch["attention_mask"]')].rstrip()
    names = {"torch": torch}
    exec(dedent(body) + "\n    return labels", names)
    tokenizer, collate = collator(pad)
    given = [{"input_ids": row} for row in rows]
    theirs = names["gen_labels"](given, tokenizer, collate)
    made = of_section_4()
    ours = made["gen_labels"](made["collate"](rows, pad), 2)
    assert torch.equal(theirs, ours)


def test_the_other_traps_of_004s_labels(pocket):
    """The rows `copy` and `ends`: pad = end, and texts that were cut."""
    t, made = pocket.tokenizer, of_section_4()
    end, pad = t.eos_id, t.special_tokens["<|finetune_right_pad_id|>"]
    texts = ["One.", "One, two.", "One, two, three."]
    whole = [t.encode(text, bos=True, eos=False) for text in texts]
    ended = [row + [end] for row in whole]
    assert (made["collate"](ended, pad) == end).sum() == 3
    inner = made["collate"]([[5, 6, 2, 7, 8, 9, 2]], pad=2)
    found = made["gen_labels"](inner, 2).tolist()
    assert found == [[6, -100, 7, 8, 2, -100, -100]]
    cut = made["collate"]([row[:4] for row in whole], pad)
    assert (made["gen_labels"](cut, end)[:, -1] == end).sum() == 2
    found = made["gen_labels"](made["collate"](whole, pad), end)
    for row, labels in zip(whole, found, strict=True):
        assert labels[labels != -100].tolist() == row[1:] + [end]


# -- the widget ---------------------------------------------------------------


def test_a_rotation_keeps_the_length_and_the_printed_one_does_not():
    degrees = math.degrees(math.atan2(0.8, 0.6))
    assert np.allclose(rotated((3, 4), degrees, True), (-1.4, 4.8))
    assert np.allclose(rotated((3, 4), degrees, False), (-0.6, 5.6))
    for quarter in (0, 90, 180, 270):  # there, it keeps the length, too
        assert np.isclose(np.hypot(*rotated((3, 4), quarter, False)), 5)
    for degrees in (0, 20, 53, 200):  # and of a pair with equal numbers
        assert np.isclose(np.sum(rotated((3, 3), degrees, False) ** 2), 18)
