"""The functions of appendix A: labels, a step, LoRA."""

import math
import sys

import pytest
import torch
import torch.nn.functional as F

import llamalib
from lessons import nA_training as lesson
from llamalib import attention_weights, causal_mask, replaced
from llamalib.load import POCKET, ROOT
from tests.helpers import random_ids, random_llama
from tests.taught import taught

sys.path.insert(0, str(ROOT / "data" / "recipe"))

import train  # noqa: E402

IGNORE, pad_rows, next_token_labels = taught(
    "A_training", "IGNORE", "pad_rows", "next_token_labels"
)
adamw_step, learning_rate, LoRA = taught(
    "A_training", "adamw_step", "learning_rate", "LoRA"
)
END = 99

# -- labels ------------------------------------------------------------------


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
    """transformers' own collator, then 004's steps, on uncut texts."""
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


def labels_of_004(tokens, lengths, end_id):
    """Return what document 004's gen_labels gives, with its gaps filled."""
    T = tokens.shape[1]
    padded = torch.arange(T) >= lengths[:, None]  # (B, T)
    rolled = tokens.masked_fill(padded, IGNORE).roll(-1, dims=1)  # (B, T)
    for row in rolled:
        n = T - int((row == IGNORE).sum())  # all it knows of the length
        row[-1] = end_id if n == T else IGNORE
        row[n - 1] = end_id
    return rolled


def test_document_004_ends_a_text_that_was_cut():
    rows = [random_ids(n, seed=n).tolist() for n in (2, 4, 9)]
    whole, found = pad_rows(rows, most=20)
    ours = next_token_labels(whole, found, END)
    assert torch.equal(labels_of_004(whole, found, END), ours)
    cut, found = pad_rows(rows, most=4)
    theirs = labels_of_004(cut, found.clamp(max=4), END)
    ours = next_token_labels(cut, found, END)
    differ = (theirs != ours).nonzero().tolist()
    assert differ == [[2, 3]]  # the last position of the text that was cut
    assert theirs[2, 3] == END and ours[2, 3] == IGNORE


def test_document_004s_mask_leaves_nothing_to_padding_at_the_left():
    x = torch.zeros(1, 5, 1, 2)  # (B, T, H, hd)
    for real, n_nan in (([1, 1, 1, 0, 0], 0), ([0, 0, 1, 1, 1], 2)):
        hidden = ~torch.tensor(real).bool().repeat(5, 1)  # (T, S)
        mask = causal_mask(5).masked_fill(hidden, -torch.inf)
        weights = attention_weights(x, x, mask)  # (B, H, T, T)
        assert weights.isnan().all(-1).sum() == n_nan


# -- a run -------------------------------------------------------------------


def test_a_run_is_watched_at_even_steps(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        lesson.LivePicture, "show", lambda _, fig: drawn.append(fig)
    )
    model, beginning = random_llama(), random_ids(5)
    steps = [(n, 10.0 - n, 0.5) for n in range(1, 7)]
    found = lesson.watch(model, iter(steps), 6, lambda _: 2.0, every=3)
    assert (found.losses, found.norms) == ([9, 8, 7, 6, 5, 4], [0.5] * 6)
    assert found.held == [(0, 2.0), (3, 2.0), (6, 2.0)] and not drawn
    ln_v = math.log(model.config.vocab_size)

    class Shot(tuple):
        sample = "a text"

    monkeypatch.setattr(lesson, "look", lambda model, *now: Shot(now))
    found = lesson.watch(model, iter(steps), 6, lambda _: 2.0, 3, beginning)
    assert len(drawn) == 2
    # the mean of the losses so far, over 20 steps
    losses = [(0, ln_v), (3, 24 / 20), (6, 39 / 20)]
    for shot, now in zip(found.snapshots, losses, strict=True):
        assert shot[:2] == pytest.approx(now)
        assert shot[2] == 2.0 and shot[3] is beginning


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


def test_learning_rate():
    rates = [learning_rate(step, 50, 0.1, 10) for step in range(50)]
    assert rates[0] == pytest.approx(0.01)
    assert rates[9] == rates[10] == 0.1
    assert rates[30] == pytest.approx(0.055)  # halfway down
    assert rates[49] == pytest.approx(0.01, rel=0.02)
    assert rates[:10] == sorted(rates[:10])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert learning_rate(0, 1, 0.1, 1) == 0.1
    assert learning_rate(1, 1, 0.1, 1) == 0.1  # no division by 0


def test_the_recipes_optimizer_spares_the_norms():
    llama = random_llama()
    matrices, norms = train.make_optimizer(llama).param_groups
    assert all(p.dim() == 2 for p in matrices["params"])
    assert all(p.dim() == 1 for p in norms["params"])
    assert (matrices["weight_decay"], norms["weight_decay"]) == (0.1, 0.0)
    assert len(norms["params"]) == 2 * llama.config.n_layers + 1


# -- what document 001 says of norms -----------------------------------------


