"""Notebook 02's statements about what the pocket Llama was trained on."""

import json
import sys

import pytest
import torch

from lessons import n02_embed as nb02
from llamalib.load import ROOT

sys.path.insert(0, str(ROOT / "data" / "recipe"))

import corpus  # noqa: E402
import token_counts  # noqa: E402
import train  # noqa: E402


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


# -- statements about SmolLM2 -------------------------------------------------


def one_hot_in_float64(ids, V):
    return (ids[..., None] == torch.arange(V)).double()


def test_a_one_hot_vector_of_another_dtype_is_refused():
    right, words = nb02.check_1.verdict(one_hot_in_float64)
    assert right is False and "float32 table" in words
    right, words = nb02.check_1.verdict(
        lambda *given: one_hot_in_float64(*given).tolist()
    )
    assert right is False and words.endswith("expected a tensor")
