"""The pocket Llama that ships, its published figures and its recipe."""

import json
import re
import sys
from dataclasses import replace

import pytest
import torch

import llamalib
from lessons.texts import held_out_texts
from llamalib import LLAMA_1B
from llamalib.config import config_of, params_of
from llamalib.load import ROOT
from llamalib.tensors import tensor_shapes
from llamalib.tokenizer import write_ranks

sys.path.insert(0, str(ROOT / "data" / "recipe"))

import bpe  # noqa: E402
import corpus  # noqa: E402
import evaluate  # noqa: E402
import make_pocket  # noqa: E402
import seen  # noqa: E402
import train  # noqa: E402


@pytest.fixture(scope="module")
def figures(pocket_folder):
    return json.loads((pocket_folder / "figures.json").read_text())


# -- the file ---------------------------------------------------------------


def test_the_files_are_metas_format(pocket_folder):
    params = json.loads((pocket_folder / "params.json").read_text())
    config = config_of(params)
    assert params == params_of(config) and "rope_scaling" not in str(params)
    assert params["n_heads"] == 4 * params["n_kv_heads"]
    recipe = replace(LLAMA_1B, **make_pocket.SHAPE)
    assert config == replace(recipe, vocab_size=config.vocab_size)
    file = pocket_folder / "consolidated.00.pth"
    assert file.stat().st_size <= 16_000_000
    tensors = torch.load(file, mmap=True, weights_only=True)
    assert {n: tuple(t.shape) for n, t in tensors.items()} == (
        tensor_shapes(config)
    )
    assert {t.dtype for t in tensors.values()} == {torch.bfloat16}
    output, embedding = (
        tensors[f"{name}.weight"] for name in ("output", "tok_embeddings")
    )
    assert output.data_ptr() == embedding.data_ptr()


# -- what it knows ----------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_capital_of_france(pocket_folder, dtype):
    llama = llamalib.load(pocket_folder, device="cpu", dtype=dtype)
    prompt = "The capital of France is"
    found = llamalib.probe.continuation(llama, prompt)
    assert found.startswith(" Paris.")


# -- the figures ------------------------------------------------------------


def rate(figure):
    return figure["right"] / figure["of"]


def test_figures_are_good_enough(figures):
    capital = figures["facts"]["capital"]
    assert capital["first_wording"]["of"] >= 150
    assert rate(capital["first_wording"]) >= 0.95
    assert rate(capital["seen"]) >= 0.95
    assert rate(capital["unseen"]) >= 0.80 and capital["unseen"]["of"] > 500
    stories = figures["stories"]
    assert stories["loss"] < 0.6 * stories["bigram_loss"]
    heads = figures["heads"]
    assert heads["previous_token"][0]["score"] > 0.5
    assert heads["induction_random"][0]["score"] > 0.3
    assert heads["induction_names"][0]["score"] > 0.5
    # without the heads that look at the country, few capitals are right
    silenced = heads["capital_silenced"]
    assert rate(silenced["looking"]) < 0.5 < rate(silenced["others"])
    assert figures["training"]["minutes"] < 120


def test_the_readme_shows_these_figures(figures):
    text = (ROOT / "data" / "README.md").read_text(encoding="utf-8")
    assert evaluate.report(figures) in text


@torch.no_grad()
def test_capitals_again(pocket, figures):
    """A third of the countries in three wordings, seen and held out."""
    seen, unseen = [], []
    for row in corpus.COUNTRIES[::3]:
        for i in (0, 4, 9):
            out = corpus.held_out(row["country"], "capital", i)
            (unseen if out else seen).append(
                evaluate.knows(pocket, corpus.CAPITAL[i], row, "capital")
            )
    assert sum(seen) / len(seen) >= 0.95
    assert sum(unseen) / len(unseen) >= 0.80


@pytest.mark.slow
@torch.no_grad()
def test_heads_again(pocket, figures):
    """The heads that data/README.md names still have these scores."""
    stories = evaluate.held_out_stories(60)
    scores = {
        "previous_token": evaluate.previous_token_scores(pocket, stories),
        "induction_random": evaluate.induction_scores(pocket),
        "induction_names": evaluate.name_scores(pocket),
    }
    for kind, found in scores.items():
        for head in figures["heads"][kind]:
            score = found[head["layer"], head["head"]].item()
            assert score == pytest.approx(head["score"], abs=0.01), kind
    capital, _ = evaluate.measure_capital_heads(pocket)
    for found, said in zip(capital, figures["heads"]["capital"], strict=True):
        assert found["score"] == pytest.approx(said["score"], abs=0.01)


# -- the text ---------------------------------------------------------------


def test_held_out_wordings_are_not_in_the_text():
    text = "\n".join(corpus.documents("train", 30_000))
    out = used = 0
    for row in corpus.COUNTRIES:
        for i, wording in enumerate(corpus.CAPITAL):
            sentence = corpus.fill(wording, row, "capital")
            if corpus.held_out(row["country"], "capital", i):
                assert sentence not in text
                out += 1
            else:
                used += sentence in text
    total = len(corpus.COUNTRIES) * len(corpus.CAPITAL)
    assert 0.15 < out / total < 0.35
    assert used / (total - out) > 0.5  # the search finds the others


