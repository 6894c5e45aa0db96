r"""Training: labels, the loss, one step of AdamW, and the text to learn from.

Shapes: `B` rows of a batch, `T` positions, `V` vocabulary, `L` layers, `H`
query heads.
"""

import codecs
import importlib
import math
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from .files import ROOT, read_start, reject_lookalikes
from .model import Llama, attention_maps

IGNORE = -100  # the label of a place that is asked nothing


# -- labels and mask ---------------------------------------------------------


def next_token_labels(tokens: Tensor, lengths: Tensor, end_id: int) -> Tensor:
    r"""What each place is asked: the token after its own.

    Args:
        tokens: (B, T) int64, each text at the left of its row, padding
            behind it.
        lengths: (B,) int64, how many tokens each text has; more than T for
            a text that the row cuts short.
        end_id: what follows a text's last token.

    Returns:
        (B, T) int64; IGNORE where nothing is asked: at padding, and at the
        last place of a text that is cut short, whose next token is not
        there.

    Source: document 004's gen_labels, which has no way to know of a cut.
    """
    place = torch.arange(tokens.shape[1], device=tokens.device)  # (T,)
    last = lengths[:, None] - 1  # (B, 1): beyond the row where it is cut
    labels = tokens.roll(-1, dims=1)  # (B, T)
    labels[:, -1] = IGNORE  # roll brought the row's first token there
    labels = labels.masked_fill(place == last, end_id)
    return labels.masked_fill(place > last, IGNORE)  # (B, T)


def training_mask(real: Tensor) -> Tensor:
    r"""What to add to the scores: no look ahead, and none at padding.

    A query may always look at itself: with padding at the left a padded one
    would have nothing else to look at, and an empty row has no softmax.

    Args:
        real: (B, T) bool, False at padding, on whichever side it is.

    Returns:
        (B, 1, T, T) float32: 0 where a query may look, -inf where not.
    """
    T = real.shape[1]
    place = torch.arange(T, device=real.device)  # (T,)
    causal = place <= place[:, None]  # (T, T)
    look = causal & real[:, None]  # (B, T, T)
    look = look | (place == place[:, None])  # (B, T, T)
    mask = torch.zeros(look.shape, device=real.device)
    return mask.masked_fill(~look, float("-inf"))[:, None]  # (B, 1, T, T)


def pad_rows(
    rows: Sequence[Sequence[int]], most: int, pad_id: int = 0
) -> tuple[Tensor, Tensor]:
    r"""Texts side by side in one tensor, padded at the right.

    Args:
        rows: B lists of ids.
        most: a longer text is cut to so many tokens.
        pad_id: what stands behind a text; any id will do.

    Returns:
        tokens (B, T) int64, T the longest row's; and lengths (B,) int64,
        as they were before any cut.

    Raises:
        ValueError: for no row, or an empty one.
    """
    if not len(rows) or not all(map(len, rows)):
        empty = [b for b, row in enumerate(rows) if not len(row)]
        raise ValueError(
            f"there are {len(rows)} rows, of which {len(empty)} are empty; "
            "wanted one or more, with at least one id each"
        )
    T = min(most, max(map(len, rows)))
    tokens = torch.full((len(rows), T), pad_id)  # (B, T)
    for b, row in enumerate(rows):
        tokens[b, : len(row)] = torch.tensor(row[:T])
    return tokens, torch.tensor([len(row) for row in rows])


