"""Open a checkpoint: its settings, its tensors, and what it computes."""

import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from ..files import read_json
from ..formats import huggingface, meta
from ..formats.checks import check_content
from ..formats.params import config_of, read_params
from ..formats.placing import join
from ..model import Llama, ModelArgs, causal_mask, precompute_freqs_cis
from .files import UNKNOWN, Row, judge

FIELDS = "scaling_factor rope_theta norm_eps context_length n_heads".split()


class Lazy(dict):
    """Tensors by Meta's name, made when looked up: one float32 at a time."""

    def __getitem__(self, name):
        return super().__getitem__(name)()


@dataclass(frozen=True)
class Opened:
    """A checkpoint to compute with."""

    config: ModelArgs
    tokenizer: object
    tied: bool
    w: Lazy

    @torch.inference_mode()
    def logits(self, ids: list[int]) -> Tensor:
        """Return (T, V) float32 logits on the CPU."""
        c, device = self.config, self.w["norm.weight"].device
        angles = c.head_dim, len(ids), c.rope_theta, c.scaling_factor
        freqs_cis = precompute_freqs_cis(*angles).to(device)
        mask = causal_mask(len(ids), device=device)
        x = torch.tensor(ids, device=device)  # (T,), then (T, D), then (T, V)
        with torch.device("meta"):  # shapes only: the weights come in turn
            llama = Llama(c, tied=False)
        x = self.run(llama.tok_embeddings, "tok_embeddings", x)
        for i, layer in enumerate(llama.layers):
            x = self.run(layer, f"layers.{i}", x, freqs_cis, mask)
        x = self.run(llama.norm, "norm", x)
        return self.run(llama.output, "output", x).float().cpu()

    def run(self, module, name: str, *inputs) -> Tensor:
        """Run a part of the model with its weights, then let them go."""
        weights = {k: self.w[f"{name}.{k}"] for k in module.state_dict()}
        return torch.func.functional_call(module, weights, inputs)


def read_config(folder: Path) -> ModelArgs:
    """Return the settings of a folder in either format."""
    if (folder / "params.json").is_file():
        return read_params(folder / "params.json")
    file = folder / "config.json"
    return huggingface.model_args(read_json(file), file)


def open_folder(folder: Path, facts: dict, dtype) -> tuple[Opened, list[Row]]:
    """Return a checkpoint that computes in a dtype, and its tensors' rows."""
    form = meta if (folder / "params.json").is_file() else huggingface
    config, tokenizer, tensors, tied = form.read_folder(folder)
    check_content(folder, tensors)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    make = {n: partial(join, n, p, device, dtype) for n, p in tensors.items()}
    if tied:
        make["output.weight"] = make["tok_embeddings.weight"]
    opened = Opened(config, tokenizer, tied, Lazy(make))
    return opened, tensor_rows(opened, tensors, facts)


def setting_row(config: ModelArgs, facts: dict) -> Row:
    """Compare the settings with the published ones."""
    if "params" not in facts:
        return Row(UNKNOWN, "settings", "none known for these shapes")
    right = config_of(facts["params"])
    pairs = [(n, getattr(config, n), getattr(right, n)) for n in FIELDS]
    wrong = [f"{n} is {a}, not {b}" for n, a, b in pairs if a != b]
    words = ", ".join(f"{n} {a}" for n, a, _ in pairs)
    bad = f"{', '.join(wrong)}. Correct the config, or take the published one"
    return judge(not wrong, "settings", words, bad)


def tensor_rows(opened: Opened, tensors: dict, facts: dict) -> list[Row]:
    """Compare parameters, dtype, tying, the numbers and the stop ids."""
    shapes = meta.tensor_shapes(opened.config)
    dtypes = {str(p.dtype)[6:] for parts in tensors.values() for p in parts}
    keys, words = ("parameters", "dtype", "tied"), "{:,} {}, tied output: {}"
    count = sum(torch.Size(shapes[n]).numel() for n in tensors)
    found = count, " and ".join(sorted(dtypes)), opened.tied
    right = tuple(map(facts.get, keys, found))
    bad = f"{words.format(*found)}; published {words.format(*right)}"
    rows = [judge(found == right, "tensors", words.format(*found), bad)]
    if "tensors" in facts:
        rows.append(number_row(tensors, facts["tensors"]))
    ends, begin = opened.tokenizer.stop_tokens, facts.get("begin", 0)
    right = {begin + 1, begin + 8, begin + 9}  # of a text, message and turn
    words = f"{sorted(ends)}, Llama 3's are {sorted(right)}"
    bad = f"{words}: correct eos_token_id, or take the published config"
    row = judge(set() < ends <= right, "stop ids", words, bad)
    return [*rows, row] if begin else rows


def number_row(tensors, published: dict) -> Row:
    """Compare the SHA-256 of every tensor, and say whose numbers it has."""
    owner = {c: f"those of {n}" for n, c in published.items()}
    found = {n: digest(n, parts) for n, parts in tensors.items()}
    wrong = {n: c for n, c in found.items() if c != published.get(n)}
    said = [f"{n} has {owner.get(wrong[n], 'other numbers')}" for n in wrong]
    bad = "; ".join(said[:4]) + f"; tensors in all: {len(said)}"
    good = f"SHA-256 of {len(found)} tensors as published"
    return judge(not said, "numbers", good, bad)


def digest(name: str, parts: list[Tensor]) -> str:
    """Return the first 16 digits of a tensor's SHA-256, in its own dtype."""
    numbers = join(name, parts, "cpu", parts[0].dtype).view(torch.uint8)
    return hashlib.sha256(numbers.numpy()).hexdigest()[:16]