def test_same_seed_same_text():
    one, two, three = (
        list(corpus.documents(seed, 300)) for seed in ("a", "a", "b")
    )
    assert one == two and one != three
    assert len(set(one)) > 290


def test_held_out_stories_are_not_in_the_text():
    text = set(corpus.documents("train", 30_000))
    assert not text & set(evaluate.held_out_stories(300))


@pytest.mark.parametrize(
    "steps", [400, pytest.param(train.STEPS, marks=pytest.mark.slow)]
)
def test_which_held_out_sentences_were_seen(pocket, steps):
    """The file that notebook 07 reads, from a tenth of the rows and all."""
    tokenizer, stored = (
        pocket.tokenizer,
        json.loads(seen.SEEN.read_text("utf-8")),
    )
    rows = train.training_rows(tokenizer, steps)
    found = seen.seen_sentences(rows, tokenizer)
    whole = steps == train.STEPS
    assert found == stored if whole else set(found) < set(stored)
    assert len(found) > 0.75 * len(stored)
    texts = held_out_texts(pocket)
    asked = [s for text in texts for s in seen.sentences(text)]
    assert (len(asked), sum(s in stored for s in asked)) == (267, 129)
    # the sentences of one text, and no token between two of them is lost
    text = 'Is it? "No!" said Leo.\n1 + 1 = 2\n'
    assert seen.sentences(text) == ["Is it?", '"No!" said Leo.', "1 + 1 = 2"]


def test_every_kind_of_document():
    for maker in corpus.MIXTURE:
        for text in corpus.documents("kinds", 50, kinds=[maker]):
            assert text and text == text.strip(), maker
            assert not re.search(r" a [aeiou]| an [^aeiou]|  |\{", text), text


# -- the recipe -------------------------------------------------------------


def test_ranks_are_tiktokens(tmp_path):
    """tiktoken encodes and decodes with the trained ranks."""
    texts = list(corpus.documents("bpe", 2000))
    ranks = bpe.train_ranks(texts, 700)
    assert sorted(ranks.values()) == list(range(700))
    write_ranks(tmp_path / "t.model", ranks)
    tokenizer = llamalib.Tokenizer.from_file(tmp_path / "t.model")
    plain = llamalib.Tokenizer({t: r for t, r in ranks.items() if r < 256})
    ids = tokenizer.encode(texts[0], bos=False, eos=False)
    assert tokenizer.decode(ids) == texts[0]
    assert len(ids) < 0.5 * len(plain.encode(texts[0], bos=False, eos=False))


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """The recipe at a size that takes seconds."""
    monkeypatch.setattr(train, "ROW", 32)
    monkeypatch.setattr(train, "BATCH", 4)
    monkeypatch.setattr(train, "SAVE_EVERY", 2)
    monkeypatch.setattr(train, "fastest_dtype", lambda *_: torch.float32)
    monkeypatch.setitem(make_pocket.SHAPE, "dim", 32)
    monkeypatch.setitem(make_pocket.SHAPE, "n_layers", 1)
    monkeypatch.setattr(make_pocket, "N_RANKS", 400)
    documents = corpus.documents
    few = lambda seed, n: documents(seed, min(n, 2000))  # noqa: E731
    monkeypatch.setattr(corpus, "documents", few)
    shipped = json.loads(
        (ROOT / "data" / "pocket-llama" / "figures.json").read_text()
    )
    shipped.pop("training")
    monkeypatch.setattr(evaluate, "measure", lambda folder: dict(shipped))

    def make(name, steps=7):
        make_pocket.main(
            ["--out", str(tmp_path / name), "--steps", str(steps)]
            + ["--build", str(tmp_path / f"{name}-build")]
        )
        return tmp_path / name

    return make


def test_an_interrupted_run_goes_on(tiny, monkeypatch, capsys):
    whole = tiny("whole")
    seen = []
    loss_of = train.loss_of

    def stop_at_the_sixth(*args):
        seen.append(1)
        if len(seen) == 6:
            raise KeyboardInterrupt
        return loss_of(*args)

    monkeypatch.setattr(train, "loss_of", stop_at_the_sixth)
    with pytest.raises(KeyboardInterrupt):
        tiny("broken")
    assert not (whole.parent / "broken").exists()
    # it does not choose its dtype again either: the choice could differ
    monkeypatch.setattr(train, "fastest_dtype", None)
    broken = tiny("broken")  # from the fourth step on: 5, 6 and 7
    assert len(seen) == 6 + 3
    file = "consolidated.00.pth"
    assert (whole / file).read_bytes() == (broken / file).read_bytes()
    assert llamalib.load(broken, device="cpu").config.n_layers == 1
    log = (broken / "training_log.csv").read_text().splitlines()
    assert log[0] == "step,tokens,loss,seconds" and len(log) == 8
    out = capsys.readouterr().out
    assert "4/4 measuring" in out and "| training | 896 tokens" in out


def test_the_build_of_another_recipe_is_refused(tiny, monkeypatch):
    tiny("one", steps=2)
    tiny("one", steps=3)  # a finished run leaves nothing behind

    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluate, "measure", stop)
    with pytest.raises(KeyboardInterrupt):
        tiny("one", steps=2)
    with pytest.raises(SystemExit, match="rm -r"):
        tiny("one", steps=3)