def draw_rows(n: int, size: int, steps: int, seed: int) -> Tensor:
    r"""Which of n texts each step reads: all of them once, then all again.

    Returns:
        (steps, size) int64, in an order by chance, another each time round.
    """
    generator = torch.Generator().manual_seed(seed)
    rounds = -(-steps * size // n)
    orders = [torch.randperm(n, generator=generator) for _ in range(rounds)]
    return torch.cat(orders)[: steps * size].view(steps, size)


# -- the loss ----------------------------------------------------------------


def next_token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Mean cross-entropy: -ln p of each label, in nats.

    Args:
        logits: (B, T, V), any floating dtype; computed in float32.
        labels: (B, T) int64; places with IGNORE do not count.

    Returns:
        a float32 number; nan where no place has a label.
    """
    logits = logits.float()
    # softmax is the same for shifted logits, and e^100 is more than we hold
    logits = logits - logits.amax(dim=-1, keepdim=True)  # (B, T, V)
    sums = logits.exp().sum(dim=-1, keepdim=True)  # (B, T, 1)
    log_probs = logits - sums.log()  # (B, T, V)
    asked = labels != IGNORE  # (B, T)
    at = labels.masked_fill(~asked, 0)[..., None]  # (B, T, 1)
    return -log_probs.gather(-1, at)[..., 0][asked].mean()


# -- one step ----------------------------------------------------------------


def adamw_step(
    weight: Tensor,
    grad: Tensor,
    m: Tensor,
    v: Tensor,
    step: int,
    *,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.95),
    eps: float = 1e-8,
    weight_decay: float = 0.1,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""One step of AdamW for one tensor; nothing is changed in place.

    Args:
        weight, grad: of one shape.
        m, v: of that shape too: the running means of the gradient and of
            its square, zeros before the first step.
        step: 1, 2, …
        lr: the learning rate.
        betas: how much of m, and of v, is kept.
        eps: keeps from dividing by 0.
        weight_decay: what share of itself, times lr, a weight loses.

    Returns:
        the new weight, m and v.

    Source: Kingma and Ba 2014, arXiv:1412.6980; decoupled decay: Loshchilov
    and Hutter 2017, arXiv:1711.05101, where the decay is multiplied by the
    schedule's factor alone; by lr as a whole, as here, in PyTorch.
    """
    beta1, beta2 = betas
    m = beta1 * m + (1 - beta1) * grad
    v = beta2 * v + (1 - beta2) * grad**2
    # m and v began at 0, and are too small by these factors
    m_hat, v_hat = m / (1 - beta1**step), v / (1 - beta2**step)
    weight = weight - lr * weight_decay * weight
    return weight - lr * m_hat / (v_hat.sqrt() + eps), m, v


def learning_rate(step: int, steps: int, peak: float, warm_up: int) -> float:
    r"""Up in a line to the peak, down on a half cosine to a tenth of it.

    Args:
        step: 0 … steps - 1.
        steps: of the whole run.
        peak: the largest rate.
        warm_up: steps until it is reached.
    """
    if step < warm_up:
        return peak * (step + 1) / warm_up
    done = (step - warm_up) / max(1, steps - warm_up)
    return peak * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


def clip_by_norm(
    grads: Iterable[Tensor], most: float
) -> tuple[list[Tensor], Tensor]:
    r"""Gradients, all made shorter by one factor where they are too long.

    Args:
        grads: one tensor a parameter, of any shapes.
        most: the largest norm that all of them together may have.

    Returns:
        the gradients; and the norm that they had.

    Source: Pascanu et al. 2012, arXiv:1211.5063; the 1e-6 is PyTorch's.
    """
    grads = list(grads)
    norm = torch.stack([grad.norm() for grad in grads]).norm()
    scale = (most / (norm + 1e-6)).clamp(max=1)
    return [grad * scale for grad in grads], norm


# -- the text ----------------------------------------------------------------

TEXTS = ("TinyStories-train.txt", "tinyshakespeare.txt")
END_OF_TEXT = "<|endoftext|>"  # what TinyStories has between its stories
READ = 4_000_000  # bytes: of a text of gigabytes, its beginning
FEWEST = 20  # texts to learn from, and to hold out
FROM_WHERE = "data/README.md says where to get one"


def find_text(path=None) -> Path | None:
    r"""The file with the text to learn from.

    `path` where given; else `$LLAMA_TEXT` where set; else one of `TEXTS` in
    `data`, which is looked for as in `find_checkpoint`; else None: there is
    none, and `own_documents` has text.

    Raises:
        FileNotFoundError: if the file that is named is not there.
        ValueError: if path is "".
    """
    named = path if path is not None else os.environ.get("LLAMA_TEXT") or None
    if named == "":
        raise ValueError('path is ""; wanted a file with text, or None')
    if named is None:
        for root in (ROOT, Path.cwd(), *Path.cwd().parents):
            for name in TEXTS:
                if (root / "data" / name).is_file():
                    return root / "data" / name
        return None
    what, said = "not there", "LLAMA_TEXT" if path is None else "path"
    try:
        given = Path(named).expanduser()
        # a notebook runs in its own folder, not where its reader started it
        for file in (given, ROOT / given):
            if file.is_file():
                return file
            if file.is_dir():
                what = "a folder, not a file"
    except (OSError, RuntimeError) as error:  # a name that no file can have
        what = f"no name of a file ({getattr(error, 'strerror', error)})"
    raise FileNotFoundError(
        f"{str(named)[:200]} ({said}) is {what}; wanted a text file such as "
        f"data/{TEXTS[1]}: {FROM_WHERE}. Without one the project's own text "
        "is taken"
    )


def read_documents(file, most: int = READ) -> list[str]:
    r"""The texts in a file: stories, speeches, paragraphs.

    They stand between `<|endoftext|>` where the file has it, else between
    blank lines.

    Args:
        file: a path, as from `find_text`; UTF-8.
        most: bytes that are read; of a longer file the text that is cut off
            there is left out.

    Returns:
        what is not blank, without the space around it.

    Raises:
        FileNotFoundError, PermissionError.
        ValueError: for a file that is empty, is not UTF-8, or has fewer
            than `FEWEST` texts.
    """
    file = Path(file)
    if not file.is_file():
        raise FileNotFoundError(f"{file} is not there; {FROM_WHERE}")
    reject_lookalikes(file)
    data = read_start(file, most)
    whole = len(data) == file.stat().st_size
    try:  # a character that is cut in two at the end is no mistake
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(data, whole)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{file} is not UTF-8: byte {error.start} is "
            f"0x{data[error.start]:02x} ({error.reason}). Save it as UTF-8, "
            "or take another text"
        ) from None
    text = text.replace("\r\n", "\n")
    between = END_OF_TEXT if END_OF_TEXT in text else "\n\n"
    parts = text.split(between)
    found = [part.strip() for part in (parts if whole else parts[:-1])]
    found = [part for part in found if part]
    if len(found) < FEWEST:
        raise ValueError(
            f"{file} has {len(found)} texts; wanted at least {FEWEST}, with "
            f"{END_OF_TEXT} or a blank line between them"
        )
    return found