def gradients(factor, depth):
    """Return the norms of the gradients of a fresh model's wv, by layer."""
    torch.manual_seed(0)
    args = llamalib.ModelArgs(
        dim=64,
        n_layers=depth,
        n_heads=4,
        n_kv_heads=2,
        vocab_size=500,
        multiple_of=32,
        ffn_dim_multiplier=1.0,
        norm_eps=1e-5,
        rope_theta=500000.0,
    )
    model, tokens = llamalib.Llama(args), random_ids(4, 64, vocab=500)
    for name, p in model.named_parameters():
        if name.startswith("layers") and p.dim() > 1:
            p.data *= factor
    labels = next_token_labels(tokens, torch.tensor([64] * 4), END)
    F.cross_entropy(model(tokens).mT, labels).backward()
    layers = [layer.attention.wv.weight.grad.norm() for layer in model.layers]
    return torch.stack(layers)


def test_narrow_models_without_norms_explode_only_with_large_matrices():
    def scaled_only(x, weight, eps=1e-5):
        return x * weight

    for factor, depth in ((1, 12), (20, 3)):
        normal = gradients(factor, depth)
        with replaced(rms_norm=scaled_only):
            without = gradients(factor, depth)
        power = (without / normal).log10()
        if factor == 1:
            assert power.max() < -3 and without.max() < 2 * without.min()
        else:
            assert power.min() > 3


# -- after pre-training ------------------------------------------------------


@pytest.fixture(scope="module")
def pocket():
    return llamalib.load(ROOT / POCKET, device="cpu", dtype=torch.float32)


@pytest.mark.parametrize("large", [False, True])
def test_a_copy_has_its_own_weights_where_they_are_trained(monkeypatch, large):
    monkeypatch.setattr(lesson, "is_large", lambda llama: large)
    llama = random_llama()
    llama.requires_grad_(False)
    before = {n: p.clone() for n, p in llama.named_parameters()}
    shared = dict(lesson.copy_of(llama, trained=False).named_parameters())
    assert all(shared[n] is p for n, p in llama.named_parameters())
    tokens = random_ids(2, 7)

    def loss(model):
        return F.cross_entropy(model(tokens).mT, tokens.roll(-1, dims=1))

    tuned = lesson.tune(lesson.copy_of(llama), loss, lr=1e-2, steps=3)
    assert loss(tuned) < loss(llama)
    last = f"layers.{llama.config.n_layers - 1}."
    for name, p in llama.named_parameters():
        assert torch.equal(p, before[name]), name
        trained = not large or name.startswith(last)
        assert torch.equal(tuned.get_parameter(name), p) != trained, name


def test_a_report_counts_capitals(monkeypatch, capsys, pocket):
    facts = [("Italy", "Rome"), ("Chile", "Santiago")]
    said = ["It is Rome.", "It is Lima."]
    replies = [pocket.tokenizer.encode(x, bos=False, eos=False) for x in said]
    monkeypatch.setattr(lesson, "generate_batch", lambda *a, **k: replies)
    tokens = torch.tensor([[5, 6, 7, 8], [8, 7, 6, 5]])  # (B, T)
    eot = pocket.tokenizer.eot_id
    labels = torch.tensor([[-100, 7, eot, -100], [-100, -100, 9, eot]])
    each = F.cross_entropy(pocket(tokens).mT, labels, reduction="none")
    asked = facts, [[5], [6]], tokens, labels
    right, at, rest = lesson.report("base", pocket, *asked)
    assert right == 1
    assert at == pytest.approx(((each[0, 2] + each[1, 3]) / 2).item())
    assert rest == pytest.approx(((each[0, 1] + each[1, 2]) / 2).item())
    assert capsys.readouterr().out.startswith("base  1 of 2 right; ")


def test_the_countries_to_learn_are_not_those_to_ask():
    shown, others = lesson.countries(random_llama())
    assert (len(shown), len(others)) == (16, 64)
    assert not dict(shown).keys() & dict(others).keys()
    assert dict(others)["Italy"] == "Rome"


def test_lora_runs_inside_the_model():
    """It begins as its matrices; a gradient reaches the thin ones alone."""
    llama, adapted, merged = random_llama(), random_llama(), random_llama()
    tokens, names = random_ids(2, 7), []
    for name, module in llama.named_modules():
        if name.startswith("layers") and isinstance(module, torch.nn.Linear):
            lora = LoRA(module, rank=2, seed=len(names))
            adapted.set_submodule(name, lora)
            names.append(name)
    assert len(names) == 7 * llama.config.n_layers
    assert torch.equal(adapted(tokens), llama(tokens))
    for name in names:
        lora = adapted.get_submodule(name)
        torch.nn.init.normal_(lora.b, std=0.1)
        change = lora.scale * lora.b @ lora.a
        merged.get_submodule(name).weight.data += change
    assert not torch.allclose(adapted(tokens), llama(tokens), atol=1e-2)
    found = adapted(tokens)
    assert torch.allclose(found, merged(tokens), atol=1e-4)
    found.sum().backward()
    for name, weight in adapted.named_parameters():
        is_thin = name.endswith((".a", ".b"))
        assert (weight.grad is not None) == is_thin, name


def test_dpo_reads_rewards_back_from_the_best_model():
    """Appendix A's two answers: the differences are those of the rewards."""
    for beta in (1.0, 0.1):
        start, reward = (
            torch.tensor([0.5, 0.5]),
            torch.tensor([math.log(3), 0]),
        )
        best = start * (reward / beta).exp()
        best = best / best.sum()
        if beta == 1:
            assert best.tolist() == pytest.approx([0.75, 0.25])
        back = beta * (best / start).log()
        assert (back[0] - back[1]).item() == pytest.approx(math.log(3), 1e-4)
