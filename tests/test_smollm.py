"""A real English model that needs no account: SmolLM2-135M (Apache-2.0).

Its published config with random weights, a tokenizer of its kind, and the
notebooks on both.
"""

import json
import os
import random
import re

import pytest
import torch
import torch.nn.functional as F
from matplotlib import pyplot as plt

import llamalib
from lessons import nD_long_context as lesson_D
from lessons.texts import page
from llamalib.hugging_face import HuggingFaceTokenizer
from llamalib.load import describe
from tests.helpers import code_cells, executed
from tests.test_huggingface import gpt2_kind, same_ids, stream
from tests.test_notebooks import MAIN, run_twice
from tools.notebooks import all_notebooks

# https://huggingface.co/HuggingFaceTB/SmolLM2-135M, its config.json
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "hidden_act": "silu",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "is_llama_config": True,
    "max_position_embeddings": 8192,
    "model_type": "llama",
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_interleaved": False,
    "rope_scaling": None,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 49152,
}
SMALL = dict(
    num_hidden_layers=2,
    hidden_size=144,
    intermediate_size=384,
    vocab_size=900,
)
PATHS = {path.stem[:2].rstrip("_"): path for path in all_notebooks()}
FIRST = ("00",)  # it reads the files; nbval runs the others on SmolLM2
OTHERS = "01", "03", "04", "05", "06", "07", "08", "09"
SAID = (
    "from here on this notebook needs Llama 3's tokenizer, and SmolLM2-135M "
    "has another: run it without LLAMA_DIR, on the pocket Llama"
)


def write_folder(folder, dtype=torch.float32, **changes):
    """Write what the page holds; return the transformers library's model."""
    from transformers import LlamaConfig, LlamaForCausalLM

    settings = CONFIG | changes
    torch.manual_seed(0)
    theirs = LlamaForCausalLM(LlamaConfig(**settings)).to(dtype).eval()
    theirs.save_pretrained(folder)
    # the published file, which an older version of the library has written
    (folder / "config.json").write_text(json.dumps(settings))
    special = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
    gpt2_kind(special=special).save(str(folder / "tokenizer.json"))
    return theirs


@pytest.fixture(autouse=True)
def one_thread():
    """Set PyTorch to one thread: tests beside this one use the others."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small") / "SmolLM2-135M"
    folder.mkdir()
    return folder, write_folder(folder, **SMALL)


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """134,515,008 parameters in bfloat16, in 30 layers."""
    folder = tmp_path_factory.mktemp("full") / "SmolLM2-135M"
    folder.mkdir()
    write_folder(folder, dtype=torch.bfloat16)
    yield folder
    os.remove(folder / "model.safetensors")  # 270 MB


@torch.no_grad()
def test_the_same_numbers_and_ids(small):
    folder, theirs = small
    llama = llamalib.load(folder, device="cpu", check=True)
    tokens = torch.randint(0, 900, (2, 300))
    difference = (llama(tokens) - theirs(tokens).logits).abs().max()
    assert difference < 1e-5, difference
    ours = llama.tokenizer
    assert type(ours) is HuggingFaceTokenizer
    assert ours.bos_id == ours.eos_id == 0 and ours.stop_tokens == {0}
    same_ids(ours, gpt2_kind(special=ours.special_tokens))
    # the library puts nothing before a text, so neither does `encode`
    assert 0 not in ours.encode("ok", bos=True, eos=False)
    for seed in range(50):  # a random model's bytes need not be UTF-8
        torch.manual_seed(seed)
        ids = torch.randint(3, ours.n_words, (40,)).tolist()
        assert stream(ours, ids) == ours.decode(ids)


@torch.no_grad()
def test_full_shapes(full):
    from transformers import LlamaForCausalLM

    llama = llamalib.load(full, device="cpu")
    assert sum(p.numel() for p in llama.parameters()) == 134_515_008
    said = "SmolLM2-135M: L=30, D=576, H=9, KV=3, F=1536, V=49152, torch.bfl"
    assert describe(llama).startswith(said)
    tokens = torch.randint(0, 49152, (1, 12))
    theirs = LlamaForCausalLM.from_pretrained(full, dtype=torch.float32)
    difference = (llama.float()(tokens) - theirs(tokens).logits).abs().max()
    assert difference < 1e-5, difference


@pytest.fixture
def opened(small, monkeypatch):
    """Let notebooks open the small model, as if its file were a GGUF."""
    load = llamalib.load

    def without_bos(*args, **options):
        llama = load(*args, **options)
        llama.tokenizer.bos_id = None  # a folder has the config's
        return llama

    monkeypatch.setattr(llamalib, "load", without_bos)
    monkeypatch.setenv("LLAMA_DIR", str(small[0]))


@pytest.mark.parametrize(
    "number",
    [*FIRST, *(pytest.param(n, marks=pytest.mark.slow) for n in OTHERS)],
)
def test_the_main_road_runs(opened, number):
    """Each cell can be run twice; those tagged `long` are left out."""
    printed, changed = run_twice(code_cells(PATHS[number]))
    assert "SmolLM2-135M" in printed and changed == []
    said = r"The text below is about (.+); to .+ %env LLAMA_DIR=(.+) and then"
    (name, folder), *more = re.findall(said, printed)
    assert llamalib.load(folder).name.startswith(name) and not more


@pytest.mark.parametrize("number", ["A", "H"])
def test_what_needs_ranks_says_so(small, monkeypatch, number):
    monkeypatch.setenv("LLAMA_DIR", str(small[0]))
    with pytest.raises(ValueError, match=f"^{re.escape(SAID)}$"):
        run_twice(code_cells(PATHS[number]))


@pytest.mark.slow
@pytest.mark.parametrize("number", [*FIRST, *OTHERS])
def test_the_main_road_at_its_shapes(full, monkeypatch, number):
    """Every cell, the long ones too."""
    monkeypatch.setenv("LLAMA_DIR", str(full))
    cells = executed(PATHS[number]).cells
    assert all(c.execution_count for c in cells if c.cell_type == "code")


# -- texts without a begin token ---------------------------------------------


def run_cells(number, *starts, **names):
    """Run a notebook's first cell and those that begin so; return all names."""
    first, *rest = (source for _, source in code_cells(PATHS[number]))
    cells = [[s for s in rest if s.startswith(start)] for start in starts]
    names = MAIN | names
    for (source,) in ([first], *cells):
        exec(compile(source, "cell", "exec"), names)
        plt.close("all")
    return names


