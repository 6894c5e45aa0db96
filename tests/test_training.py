"""Labels, masks, the loss, a step, and the text: llamalib/training.py."""

import builtins
import csv
import json
import math
import sys

import pytest
import torch
import torch.nn.functional as F
from conftest import published
from helpers import (
    random_ids,
    random_llama,
    small_config,
    small_ranks,
    to_transformers,
)

import llamalib
from llamalib import training
from llamalib.formats.find import ROOT
from llamalib.training import (
    IGNORE,
    Renumbered,
    adamw_step,
    clip_by_norm,
    draw_rows,
    find_text,
    learning_rate,
    next_token_labels,
    next_token_loss,
    own_documents,
    pad_rows,
    read_documents,
    take_snapshot,
    training_mask,
)

sys.path.insert(0, str(ROOT / "data" / "recipe"))

import train  # noqa: E402

END = 99

# -- labels ------------------------------------------------------------------


def test_labels_of_a_padded_batch():
    tokens = torch.tensor([[1, 5, 6, 7], [1, 8, 0, 0], [1, 0, 0, 0]])
    labels = next_token_labels(tokens, torch.tensor([4, 2, 1]), END)
    assert labels.tolist() == [
        [5, 6, 7, END],
        [8, END, IGNORE, IGNORE],
        [END, IGNORE, IGNORE, IGNORE],
    ]
    assert labels.dtype == torch.int64
    assert tokens.tolist()[0] == [1, 5, 6, 7]  # the caller's stay


def test_a_text_that_is_cut_does_not_end():
    tokens = torch.tensor([[1, 5, 6], [1, 8, 9]])
    labels = next_token_labels(tokens, torch.tensor([4, 3]), END)
    assert labels.tolist() == [[5, 6, IGNORE], [8, 9, END]]


def test_labels_are_the_pairs_of_each_text():
    """Against a list of pairs, with padding of any id, cut and uncut."""
    generator = torch.Generator().manual_seed(0)
    for case in range(100):
        lengths = torch.randint(1, 12, (5,), generator=generator).tolist()
        rows = [random_ids(n, seed=case).tolist() for n in lengths]
        tokens, found = pad_rows(rows, most=8, pad_id=case % 3)
        labels = next_token_labels(tokens, found, END)
        for row, asked, ids in zip(tokens, labels, rows):
            pairs = list(zip(ids, [*ids[1:], END]))
            pairs = pairs[: 8 - (len(ids) > 8)]
            at = asked != IGNORE
            assert list(zip(row[at].tolist(), asked[at].tolist())) == pairs