def own_documents(
    n: int, kinds: Sequence[str] | None = None, seed="appendix"
) -> list[str]:
    r"""Text of the generator that made what the pocket Llama has read.

    Args:
        n: how many documents.
        kinds: names of functions of data/recipe/corpus.py, such as
            "gift_story"; None: the mixture that the pocket was trained on.
        seed: the pocket's training text is that of "train".

    Raises:
        FileNotFoundError: if the recipe is not beside this package.
        ValueError: for a kind that there is not.
    """
    recipe = ROOT / "data" / "recipe"
    if not (recipe / "corpus.py").is_file():
        raise FileNotFoundError(
            f"{recipe} has no corpus.py: run the notebooks in the project's "
            "own folder, or set LLAMA_TEXT to a text file"
        )
    sys.path.insert(0, str(recipe))
    try:
        corpus = importlib.import_module("corpus")
    finally:
        sys.path.remove(str(recipe))
    makers = {f.__name__: f for f in (*corpus.MIXTURE, *corpus.STORIES)}
    wrong = [kind for kind in kinds or () if kind not in makers]
    if wrong:
        raise ValueError(
            f"no kinds of document: {', '.join(wrong)}; wanted some of "
            f"{', '.join(makers)}"
        )
    kinds = kinds and [makers[kind] for kind in kinds]
    return list(corpus.documents(seed, n, kinds))


class Renumbered:
    r"""A tokenizer with only the ids that some texts have, counted from 0.

    Args:
        tokenizer: a checkpoint's, with as many ids as it likes.
        rows: lists of its ids. The begin and end tokens are always kept.

    Attributes:
        old: its ids, ascending: `old[i]` is the tokenizer's id of i here.
        new: the other way: id there to id here.
        n_words, vocab_size: how many there are.
        bos_id, eos_id, stop_tokens: as a Tokenizer's, in ids of here.

    Raises:
        ValueError: for a tokenizer without a begin or an end token.
    """

    def __init__(self, tokenizer, rows: Iterable[Iterable[int]]):
        self.tokenizer = tokenizer
        kept = {tokenizer.bos_id, tokenizer.eos_id}
        if None in kept:
            raise ValueError(
                "the tokenizer has no begin or no end token, and a text needs "
                "both to be learned; take another checkpoint's"
            )
        self.old = sorted(kept.union(*rows))
        self.new = {old: new for new, old in enumerate(self.old)}
        self.n_words = self.vocab_size = len(self.old)
        self.bos_id = self.new[tokenizer.bos_id]
        self.eos_id = self.new[tokenizer.eos_id]
        self.stop_tokens = frozenset({self.eos_id})

    def encode(self, s: str, *, bos: bool, eos: bool) -> list[int]:
        r"""Text to ids.

        Raises:
            ValueError: for text with a token that is not kept.
        """
        ids = self.tokenizer.encode(s, bos=bos, eos=eos)
        strange = [i for i in ids if i not in self.new]
        if strange:
            raise ValueError(
                f"{self.tokenizer.decode(strange[:1])!r} is not in the "
                f"{self.n_words} tokens of the training text; take words "
                "that it has"
            )
        return [self.new[i] for i in ids]

    def decode(self, ids: Iterable[int]) -> str:
        """Ids to text."""
        return self.tokenizer.decode([self.old[i] for i in ids])


# -- what is kept of a run ---------------------------------------------------


@dataclass(frozen=True)
class Snapshot:
    r"""A model in the middle of its training, as it is to be looked at.

    Fields:
        step: so many steps are done.
        loss, held: on the text that is learned, and on other text, in nats.
        sample: a text that it made.
        maps: (L, H, T, T), see `attention_maps`.
        probs: (V,), of the token after the text of the maps.
    """

    step: int
    loss: float
    held: float
    sample: str
    maps: Tensor
    probs: Tensor


def take_snapshot(
    llama: Llama,
    ids: Sequence[int],
    *,
    step: int,
    loss: float,
    held: float,
    sample: str,
) -> Snapshot:
    r"""What the model makes of a text now: where it looks, what it expects.

    Args:
        ids: T ids of the text, the same in every snapshot.
        others: kept as they are, see `Snapshot`.
    """
    tokens = torch.tensor(ids, device=llama.device)  # (T,)
    with torch.no_grad():
        probs = llama(tokens, last_only=True)[-1].softmax(-1).cpu()  # (V,)
    maps = attention_maps(llama, tokens)  # (L, H, T, T)
    return Snapshot(step, loss, held, sample, maps, probs)
