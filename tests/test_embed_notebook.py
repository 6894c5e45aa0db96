"""Notebook 02's statements about what the pocket Llama was trained on."""

import json
import math
import sys

import pytest
import torch
from pytest import approx

from llamalib.load import ROOT
from tests.helpers import code_cells

sys.path.insert(0, str(ROOT / "data" / "recipe"))

import corpus  # noqa: E402
import token_counts  # noqa: E402
import train  # noqa: E402

NOTEBOOK = ROOT / "notebooks" / "02_embed.ipynb"


@pytest.fixture
def counts(pocket_folder):
    return json.loads((pocket_folder / token_counts.FILE).read_text())


def test_each_id_of_a_row_counts(tmp_path):
    token_counts.write(tmp_path, torch.tensor([[5, 2, 5], [0, 5, 2]]), 7)
    counts = json.loads((tmp_path / token_counts.FILE).read_text())
    assert counts == [1, 0, 2, 0, 0, 3, 0]


def test_the_counts_are_those_of_the_pockets_training(pocket, counts):
    rows = train.STEPS * train.BATCH
    assert len(counts) == pocket.config.vocab_size
    assert sum(counts) == rows * (train.ROW + 1)
    t = pocket.tokenizer
    # a row has at least one document, from its begin token on
    assert counts[t.bos_id] >= rows
    few = train.training_rows(t, 20)
    assert few.shape == (20 * train.BATCH, train.ROW + 1)
    found = few.flatten().bincount(minlength=len(counts))
    assert (found <= torch.tensor(counts)).all()
    first = next(iter(corpus.documents("train", 1)))
    ids = t.encode(first, bos=True, eos=True)[: train.ROW]
    assert few[0, : len(ids)].tolist() == ids


@pytest.mark.slow
def test_all_counts_again(pocket, counts):
    """Half a minute."""
    rows = train.training_rows(pocket.tokenizer)
    assert rows.flatten().bincount(minlength=len(counts)).tolist() == counts


def test_rows_that_were_never_trained_share_a_direction(pocket, counts):
    W, times = pocket.tok_embeddings.weight, torch.tensor(counts)
    special = pocket.tokenizer.special_tokens
    reserved = [i for name, i in special.items() if "reserved" in name]
    direction = W[reserved].mean(0)
    cosines = torch.cosine_similarity(W, direction[None])
    alike = cosines > 0.99
    assert alike.sum() == 683 and (times[alike] == 0).sum() == 677
    assert times[~alike].min() == 5
    often = times > 10_000
    near = cosines[often].abs() < 2 / W.shape[1] ** 0.5
    assert near.float().mean() > 0.8


def test_sinusoids_by_the_formula():
    names = {"torch": torch}
    (source,) = (
        source
        for _, source in code_cells(NOTEBOOK)
        if source.startswith("def sinusoids")
    )
    exec(source.split("\n\n\n")[0], names)
    found = names["sinusoids"](64, 10)
    for t in (0, 1, 63):
        for i in range(5):
            angle = t / 10000 ** (2 * i / 10)
            pair = [math.sin(angle), math.cos(angle)]
            assert found[t, 2 * i : 2 * i + 2].tolist() == approx(
                pair, abs=1e-4
            )
