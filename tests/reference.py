"""Random checkpoints of the 1B's shapes, in Meta's format and in others'.

The tests and the benchmarks compare with what other libraries make of them.
"""

import json
from dataclasses import replace
from functools import partial
from itertools import islice, product
from pathlib import Path

import torch
from torch import Tensor

import llamalib
from llamalib.config import params_of
from llamalib.load import ROOT
from llamalib.tensors import tensor_shapes
from llamalib.tokenizer import read_ranks, write_ranks

POCKET = ROOT / "data" / "pocket-llama"
WEIGHTS = "consolidated.00.pth"
TRANSFORMERS_NAMES = {
    "tok_embeddings": "model.embed_tokens",
    "norm": "model.norm",
    "output": "lm_head",
    "attention.wq": "self_attn.q_proj",
    "attention.wk": "self_attn.k_proj",
    "attention.wv": "self_attn.v_proj",
    "attention.wo": "self_attn.o_proj",
    "feed_forward.w1": "mlp.gate_proj",
    "feed_forward.w2": "mlp.down_proj",
    "feed_forward.w3": "mlp.up_proj",
    "attention_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def weights(llama) -> dict[str, Tensor]:
    """Return the parameters by Meta's names; a tied one has two names."""
    return dict(llama.named_parameters(remove_duplicate=False))


def save_under(file: Path, write) -> None:
    """Write under another name and rename: no incomplete file has the name."""
    part = file.with_name(file.name + ".part")
    write(part)
    part.replace(file)


# -- Meta's format -----------------------------------------------------------


def byte_strings(n: int, most: int):
    """Yield the first strings of n bytes."""
    return (bytes(b) for b in islice(product(range(256), repeat=n), most))


def ranks_1b() -> list[bytes]:
    """Return 128,000 tokens: the pocket's, then strings of 2 and 3 bytes."""
    ranks = list(read_ranks(POCKET / "tokenizer.model"))
    others = [token for n in (2, 3) for token in byte_strings(n, 128_000)]
    known = set(ranks)
    others = [token for token in others if token not in known]
    return ranks + others[: 128_000 - len(ranks)]


def write_1b(folder, **changes) -> Path:
    """Write random weights of Llama 3.2-1B's shapes as Meta's files; 2.5 GB.

    Matrices are normal with standard deviation 0.02, norms are near 1, and
    the numbers are the same every time. An existing file is kept.
    changes: fields of its ModelArgs, for a smaller model.
    """
    folder = Path(folder)
    if (folder / WEIGHTS).is_file():  # written last
        return folder
    config = replace(llamalib.LLAMA_1B, **changes)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "params.json").write_text(json.dumps(params_of(config)))
    ranks = {token: rank for rank, token in enumerate(ranks_1b())}
    write_ranks(folder / "tokenizer.model", ranks)
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for name, shape in tensor_shapes(config).items():
        is_norm = len(shape) == 1
        tensors[name] = torch.empty(shape, dtype=torch.bfloat16)
        tensors[name].normal_(is_norm, 0.02, generator=generator)
    tensors["output.weight"] = tensors["tok_embeddings.weight"]
    save_under(folder / WEIGHTS, lambda part: torch.save(tensors, part))
    return folder


def shards_of(tensors: dict[str, Tensor], n: int):
    r"""Yield n dicts that divide tensors as Meta's parallel layers do.

    Column-parallel layers and the vocabulary by rows, row-parallel layers (wo
    and w2) by columns, norms not at all.
    """
    for i in range(n):
        part = {}
        for name, tensor in tensors.items():
            if "norm" in name:
                piece = tensor
            elif name.endswith(("wo.weight", "w2.weight")):
                piece = tensor.chunk(n, dim=1)[i]
            else:
                piece = tensor.chunk(n, dim=0)[i]
            part[name] = piece.clone()  # a view would be saved whole
        yield part


def write_shards(source, folder, n: int) -> Path:
    """Write the checkpoint of a folder again, in n shards."""
    folder = Path(folder)
    files = [folder / f"consolidated.{i:02d}.pth" for i in range(n)]
    if files[-1].is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("params.json", "tokenizer.model"):
        (folder / name).write_bytes((Path(source) / name).read_bytes())
    llama = llamalib.load(source, device="cpu")
    for file, part in zip(files, shards_of(weights(llama), n)):
        if llama.tied:  # once in the file
            part["output.weight"] = part["tok_embeddings.weight"]
        save_under(file, partial(torch.save, part))
    return folder


# -- the transformers library's format ---------------------------------------


def renamed(name: str, names: dict[str, str], block: str) -> str:
    """Return another library's name of a tensor; `block` holds the layers."""
    stem, prefix = name.removesuffix(".weight"), ""
    if stem.startswith("layers."):
        _, layer, stem = stem.split(".", 2)
        prefix = f"{block}.{layer}."
    return f"{prefix}{names[stem]}.weight"


def transformers_config(llama):
    """Return the transformers library's LlamaConfig of the same model."""
    from transformers import LlamaConfig

    c = llama.config
    rope = {"rope_theta": c.rope_theta, "rope_type": "default"}
    if c.scaling_factor is not None:
        rope |= {
            "rope_type": "llama3",
            "factor": c.scaling_factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        }
    return LlamaConfig(
        vocab_size=c.vocab_size,
        hidden_size=c.dim,
        intermediate_size=c.hidden_dim,
        num_hidden_layers=c.n_layers,
        num_attention_heads=c.n_heads,
        num_key_value_heads=c.n_kv_heads,
        head_dim=c.head_dim,
        max_position_embeddings=c.context_length,
        rms_norm_eps=c.norm_eps,
        rope_parameters=rope,
        tie_word_embeddings=llama.tied,
        bos_token_id=None,
        eos_token_id=None,
    )


def transformers_weights(llama) -> dict[str, Tensor]:
    """Return the same weights by the transformers library's names.

    Its q and k have a head's pairs in two halves: row k of the first half is
    Meta's 2k, row k of the second is Meta's 2k + 1.
    """
    half = llama.config.head_dim // 2
    state = {}
    for name, weight in weights(llama).items():
        if name.endswith((".wq.weight", ".wk.weight")):
            pairs = weight.unflatten(0, (-1, half, 2))
            weight = pairs.transpose(1, 2).flatten(0, 2)
        their = renamed(name, TRANSFORMERS_NAMES, "model.layers")
        state[their] = weight.detach().clone()
    return state


def write_transformers(llama, folder) -> Path:
    """Write a folder that `from_pretrained` of transformers opens."""
    from safetensors.torch import save_file

    folder = Path(folder)
    if (folder / "model.safetensors").is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    state = transformers_weights(llama)
    if llama.tied:  # the config says it, and the file holds it once
        del state["lm_head.weight"]
    config = transformers_config(llama)
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(folder)
    save_under(
        folder / "model.safetensors",
        lambda part: save_file(state, part, metadata={"format": "pt"}),
    )
    return folder
