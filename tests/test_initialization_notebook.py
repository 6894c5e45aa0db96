"""Notebook 00: its count of the parameters, and the names in files."""

import pytest

from lessons.n00_initialization import (
    LARGER,
    by_place,
    check_1,
    check_2,
    list_files,
    silenced,
    tensors_in,
    without_parts,
)
from llamalib import LLAMA_1B, Tokenizer
from llamalib.gguf import BLOCK_TENSORS, TENSORS
from llamalib.hugging_face import their_name
from llamalib.probe import continuation, text_loss
from llamalib.tensors import tensor_shapes
from tests.gguf_files import write_gguf
from tests.helpers import (
    random_llama,
    small_config,
    small_ranks,
    write_checkpoint,
)
from tests.reference import write_transformers
from tests.taught import taught


@pytest.mark.parametrize(
    "tied, n", [(True, 1_235_814_400), (False, 1_498_482_688)]
)
def test_the_1b(tied, n):
    (count,) = taught("00_initialization", "count_parameters")
    assert count(LLAMA_1B, tied) == n


@pytest.mark.parametrize(
    "name, n",
    [
        ("Llama 3.2-3B", 3_212_749_824),
        ("Llama 3.1-8B", 8_030_261_248),
        ("Llama 3.1-70B", 70_553_706_496),
    ],
)
def test_the_larger_llamas_have_the_published_numbers(name, n):
    (count,) = taught("00_initialization", "count_parameters")
    assert count(*LARGER[name]) == sum(by_place(*LARGER[name]).values()) == n


def test_the_picture_counts_each_place():
    """The sums are those of the notebook's table for the 1B."""
    block, D, V = 60_821_504, 2048, 128_256
    found = by_place(LLAMA_1B, True)
    assert found == {
        "embedding": V * D,
        "attention": 16 * (8_388_608 + 2_097_152),
        "feed-forward": 16 * 50_331_648,
        "norms": 16 * 4096 + D,
    }
    assert sum(found.values()) == 16 * block + V * D + D
    assert by_place(LLAMA_1B, False) == found | {"output": V * D}


# -- the files --------------------------------------------------------------


def scaled_llama(tied):
    """Return a small Llama 3.2: its GGUF also has the factors of RoPE."""
    llama = random_llama(small_config(use_scaled_rope=True), tied=tied)
    llama.tokenizer = Tokenizer(small_ranks(llama.config.vocab_size - 256))
    return llama


def without_output(config, tied):
    """Return the shapes of the tensors that a file of one name each has."""
    shapes = tensor_shapes(config)
    if tied:
        del shapes["output.weight"]
    return shapes


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("shards", [1, 2])
def test_the_names_in_metas_files(tmp_path, shards, tied):
    llama = scaled_llama(tied)
    folder = write_checkpoint(tmp_path / "a", llama, shards=shards)
    shapes = tensor_shapes(llama.config)  # a tied output has two names
    expected = {n: (shape, "bfloat16") for n, shape in shapes.items()}
    assert tensors_in(folder) == expected


@pytest.mark.parametrize("tied", [True, False])
def test_the_names_in_a_safetensors_file(tmp_path, tied):
    llama = scaled_llama(tied)
    folder = write_transformers(llama, tmp_path / "a")
    shapes = without_output(llama.config, tied)
    expected = {their_name(n): (s, "F32") for n, s in shapes.items()}
    assert tensors_in(folder) == expected
    assert ("lm_head.weight" in tensors_in(folder)) != tied


@pytest.mark.parametrize("tied", [True, False])
def test_the_names_in_a_gguf(tmp_path, tied):
    llama = scaled_llama(tied)
    file = write_gguf(tmp_path / "a.gguf", llama, "F16")
    back = {f"{ggml}.weight": f"{n}.weight" for ggml, n in TENSORS.items()}
    for i in range(llama.config.n_layers):
        for ggml, name in BLOCK_TENSORS.items():
            back[f"blk.{i}.{ggml}.weight"] = f"layers.{i}.{name}.weight"
    found = {back[n]: shape for n, (shape, _) in tensors_in(file).items()}
    assert found == without_output(llama.config, tied)
    kinds = {kind for shape, kind in tensors_in(file).values() if shape[1:]}
    assert kinds == {"F16"}


def test_files_are_listed_once(tmp_path, capsys):
    folder = write_checkpoint(tmp_path / "a", random_llama(), shards=2)
    (folder / "figures.json").write_text("{}")  # is none of the three
    list_files(folder, folder / ".." / "a")
    first, *lines = capsys.readouterr().out.splitlines()
    names = "params.json consolidated.00.pth consolidated.01.pth"
    assert first == "a/" and [line.split()[0] for line in lines] == [
        *names.split(),
        "tokenizer.model",
    ]
    size = (folder / "tokenizer.model").stat().st_size
    assert lines[-1].split() == ["tokenizer.model", f"{size:,}", "bytes"]


# -- parts that are off -----------------------------------------------------


@pytest.mark.parametrize(
    "part, names",
    [
        ("attention off", ("attention.wo", "attention.wv", "attention_norm")),
        ("attention uniform", ("attention.wq", "attention.wk")),
        (
            "network off",
            [f"feed_forward.w{n}" for n in (1, 2, 3)] + ["ffn_norm"],
        ),
    ],
)
def test_nine_tensors_switch_three_things_off(pocket, part, names):
    """The widget writes what the model does with any of the tensors at 0."""
    prompt, w = "The capital of France is", pocket.state_dict()
    play = silenced(pocket, prompt)
    play.controls["part"].value = part
    play.controls["block"].value = 5
    texts = [each.get_text() for each in play.figure().axes[0].texts]
    usual = continuation(pocket, prompt, 18)
    assert texts[0] == "as it is" and texts[2] == f"block 5: {part}"
    text = "The capital of France is Paris."
    changes = without_parts(pocket, text)[part]
    loss = text_loss(pocket, text)
    for name in names:
        weight = w[f"layers.5.{name}.weight"]
        before = weight.clone()
        weight.zero_()
        try:
            found = continuation(pocket, prompt, 18)
            change = text_loss(pocket, text) - loss
        finally:
            weight.copy_(before)
        assert changes[5] == pytest.approx(change, abs=1e-4)
        whole = (prompt + found).replace("\n", "⏎")
        assert texts[3].replace("\n", " ") == " ".join(whole.split()), name
    assert continuation(pocket, prompt, 18) == usual  # no hook is left
    assert text_loss(pocket, text) == loss
    assert len(changes) == len({round(change, 4) for change in changes})
    assert found != usual


@pytest.mark.parametrize(
    "check, key", [(check_1, "tok_embeddings"), (check_2, "dim")]
)
def test_a_wrong_dict_names_a_key(check, key):
    right, words = check.verdict(lambda shapes: {"a": 1})
    assert not right and words == f"{key!r} is missing or wrong"
