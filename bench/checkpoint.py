r"""A random checkpoint of Llama 3.2-1B's shapes, in every peer's format.

    python bench/checkpoint.py

The same weights as Meta's files, as a folder of the transformers library and
as GGUF files of llama.cpp, so that every peer computes the same answer.
Together they take 9 GB in `data/build`, which `make clean` removes; what is
there already is not written again.
"""

import json
import sys
from itertools import islice, product
from pathlib import Path

import torch
from torch import Tensor

import llamalib
from llamalib.formats.find import ROOT
from llamalib.rope import scale_frequencies
from llamalib.tokenizer import read_ranks, write_ranks

BUILD = ROOT / "data" / "build" / "bench"
POCKET = ROOT / "data" / "pocket-llama"
WEIGHTS = "consolidated.00.pth"
GGUF_KINDS = ("bf16", "q8_0", "f32")

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
GGUF_NAMES = {
    "tok_embeddings": "token_embd",
    "norm": "output_norm",
    "output": "output",
    "attention.wq": "attn_q",
    "attention.wk": "attn_k",
    "attention.wv": "attn_v",
    "attention.wo": "attn_output",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w2": "ffn_down",
    "feed_forward.w3": "ffn_up",
    "attention_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
}


def bytes_of(n: int, most: int):
    """The first texts of n bytes."""
    return (bytes(b) for b in islice(product(range(256), repeat=n), most))


def ranks_1b() -> list[bytes]:
    """128,000 tokens: the pocket's, so that English has few, and others.

    The others are pairs and threes of bytes, which merging reaches.
    """
    ranks = list(read_ranks(POCKET / "tokenizer.model"))
    others = [token for n in (2, 3) for token in bytes_of(n, 128_000)]
    known = set(ranks)
    others = [token for token in others if token not in known]
    return ranks + others[: 128_000 - len(ranks)]


def write_1b(folder) -> Path:
    """Random weights of Llama 3.2-1B's shapes as Meta's files; 2.5 GB.

    Matrices are normal of standard deviation 0.02, norms near 1. The same
    numbers every time. What is there is left as it is.
    """
    folder = Path(folder)
    if (folder / WEIGHTS).is_file():  # written last
        return folder
    config = llamalib.ModelArgs(**LLAMA_1B)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "params.json").write_text(json.dumps(config.to_dict()))
    ranks = {token: rank for rank, token in enumerate(ranks_1b())}
    write_ranks(folder / "tokenizer.model", ranks)
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for name, shape in llamalib.tensor_shapes(config).items():
        is_norm = len(shape) == 1
        tensors[name] = torch.empty(shape, dtype=torch.bfloat16)
        tensors[name].normal_(is_norm, 0.02, generator=generator)
    tensors["output.weight"] = tensors["tok_embeddings.weight"]
    save_under(folder / WEIGHTS, lambda part: torch.save(tensors, part))
    return folder


def save_under(file: Path, write) -> None:
    """Write beside and rename, so that no half of a file has the name."""
    part = file.with_name(file.name + ".part")
    write(part)
    part.replace(file)


def renamed(name: str, names: dict[str, str], block: str) -> str:
    """Meta's tensor name in a peer's words; `block` says where layers are."""
    stem, prefix = name.removesuffix(".weight"), ""
    if stem.startswith("layers."):
        _, layer, stem = stem.split(".", 2)
        prefix = f"{block}.{layer}."
    return f"{prefix}{names[stem]}.weight"


def transformers_config(llama):
    """The transformers library's LlamaConfig of the same model."""
    from transformers import LlamaConfig

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
    return LlamaConfig(
        vocab_size=c.vocab_size,
        hidden_size=c.dim,
        intermediate_size=c.hidden_dim,
        num_hidden_layers=c.n_layers,
        num_attention_heads=c.n_heads,
        num_key_value_heads=c.n_kv_heads,
        head_dim=c.head_dim,
        max_position_embeddings=c.max_seq_len,
        rms_norm_eps=c.norm_eps,
        rope_parameters=rope,
        tie_word_embeddings=llama.tied,
        bos_token_id=None,
        eos_token_id=None,
    )