def plain(names, text):
    return names["llama"].tokenizer.encode(text, bos=False, eos=False)


def test_02_needs_words_of_english(opened):
    """The small tokenizer has none of its words as one token."""
    said = "^only 0 of these 33 English words are one token of SmolLM2-135M"
    with pytest.raises(ValueError, match=said):
        run_twice(code_cells(PATHS["02"]))


def test_07_each_token_but_the_first_has_a_surprisal(opened):
    names = run_cells(
        "07", "from lessons.texts import page", "def costs_of", F=F
    )
    text, ids = plain(names, page()), plain(names, " Marlow")
    assert len(names["nats"]) == len(text) - 1
    log_p = names["llama"](torch.tensor(text)).log_softmax(-1)
    places = range(len(text) - len(ids))
    starts = [t for t in places if text[t : t + len(ids)] == ids]
    right = [
        -sum(log_p[t + i - 1, n].item() for i, n in enumerate(ids))
        for t in starts
    ]
    assert len(right) == 4
    assert names["costs_of"](" Marlow") == pytest.approx(right, rel=1e-4)


def test_08_numbers_the_sentences_and_the_stop_tokens(opened, capsys):
    names = run_cells(
        "08",
        "def token_probs",
        "turns = range",
        "def beam",
        "def naive_generate",
        sample=llamalib.sample,
    )
    llama, five = names["llama"], names["five"]
    rest = llama(torch.tensor(five[0] + five[1])).softmax(-1)
    n = len(five[0])
    right = [rest[n + i, t] for i, t in enumerate(five[1][1:])]
    found = names["means"]([five[0], five[1]])
    right = torch.stack(right).mean().item()
    assert found[1].item() == pytest.approx(right, rel=1e-3)
    (score, text), wide = names["found"]
    new = llamalib.generate(
        llama, names["ids"], max_new_tokens=12, stop=()
    )  # a beam of width 1 is greedy
    assert text == names["ids"] + list(new) and wide[0] >= score - 1e-4
    printed = capsys.readouterr().out
    assert "nan" not in printed
    assert "stop tokens: ['0 <|endoftext|>']" in printed


def test_d_begins_a_text_with_its_first_needle(opened):
    llama = run_cells("D")["llama"]
    text, asked = lesson_D.telephone_text(llama, random.Random(0), 200)
    longest = max(len(question + number) for question, number in asked)
    assert 150 < len(text) <= 200 - longest
    decoded = llama.tokenizer.decode(text)
    assert re.match(r" \w+'s number is \d\d \d\d\. ", decoded)


def test_f_copies_words_where_nothing_is_before(opened):
    names = run_cells("F", "from lessons.texts", "def mean_diagonal")
    n, rows = names["n"], names["texts"]
    assert names["again"] == n  # no begin token stands before
    assert torch.equal(rows[:, :n], rows[:, n:]) and rows.shape == (3, 2 * n)
    assert all(len(set(row[:n].tolist())) == n for row in rows)
    maps = torch.zeros(1, 1, 2 * n, 2 * n)
    t = torch.arange(n, 2 * n)  # the token after the one at t - n
    maps[..., t, t - n + 1] = 1
    assert names["induction"](maps) == 1
    assert names["mean_diagonal"](maps, 1, 2) == 0


def test_f_draws_a_map_where_no_answer_can_move(opened):
    """The small model's weights are random: each prompt has one answer."""
    names = run_cells(
        "F",
        "QUESTION",
        "places =",
        "from contextlib",
        "donors =",
        "def run(",
        "cache =",
    )
    assert len(set(names["right"].tolist())) == 1
    assert names["carry"].isnan().all()  # 0 of 0
    assert names["cache"].length == names["T"] - 1