def test_labels_are_those_of_document_004s_collator():
    """transformers' own collator, then 004's steps, on texts uncut."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import (
        DataCollatorForLanguageModeling,
        PreTrainedTokenizerFast,
    )

    words = {f"w{i}": i for i in range(50)} | {"[PAD]": 50, "[END]": 51}
    plain = Tokenizer(models.WordLevel(words, unk_token="[PAD]"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="[PAD]", eos_token="[END]"
    )
    collate = DataCollatorForLanguageModeling(tokenizer=tokenizer, mlm=False)
    generator = torch.Generator().manual_seed(0)
    for case in range(50):
        lengths = torch.randint(1, 9, (4,), generator=generator).tolist()
        rows = [random_ids(n, seed=case, vocab=50).tolist() for n in lengths]
        batch = collate([{"input_ids": row} for row in rows])
        tokens, found = pad_rows(rows, most=100, pad_id=50)
        assert torch.equal(batch["input_ids"], tokens)
        theirs = batch["labels"].roll(-1, dims=1)
        for row in theirs:
            padding = int((row == IGNORE).sum())
            row[-1] = IGNORE if padding else 51
            row[len(row) - padding - 1] = 51
        assert torch.equal(next_token_labels(tokens, found, 51), theirs)


def test_pad_rows():
    tokens, lengths = pad_rows([[1, 2, 3], [4]], most=2, pad_id=9)
    assert tokens.tolist() == [[1, 2], [4, 9]]
    assert lengths.tolist() == [3, 1]
    for rows in ([], [[1], []]):
        with pytest.raises(ValueError, match=f"there are {len(rows)} rows, o"):
            pad_rows(rows, most=2)


def test_every_text_is_drawn_once_before_any_is_again():
    drawn = draw_rows(10, 4, 10, seed=3)
    assert drawn.shape == (10, 4)
    rounds = drawn.flatten().view(4, 10)
    assert rounds.sort().values.tolist() == [list(range(10))] * 4
    assert rounds[0].tolist() != rounds[1].tolist()
    assert torch.equal(drawn, draw_rows(10, 4, 10, seed=3))
    assert not torch.equal(drawn, draw_rows(10, 4, 10, seed=4))


# -- mask --------------------------------------------------------------------


@pytest.mark.parametrize("side", ["right", "left"])
def test_mask_by_its_definition(side):
    real = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]).bool()
    real = real.flip(1) if side == "left" else real
    mask = training_mask(real)
    assert mask.shape == (2, 1, 5, 5) and mask.dtype == torch.float32
    for b in range(2):
        for t in range(5):
            for s in range(5):
                sees = s == t or (s < t and real[b, s])
                assert mask[b, 0, t, s] == (0 if sees else -math.inf)
    assert mask.softmax(-1).isfinite().all()


@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_changes_no_logit(side):
    """On the right the causal mask does; on the left this mask is needed."""
    llama = random_llama()
    # no angles, so that a shift to the right changes none
    llama._freqs_cis = torch.ones(256, llama.config.head_dim // 2) + 0j
    ids = random_ids(5)
    alone = llama(ids)
    padding = torch.tensor([7, 7, 7])
    order = (ids, padding) if side == "right" else (padding, ids)
    tokens = torch.cat(order)[None]
    real = torch.cat([torch.ones(5), torch.zeros(3)]).bool()[None]
    real = real if side == "right" else real.flip(1)
    mask = training_mask(real)
    masked = llama(
        tokens,
        attend=lambda q, k, v, _: llamalib.attention(q, k, v, mask),
    )
    assert torch.allclose(masked[real], alone, atol=1e-4)
    causal = llama(tokens)
    same = torch.allclose(causal[real], alone, atol=1e-4)
    assert same == (side == "right")


# -- the loss ----------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_loss_is_pytorchs(dtype):
    generator = torch.Generator().manual_seed(0)
    logits = 5 * torch.randn(3, 7, 50, generator=generator)
    logits = logits.to(dtype)
    labels = random_ids(3, 7, vocab=50)
    labels[0, 4:] = labels[2] = IGNORE
    wanted = F.cross_entropy(
        logits.double().flatten(0, 1), labels.flatten(), ignore_index=IGNORE
    )
    found = next_token_loss(logits, labels)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(wanted.item(), rel=1e-5)
    large = next_token_loss(logits.float() + 1000, labels)
    assert large.item() == pytest.approx(wanted.item(), rel=1e-3)
    assert next_token_loss(logits, labels * 0 + IGNORE).isnan()


def test_loss_is_transformers():
    """Its model shifts labels by itself: given the tokens, it finds ours."""
    llama = random_llama()
    theirs = to_transformers(llama)
    tokens = random_ids(2, 9)
    wanted = theirs(input_ids=tokens, labels=tokens).loss.item()
    labels = next_token_labels(tokens, torch.tensor([9, 9]), END)
    labels[:, -1] = IGNORE  # it asks for no end
    found = next_token_loss(llama(tokens), labels).item()
    assert found == pytest.approx(wanted, rel=1e-5)


# -- a step ------------------------------------------------------------------


def test_adamw_is_pytorchs():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(4, 5, generator=generator)
    theirs = torch.nn.Parameter(weight.clone())
    how = dict(betas=(0.8, 0.97), eps=1e-6, weight_decay=0.3)
    optimizer = torch.optim.AdamW([theirs], **how)
    m, v = torch.zeros(4, 5), torch.zeros(4, 5)
    for step in range(1, 30):
        grad = torch.randn(4, 5, generator=generator) * 10 ** (step % 5 - 3)
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * step
        theirs.grad = grad.clone()
        optimizer.step()
        weight, m, v = adamw_step(
            weight, grad, m, v, step, lr=0.01 * step, **how
        )
        assert torch.allclose(weight, theirs, rtol=1e-5, atol=1e-6), step


def test_adamw_changes_nothing_in_place():
    given = [torch.ones(3), torch.ones(3), torch.zeros(3), torch.zeros(3)]
    copies = [tensor.clone() for tensor in given]
    weight, m, v = adamw_step(*given, 1, lr=0.1)
    assert all(torch.equal(a, b) for a, b in zip(given, copies))
    assert torch.allclose(m, torch.full((3,), 0.1))
    assert torch.allclose(v, torch.full((3,), 0.05))
    # decay takes 1 % of 1, the step is the whole rate
    assert torch.allclose(weight, torch.full((3,), 1 - 0.01 - 0.1))


@pytest.mark.parametrize("most", [0.01, 1.0, 1e9])
def test_clipping_is_pytorchs(most):
    parameters = [torch.nn.Parameter(torch.zeros(n, 3)) for n in (2, 5)]
    for i, p in enumerate(parameters):
        p.grad = torch.arange(p.numel()).float().view_as(p) - i
    grads = [p.grad.clone() for p in parameters]
    clipped, norm = clip_by_norm(iter(grads), most)
    wanted = torch.nn.utils.clip_grad_norm_(parameters, most)
    assert norm.item() == pytest.approx(wanted.item(), rel=1e-6)
    for p, ours in zip(parameters, clipped):
        assert torch.allclose(p.grad, ours, rtol=1e-6)
    if most == 1e9:
        assert all(torch.equal(a, b) for a, b in zip(grads, clipped))


def test_learning_rate():
    rates = [learning_rate(step, 50, 0.1, 10) for step in range(50)]
    assert rates[0] == pytest.approx(0.01)
    assert rates[9] == rates[10] == 0.1
    assert rates[30] == pytest.approx(0.055)  # half of the way down
    assert rates[49] == pytest.approx(0.01, rel=0.02)
    assert rates[:10] == sorted(rates[:10])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert learning_rate(0, 1, 0.1, 1) == 0.1
    assert learning_rate(1, 1, 0.1, 1) == 0.1  # no division by 0


def test_the_recipes_rate_is_this_one_to_the_bit():
    """As it was written in the recipe before it was taught."""
    for steps in (7, 101, 4000):
        for step in range(steps):
            wanted = 2e-3 * (step + 1) / 100
            if step >= 100:
                done = (step - 100) / max(1, steps - 100)
                wanted = 2e-3 * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))
            assert train.learning_rate(step, steps) == wanted


def test_the_recipes_optimizer_spares_the_norms():
    llama = random_llama()
    matrices, norms = train.make_optimizer(llama).param_groups
    assert all(p.dim() == 2 for p in matrices["params"])
    assert all(p.dim() == 1 for p in norms["params"])
    assert (matrices["weight_decay"], norms["weight_decay"]) == (0.1, 0.0)
    assert len(norms["params"]) == 2 * llama.config.n_layers + 1


# -- the text ----------------------------------------------------------------


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No text beside the package, nor where Python was started."""
    monkeypatch.setattr(training, "ROOT", tmp_path / "package")
    (tmp_path / "here" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here" / "below")
    return tmp_path


def test_find_text(nowhere, monkeypatch):
    assert find_text() is None
    (nowhere / "here" / "data").mkdir()
    second = nowhere / "here" / "data" / "tinyshakespeare.txt"
    second.write_text("x")
    assert find_text() == second  # above the current folder
    first = second.with_name("TinyStories-train.txt")
    first.write_text("x")
    assert find_text() == first
    (nowhere / "package" / "data").mkdir(parents=True)
    own = nowhere / "package" / "data" / "tinyshakespeare.txt"
    own.write_text("x")
    assert find_text() == own
    monkeypatch.setenv("LLAMA_TEXT", str(second))
    assert find_text() == second
    assert find_text(first) == first
    # from where the project lies, though a notebook runs elsewhere
    monkeypatch.setenv("LLAMA_TEXT", "data/tinyshakespeare.txt")
    assert find_text() == own
    monkeypatch.setenv("LLAMA_TEXT", "")
    assert find_text() == own


def test_no_such_text(nowhere, monkeypatch):
    said = r"nothing.txt \(LLAMA_TEXT\) is not there; wanted a text file such"
    monkeypatch.setenv("LLAMA_TEXT", "nothing.txt")
    with pytest.raises(FileNotFoundError, match=f"{said}.*data/README.md"):
        find_text()
    with pytest.raises(FileNotFoundError, match=r"\(path\) is a folder, not"):
        find_text(nowhere)
    for name in ("~nobody-of-that-name/x", "x" * 300):
        with pytest.raises(FileNotFoundError, match=r"\(path\) is n"):
            find_text(name)
    with pytest.raises(ValueError, match='path is ""'):
        find_text("")


def written(tmp_path, data):
    file = tmp_path / "text.txt"
    file.write_bytes(data)
    return file


MANY = [f"Story {i}.\nIt ends." for i in range(30)]


@pytest.mark.parametrize(
    "data",
    [
        "\n\n".join(MANY),
        "\r\n\r\n".join(MANY).replace("Story", "Story"),
        "\n<|endoftext|>\n".join(m.replace("\n", "\n\n") for m in MANY),
        "\ufeff" + "\n\n\n\n".join(MANY) + "\n\n",
    ],
    ids=["blank lines", "of Windows", "TinyStories'", "a byte-order mark"],
)
def test_read_documents(tmp_path, data):
    found = read_documents(written(tmp_path, data.encode()))
    assert len(found) == 30
    assert found[0].split() == ["Story", "0.", "It", "ends."]
    assert "\r" not in "".join(found) and "<|" not in "".join(found)


def test_a_long_text_is_read_from_its_beginning(tmp_path):
    text = "\n\n".join(f"é{i:03d}" for i in range(100))
    file = written(tmp_path, text.encode())
    whole = read_documents(file)
    assert whole == [f"é{i:03d}" for i in range(100)]
    for most in range(190, 210):  # some end between é's two bytes
        found = read_documents(file, most)
        assert found == whole[: len(found)]
        assert len(found) == most // 7


@pytest.mark.parametrize(
    "data, said",
    [
        (b"", r"is empty \(0 bytes\)"),
        ("é".encode("latin1") * 50, "is not UTF-8: byte 0 is 0xe9"),
        ("a b\n\n".encode("utf-16") * 50, "is not UTF-8: byte 0 is 0xff"),
        (b"A long text without any blank line.\n" * 50, "has 1 texts; wanted"),
        (b" \n\n \n\n", "has 0 texts; wanted at least 20, with <.endoftext.>"),
        (b"<!DOCTYPE html><html>\n\n" * 50, "is an HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        ("\n\n".join(MANY).encode()[:-3] + b"\xc3", "not UTF-8: byte 5"),
    ],
)
def test_bad_texts(tmp_path, data, said):
    file = written(tmp_path, data)
    with pytest.raises(ValueError, match=said) as error:
        read_documents(file)
    assert str(file) in str(error.value)


def test_read_documents_of_nothing(tmp_path):
    with pytest.raises(FileNotFoundError, match="README.md says where to ge"):
        read_documents(tmp_path / "x")


def test_a_text_that_may_not_be_read(tmp_path, monkeypatch):
    file = written(tmp_path, b"x")

    def refused(*args, **more):  # as to anyone but an administrator
        raise PermissionError(13, "Permission denied", str(file))

    monkeypatch.setattr(builtins, "open", refused)
    with pytest.raises(PermissionError, match="may not be read by you"):
        read_documents(file)


def test_tiny_shakespeare(pocket):
    file = published("TINYSHAKESPEARE")
    assert find_text(file) == file
    found = read_documents(file)
    assert len(found) > 7000 and found[0].startswith("First Citizen:\n")
    assert len(set(file.read_text(encoding="utf-8"))) == 65  # appendix A
    raw = [pocket.tokenizer.encode(t, bos=True, eos=False) for t in found[:50]]
    small = Renumbered(pocket.tokenizer, raw)
    assert (
        small.decode(small.encode(found[7], bos=False, eos=False))
        == (found[7])
    )


def test_own_documents():
    stories = own_documents(40, ["gift_story", "animal_story"])
    assert len(stories) == 40
    assert all("friend" in story for story in stories)
    assert stories == own_documents(40, ["gift_story", "animal_story"])
    assert stories != own_documents(40, ["gift_story"], seed="other")
    mixture = own_documents(200)
    assert sum("capital" in text for text in mixture) > 20
    with pytest.raises(ValueError, match="no kinds of document: ghost_story"):
        own_documents(1, ["gift_story", "ghost_story"])


def test_own_documents_without_the_recipe(nowhere):
    with pytest.raises(FileNotFoundError, match="has no corpus.py: run the"):
        own_documents(1)


def test_the_recipe_leaves_no_path_behind():
    before = list(sys.path)
    own_documents(1)
    assert sys.path == before


@pytest.fixture
def tokenizer():
    return llamalib.Tokenizer(small_ranks())


def test_renumbered(tokenizer):
    raw = [tokenizer.encode(s, bos=True, eos=False) for s in ("abba", "cab")]
    small = Renumbered(tokenizer, raw)
    used = sorted({i for row in raw for i in row} | {tokenizer.eos_id})
    assert small.old == used
    assert small.vocab_size == small.n_words == len(used)
    assert [small.old[i] for i in (small.bos_id, small.eos_id)] == [
        tokenizer.bos_id,
        tokenizer.eos_id,
    ]
    assert small.stop_tokens == {small.eos_id}
    ids = small.encode("abba", bos=True, eos=True)
    assert [small.old[i] for i in ids] == [*raw[0], tokenizer.eos_id]
    assert small.decode(ids[1:-1]) == "abba"
    with pytest.raises(ValueError, match=f"'z' is not in the {len(used)} tok"):
        small.encode("abz", bos=False, eos=False)


def test_renumbered_wants_a_begin_and_an_end(tokenizer):
    tokenizer.eos_id = None
    with pytest.raises(ValueError, match="no begin or no end token"):
        Renumbered(tokenizer, [[1]])


# -- a run -------------------------------------------------------------------


def test_take_snapshot():
    llama = random_llama()
    ids = random_ids(6).tolist()
    seen = dict(step=7, loss=1.5, held=2.5, sample="x")
    shot = take_snapshot(llama, ids, **seen)
    assert (shot.step, shot.loss, shot.held, shot.sample) == (7, 1.5, 2.5, "x")
    maps = llamalib.attention_maps(llama, torch.tensor(ids))
    assert torch.equal(shot.maps, maps)
    wanted = llama(torch.tensor(ids))[-1].softmax(-1)
    assert torch.allclose(shot.probs, wanted, atol=1e-6)


def test_a_run_learns_what_repeats_and_the_end():
    """All parts together: three texts are learned by heart in 60 steps."""
    torch.manual_seed(0)
    llama = llamalib.Llama(small_config(vocab_size=20, n_layers=1))
    rows = [[1, 5, 6, 7, 8], [1, 9, 10], [1, 11, 12, 13]]
    tokens, lengths = pad_rows(rows, most=128)
    labels = next_token_labels(tokens, lengths, end_id=2)
    state = {n: [p.data, 0.0, 0.0] for n, p in llama.named_parameters()}
    losses = []
    for step in range(60):
        loss = next_token_loss(llama(tokens), labels)
        llama.zero_grad()
        loss.backward()
        losses.append(loss.item())
        names, parameters = zip(*llama.named_parameters())
        grads, _ = clip_by_norm([p.grad for p in parameters], 1.0)
        lr = learning_rate(step, 60, 1e-2, 10)
        for name, p, grad in zip(names, parameters, grads):
            state[name] = list(
                adamw_step(p.data, grad, *state[name][1:], step + 1, lr=lr)
            )
            p.data = state[name][0]
    assert losses[0] == pytest.approx(math.log(20), abs=0.2)
    # what begins a text cannot be known: ln 3 at 3 of 12 places
    assert losses[-1] == pytest.approx(math.log(3) / 4, abs=0.05)
    llama.requires_grad_(False)
    for row in rows:
        new = llamalib.generate(llama, row[:2], max_new_tokens=9, stop=(2,))
        assert list(new) == row[2:]


# -- what the notebook says of the pocket's log ------------------------------


def test_the_log_that_ships():
    folder = ROOT / "data" / "pocket-llama"
    with open(folder / "training_log.csv", encoding="utf-8") as file:
        log = list(csv.DictReader(file))
    assert [int(row["step"]) for row in log] == list(range(1, 4001))
    assert {int(row["tokens"]) // int(row["step"]) for row in log} == {
        train.BATCH * train.ROW
    }
    figures = json.loads((folder / "figures.json").read_text())
    assert figures["training"]["tokens"] == int(log[-1]["tokens"])
