"""Train the pocket Llama on the corpus, in steps that can be interrupted."""

import math
import time

import numpy as np
import torch
import torch.nn.functional as F
from tqdm import tqdm

from llamalib import training
from llamalib.model import Llama

ROW = 256  # tokens a row: the length trained at
BATCH = 16  # rows a step
PEAK_LR = 2e-3
WARM_UP = 100  # steps
SAVE_EVERY = 100  # steps


def pack_rows(documents, tokenizer, n_rows: int) -> np.ndarray:
    """Rows of ROW + 1 ids; each starts with a document's first token.

    Documents follow one another, each between its begin and end tokens; what
    of the last one does not fit is dropped.
    """
    rows = np.empty((n_rows, ROW + 1), dtype=np.uint16)
    row = []
    filled = 0
    for text in documents:
        row += tokenizer.encode(text, bos=True, eos=True)
        if len(row) > ROW:
            rows[filled] = row[: ROW + 1]
            row, filled = [], filled + 1
            if filled == n_rows:
                return rows
    raise ValueError(f"the corpus filled {filled} of {n_rows} rows")


def learning_rate(step: int, steps: int) -> float:
    """Up in a line over the warm-up, down on a half cosine to a tenth."""
    return training.learning_rate(step, steps, PEAK_LR, WARM_UP)


def fresh_model(config) -> Llama:
    """Weights to start from; what adds to the residual stream starts small."""
    torch.manual_seed(1)
    llama = Llama(config, tied=True)
    with torch.no_grad():
        for name, weight in llama.weights().items():
            if name.endswith(("wo.weight", "w2.weight")):
                weight /= math.sqrt(2 * config.n_layers)
    return llama


def make_optimizer(llama):
    """AdamW; the norms' weights, being vectors, do not decay."""
    parameters = list(llama.parameters())
    return torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.dim() > 1]},
            {
                "params": [p for p in parameters if p.dim() == 1],
                "weight_decay": 0.0,
            },
        ],
        betas=(0.9, 0.95),
        weight_decay=0.1,
        fused=True,
    )


def loss_of(llama, batch, dtype):
    """Mean cross-entropy in nats of every next token of (B, ROW + 1) ids."""
    device = batch.device.type
    with torch.autocast(device, dtype, enabled=dtype != torch.float32):
        logits = llama(batch[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def fastest_dtype(config, rows, device):
    """bfloat16 where a step in it is measurably faster, else float32.

    Processors without bfloat16 of their own are several times slower in it.
    """
    took = {}
    batch = torch.from_numpy(rows[:8].astype(np.int64)).to(device)
    llama = fresh_model(config).to(device)
    for dtype in (torch.float32, torch.bfloat16):
        for _ in range(3):  # the last one counts: the first warms up
            start = time.perf_counter()
            loss_of(llama, batch, dtype).backward()
            if device == "cuda":
                torch.cuda.synchronize()
            took[dtype] = time.perf_counter() - start
    return min(took, key=took.get)


def train(config, rows, build, device):
    """Train on each row once; go on from `build/state.pt` when it is there.

    Returns:
        the model, a log of (step, tokens, loss, seconds) for each step, and
        the dtype that the products were computed in.
    """
    llama = fresh_model(config).to(device)
    optimizer = make_optimizer(llama)
    steps = len(rows) // BATCH
    log = []
    state_file = build / "state.pt"
    if state_file.exists():
        state = torch.load(state_file, map_location=device, weights_only=True)
        llama.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        log = [tuple(entry) for entry in state["log"]]
        dtype = state["dtype"]
    else:
        dtype = fastest_dtype(config, rows, device)
    seconds = log[-1][3] if log else 0.0
    bar = tqdm(total=steps, initial=len(log), unit="step", smoothing=0.05)
    for step in range(len(log), steps):
        start = time.perf_counter()
        batch = rows[step * BATCH : (step + 1) * BATCH].astype(np.int64)
        loss = loss_of(llama, torch.from_numpy(batch).to(device), dtype)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(llama.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps)
        optimizer.step()
        loss = loss.item()
        if not math.isfinite(loss):
            raise RuntimeError(f"the loss is {loss} at step {step}")
        seconds += time.perf_counter() - start
        log.append((step + 1, (step + 1) * BATCH * ROW, loss, seconds))
        bar.update()
        bar.set_postfix(loss=f"{loss:.3f}")
        if (step + 1) % SAVE_EVERY == 0 or step + 1 == steps:
            save_state(state_file, llama, optimizer, log, dtype)
    bar.close()
    return llama, log, dtype


def save_state(state_file, llama, optimizer, log, dtype):
    """Write beside, then rename: a broken write loses nothing."""
    beside = state_file.with_suffix(".part")
    torch.save(
        {
            "model": llama.state_dict(),
            "optimizer": optimizer.state_dict(),
            "log": log,
            "dtype": dtype,
        },
        beside,
    )
    beside.replace(state_file)