def transformers_weights(llama) -> dict[str, Tensor]:
    """The same weights by the transformers library's names.

    Its q and k rows stand in halves where Meta's stand in pairs: row k of
    the first half is Meta's 2k, row k of the second Meta's 2k + 1.
    """
    half = llama.config.head_dim // 2
    state = {}
    for name, weight in llama.weights().items():
        if name.endswith((".wq.weight", ".wk.weight")):
            pairs = weight.unflatten(0, (-1, half, 2))
            weight = pairs.transpose(1, 2).flatten(0, 2)
        their = renamed(name, TRANSFORMERS_NAMES, "model.layers")
        state[their] = weight.detach().clone()
    return state


def write_transformers(llama, folder) -> Path:
    """A folder that `from_pretrained` of transformers opens."""
    from safetensors.torch import save_file

    folder = Path(folder)
    if (folder / "model.safetensors").is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    state = transformers_weights(llama)
    if llama.tied:  # said in the config, and not held twice
        del state["lm_head.weight"]
    config = transformers_config(llama)
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(folder)
    save_under(
        folder / "model.safetensors",
        lambda part: save_file(state, part, metadata={"format": "pt"}),
    )
    return folder


def gguf_array(tensor: Tensor, kind: str):
    """A weight as numpy, and the type under which GGUF holds it."""
    import gguf

    types = gguf.GGMLQuantizationType
    if tensor.dim() == 1 or kind == "f32":
        return tensor.float().numpy(), types.F32
    if kind == "bf16":  # numpy has none: its bytes
        raw = tensor.bfloat16().contiguous().view(torch.uint8)
        return raw.numpy(), types.BF16
    array = gguf.quants.quantize(tensor.float().numpy(), types.Q8_0)
    return array, types.Q8_0


def gguf_writer(llama, file: Path):
    """A writer that has said everything but the tensors."""
    import gguf

    c = llama.config
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(c.max_seq_len)
    writer.add_embedding_length(c.dim)
    writer.add_block_count(c.n_layers)
    writer.add_feed_forward_length(c.hidden_dim)
    writer.add_head_count(c.n_heads)
    writer.add_head_count_kv(c.n_kv_heads)
    writer.add_layer_norm_rms_eps(c.norm_eps)
    writer.add_rope_freq_base(c.rope_theta)
    writer.add_rope_dimension_count(c.head_dim)
    writer.add_vocab_size(c.vocab_size)
    writer.add_tokenizer_model("none")  # it is given ids
    return writer


def write_gguf(llama, file, kind: str) -> Path:
    r"""The same weights as a GGUF file of llama.cpp.

    Its rows of q and k stand as Meta's do.

    Args:
        kind: "bf16", "f32", or "q8_0": int8 with a float16 scale for every
            32 weights. Norms are float32 in all three.
    """
    if kind not in GGUF_KINDS:
        raise ValueError(f"kind is {kind!r}; wanted one of {GGUF_KINDS}")
    file, c = Path(file), llama.config
    if file.is_file():
        return file

    def write(part):
        writer = gguf_writer(llama, part)
        for name, weight in llama.weights().items():
            if name == "output.weight" and llama.tied:
                continue
            array, held = gguf_array(weight.detach(), kind)
            their = renamed(name, GGUF_NAMES, "blk")
            writer.add_tensor(their, array, raw_dtype=held)
        if c.rope_scaling_factor is not None:
            writer.add_tensor("rope_freqs.weight", rope_divisors(c))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    save_under(file, write)
    return file


def rope_divisors(config):
    """By what llama.cpp divides each frequency: (hd/2,) float32."""
    hd = config.head_dim
    freqs = 1 / config.rope_theta ** (torch.arange(0, hd, 2) / hd)
    scaled = scale_frequencies(freqs, config.rope_scaling_factor)
    return (freqs / scaled).float().numpy()


def write_for_peers(source, folder, kinds=("bf16", "q8_0")) -> Path:
    r"""Beside one another in `folder`: what each peer opens.

    Args:
        source: a folder of Meta's files, which ours opens itself.
        kinds: the GGUF files, see `write_gguf`.

    Returns:
        the folder; a format whose package is not installed is left out.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    llama = llamalib.load(source, device="cpu")
    try:
        write_transformers(llama, folder / "transformers")
    except ImportError:
        pass  # its peer says so when it starts
    try:
        for kind in kinds:
            write_gguf(llama, folder / f"{kind}.gguf", kind)
    except ImportError:
        pass
    return folder


def main(folder=None) -> None:
    folder = Path(folder) if folder else BUILD / "1b"
    write_for_peers(write_1b(folder), folder)
    print(folder)


if __name__ == "__main__":
    main(*sys.argv[1:2])
