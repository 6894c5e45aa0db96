"""Small models and checkpoint folders that the tests are run on."""

import base64
import json

import pytest
import torch

from llamalib import Llama, ModelArgs

needs_cuda = [  # a class's pytestmark
    pytest.mark.cuda,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="no CUDA GPU on this machine"
    ),
]

SMALL = dict(
    dim=64,
    n_layers=2,
    n_heads=8,
    n_kv_heads=2,
    vocab_size=300 + 256,
    multiple_of=16,
    ffn_dim_multiplier=1.5,
    norm_eps=1e-5,
    rope_theta=500000.0,
)

# The published params.json of Llama 3.2-1B.
LLAMA_1B = dict(
    dim=2048,
    n_layers=16,
    n_heads=32,
    n_kv_heads=8,
    vocab_size=128256,
    multiple_of=256,
    ffn_dim_multiplier=1.5,
    norm_eps=1e-5,
    rope_theta=500000.0,
    use_scaled_rope=True,
)


def small_config(**changes) -> ModelArgs:
    return ModelArgs(**(SMALL | changes))


def random_llama(config=None, seed=0, tied=True) -> Llama:
    """float32 weights of a size that gives logits of order 1."""
    llama = Llama(config or small_config(), tied=tied)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in llama.parameters():
            if weight.dim() == 1:
                weight.normal_(1, 0.2, generator=generator)
            else:
                std = weight.shape[1] ** -0.5
                weight.normal_(0, std, generator=generator)
    return llama.requires_grad_(False).eval()


def random_ids(*shape, seed=0, vocab=300):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, vocab, shape, generator=generator)


def small_ranks(n=300) -> dict[bytes, int]:
    """All bytes, then the two-letter tokens aa, ab, …"""
    letters = b"abcdefghijklmnopqrstuvwxyz"
    pairs = (bytes([x, y]) for x in letters for y in letters)
    tokens = [bytes([b]) for b in range(256)]
    tokens += [next(pairs) for _ in range(n - 256)]
    return {token: rank for rank, token in enumerate(tokens)}


def write_tokenizer(path, ranks=None):
    lines = (
        base64.b64encode(token).decode() + f" {rank}\n"
        for token, rank in (ranks or small_ranks()).items()
    )
    path.write_text("".join(lines))


def shard(tensors, n):
    """The tensors divided as Meta's parallel layers divide them, in n dicts.

    Column-parallel layers and the vocabulary by rows, row-parallel layers
    (wo and w2) by columns, norms not at all.
    """
    parts = [{} for _ in range(n)]
    for name, tensor in tensors.items():
        if "norm" in name:
            pieces = [tensor] * n
        elif name.endswith(("wo.weight", "w2.weight")):
            pieces = tensor.chunk(n, dim=1)
        else:
            pieces = tensor.chunk(n, dim=0)
        for part, piece in zip(parts, pieces):
            part[name] = piece.clone()
    return parts


def write_checkpoint(
    folder, llama=None, *, shards=1, params=None, dtype=torch.bfloat16
):
    """A valid folder in Meta's format; returns it."""
    llama = llama or random_llama()
    folder.mkdir(parents=True, exist_ok=True)
    params = llama.config.to_dict() if params is None else params
    (folder / "params.json").write_text(json.dumps(params))
    ranks = small_ranks(llama.config.vocab_size - 256)
    write_tokenizer(folder / "tokenizer.model", ranks)
    tensors = {
        name: weight.detach().to(dtype)
        for name, weight in llama.weights().items()
    }
    if llama.tied:
        tensors["output.weight"] = tensors["tok_embeddings.weight"]
    parts = [tensors] if shards == 1 else shard(tensors, shards)
    for i, part in enumerate(parts):
        torch.save(part, folder / f"consolidated.{i:02d}.pth")
    return folder


def to_transformers(llama):
    """The same weights in the transformers library's own model.

    Its q and k rows stand in halves where Meta's stand in pairs: row k of
    the first half is Meta's 2k, row k of the second Meta's 2k + 1.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    c = llama.config
    rope = {"rope_theta": c.rope_theta, "rope_type": "default"}
    if c.rope_scaling_factor is not None:
        rope |= {
            "rope_type": "llama3",
            "factor": c.rope_scaling_factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        }
    config = LlamaConfig(
        vocab_size=c.vocab_size,
        hidden_size=c.dim,
        intermediate_size=c.hidden_dim,
        num_hidden_layers=c.n_layers,
        num_attention_heads=c.n_heads,
        num_key_value_heads=c.n_kv_heads,
        max_position_embeddings=131072,
        rms_norm_eps=c.norm_eps,
        rope_parameters=rope,
        tie_word_embeddings=llama.tied,
        bos_token_id=None,
        eos_token_id=None,
    )
    theirs = LlamaForCausalLM(config).eval()
    names = {
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
    state = {}
    for name, weight in llama.weights().items():
        stem = name.removesuffix(".weight")
        prefix = ""
        if stem.startswith("layers."):
            _, layer, stem = stem.split(".", 2)
            prefix = f"model.layers.{layer}."
        if stem in ("attention.wq", "attention.wk"):
            pairs = weight.unflatten(0, (-1, c.head_dim // 2, 2))
            weight = pairs.transpose(1, 2).flatten(0, 2)
        state[f"{prefix}{names[stem]}.weight"] = weight.clone()
    theirs.load_state_dict(state)
    return theirs
