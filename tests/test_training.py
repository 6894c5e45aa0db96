"""The functions of appendix A: labels, mask, loss, a step, a run, LoRA."""

import sys

import pytest
import torch
import torch.nn.functional as F

import llamalib
from llamalib import causal_mask, replaced
from llamalib.load import ROOT
from tests.helpers import (
    random_ids,
    random_llama,
    small_ranks,
)
from tests.taught import taught

sys.path.insert(0, str(ROOT / "data" / "recipe"))

import train  # noqa: E402

IGNORE, pad_rows, next_token_labels, training_mask = taught(
    "A_training",
    "IGNORE",
    "pad_rows",
    "next_token_labels",
    "training_mask",
)
next_token_loss, adamw_step, clip_by_norm, learning_rate = taught(
    "A_training",
    "next_token_loss",
    "adamw_step",
    "clip_by_norm",
    "learning_rate",
)
Compact, LoRA = taught("A_training", "CompactTokenizer", "LoRA")
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


# -- mask --------------------------------------------------------------------


@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_changes_no_logit(side):
    """At the right the causal mask is enough; at the left it is not."""
    llama = random_llama()

    def logits(tokens, mask):
        # without rotations, padding at the left moves no angle
        still = dict(apply_rotary_emb=lambda xq, xk, freqs_cis: (xq, xk))
        with replaced(causal_mask=lambda *_, **__: mask, **still):
            return llama(tokens)

    ids, padding = random_ids(5), torch.tensor([7, 7, 7])
    alone = logits(ids, causal_mask(5))
    order = (ids, padding) if side == "right" else (padding, ids)
    tokens = torch.cat(order)[None]
    real = torch.tensor([[1, 1, 1, 1, 1, 0, 0, 0]]).bool()
    real = real if side == "right" else real.flip(1)
    masked = logits(tokens, training_mask(real))
    assert torch.allclose(masked[real], alone, atol=1e-4)
    causal = logits(tokens, causal_mask(8))
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
    expected = F.cross_entropy(
        logits.double().flatten(0, 1), labels.flatten(), ignore_index=IGNORE
    )
    found = next_token_loss(logits, labels)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    large = next_token_loss(logits.float() + 1000, labels)
    assert large.item() == pytest.approx(expected.item(), rel=1e-3)
    assert next_token_loss(logits, labels * 0 + IGNORE).isnan()


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


@pytest.mark.parametrize("most", [0.01, 1.0, 1e9])
def test_clipping_is_pytorchs(most):
    parameters = [torch.nn.Parameter(torch.zeros(n, 3)) for n in (2, 5)]
    for i, p in enumerate(parameters):
        p.grad = torch.arange(p.numel()).float().view_as(p) - i
    grads = [p.grad.clone() for p in parameters]
    clipped, norm = clip_by_norm(iter(grads), most)
    expected = torch.nn.utils.clip_grad_norm_(parameters, most)
    assert norm.item() == pytest.approx(expected.item(), rel=1e-6)
    for p, ours in zip(parameters, clipped):
        assert torch.allclose(p.grad, ours, rtol=1e-6)
    if most == 1e9:
        assert all(torch.equal(a, b) for a, b in zip(grads, clipped))


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


# -- a tokenizer with fewer ids ----------------------------------------------


def test_compact_tokenizer():
    tokenizer = llamalib.Tokenizer(small_ranks())
    raw = [tokenizer.encode(s, bos=True, eos=False) for s in ("abba", "cab")]
    small = Compact(tokenizer, raw)
    used = sorted({i for row in raw for i in row} | {tokenizer.eos_id})
    assert small.old == used and small.vocab_size == len(used)
    assert small.old[small.bos_id] == tokenizer.bos_id
    assert small.stop_tokens == {small.eos_id}
    ids = small.encode("abba", bos=True, eos=True)
    assert [small.old[i] for i in ids] == [*raw[0], tokenizer.eos_id]
    assert small.decode(ids[1:-1]) == "abba"
    with pytest.raises(ValueError, match="has the tokens of 'z'"):
        small.encode("abz", bos=False, eos=False)
    tokenizer.eos_id = None
    with pytest.raises(ValueError, match="no begin or no end token"):
        Compact(tokenizer, raw)


# -- after pre-training ------------------------------------------------------


def test_lora_runs_inside_the_model_and_merges():
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
        merged.set_submodule(name, lora.merged())
        assert type(merged.get_submodule(name)) is torch.nn.Linear
    assert not torch.allclose(adapted(tokens), llama(tokens), atol=1e-2)
    found = adapted(tokens)
    assert torch.allclose(found, merged(tokens), atol=1e-4)
    found.sum().backward()
    for name, weight in adapted.named_parameters():
        is_thin = name.endswith((".a", ".b"))
        assert (weight.grad is not None) == is_thin, name
