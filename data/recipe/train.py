"""Train the pocket Llama on rows of ids; an interrupted run can go on."""

import hashlib
import math
import time

import corpus
import torch
import torch.nn.functional as F
from tqdm import tqdm

from lessons.texts import pack_rows
from llamalib import Llama

ROW = 256  # positions in a row: the length that is trained
BATCH = 16  # rows in a step
STEPS = 4000
PEAK_LR = 2e-3
WARM_UP = 100  # steps
SAVE_EVERY = 100  # steps


def training_rows(tokenizer, steps: int = STEPS) -> torch.Tensor:
    """Return the ids that this many steps read, (steps · BATCH, ROW + 1)."""
    n = steps * BATCH
    texts = corpus.documents("train", 100 * n)
    return pack_rows(texts, tokenizer, n, ROW)


def learning_rate(step: int, steps: int, peak: float, warm_up: int) -> float:
    """Return the rate of a step: a linear warm-up, then half a cosine.

    Appendix A explains it; it falls to a tenth of the peak.
    """
    if step < warm_up:
        return peak * (step + 1) / warm_up
    done = (step - warm_up) / max(1, steps - warm_up)
    return peak * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


def fresh_model(config, *, tied: bool = True, seed: int = 1) -> Llama:
    """Return fresh weights; matrices that add to the stream start small."""
    torch.manual_seed(seed)
    llama = Llama(config, tied=tied)
    with torch.no_grad():
        for name, weight in llama.named_parameters():
            if name.endswith(("wo.weight", "w2.weight")):
                weight /= math.sqrt(2 * config.n_layers)
    return llama


def make_optimizer(llama):
    """Return AdamW, with weight decay for matrices and none for norms."""
    matrices = [p for p in llama.parameters() if p.dim() > 1]
    norms = [p for p in llama.parameters() if p.dim() == 1]
    return torch.optim.AdamW(
        [{"params": matrices}, {"params": norms, "weight_decay": 0.0}],
        betas=(0.9, 0.95),
        weight_decay=0.1,
        fused=True,
    )


def loss_of(llama, batch, dtype):
    """Return the mean cross-entropy, in nats, of (B, ROW + 1) ids."""
    device = batch.device.type
    with torch.autocast(device, dtype, enabled=dtype != torch.float32):
        logits = llama(batch[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def fastest_dtype(config, rows, device):
    """Return the faster of float32 and bfloat16 for a training step.

    A processor without bfloat16 instructions is several times slower in it.
    """
    seconds = {}
    batch = rows[:8].to(device)
    llama = fresh_model(config).to(device)
    for dtype in (torch.float32, torch.bfloat16):
        for _ in range(3):  # the last one counts; the others warm up
            start = time.perf_counter()
            loss_of(llama, batch, dtype).backward()
            if device == "cuda":
                torch.cuda.synchronize()
            seconds[dtype] = time.perf_counter() - start
    return min(seconds, key=seconds.get)


def train(config, rows, build, device):
    """Train on each row once, continuing from `build/state.pt` if it exists.

    Args:
        rows: (n, ROW + 1) int64.

    Returns:
        the model, a log of (step, tokens, loss, seconds) for each step, and
        the dtype in which products were computed.
    """
    llama = fresh_model(config).to(device)
    optimizer = make_optimizer(llama)
    steps = len(rows) // BATCH
    recipe = hashlib.sha256(rows.numpy().tobytes())
    recipe.update(repr((config, PEAK_LR, BATCH)).encode())
    recipe = recipe.hexdigest()
    state_file = build / "state.pt"
    if state_file.exists():
        state = torch.load(state_file, map_location=device, weights_only=True)
        if state.get("recipe") != recipe:
            raise SystemExit(
                f"{build} holds an unfinished run of another recipe. To "
                f"start again, remove it: rm -r {build}"
            )
        llama.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        log, dtype = state["log"], state["dtype"]
    else:
        log, dtype = [], fastest_dtype(config, rows, device)
    seconds = log[-1][3] if log else 0.0
    bar = tqdm(total=steps, initial=len(log), unit="step", smoothing=0.05)
    for step in range(len(log), steps):
        start = time.perf_counter()
        batch = rows[step * BATCH : (step + 1) * BATCH].to(device)
        loss = loss_of(llama, batch, dtype)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(llama.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps, PEAK_LR, WARM_UP)
        optimizer.step()
        loss = loss.item()
        if not math.isfinite(loss):
            raise RuntimeError(f"the loss at step {step + 1} is {loss}")
        seconds += time.perf_counter() - start
        log.append((step + 1, (step + 1) * BATCH * ROW, loss, seconds))
        bar.update()
        bar.set_postfix(loss=f"{loss:.3f}")
        if (step + 1) % SAVE_EVERY == 0 or step + 1 == steps:
            state = dict(model=llama.state_dict(), log=log, dtype=dtype)
            state |= dict(optimizer=optimizer.state_dict(), recipe=recipe)
            # a new file, then renamed: an interruption loses nothing
            part = state_file.with_suffix(".part")
            torch.save(state, part)
            part.replace(state_file)
    bar.close()
    return llama, log, dtype
