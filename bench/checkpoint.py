r"""A random checkpoint of Llama 3.2-1B's shapes, in every peer's format.

    python bench/checkpoint.py

Meta's files, a folder of the transformers library and GGUF files of llama.cpp
hold the same weights, so that every peer computes the same answer. Together
they take 9 GB in `data/build`, which `make clean` removes. Existing files are
kept.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":  # so that a script finds `tests`
    sys.path[0] = str(ROOT)

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

import llamalib  # noqa: E402
from llamalib.model import scale_frequencies  # noqa: E402
from tests.reference import (  # noqa: E402, F401
    POCKET,
    renamed,
    save_under,
    weights,
    write_1b,
    write_transformers,
)

BUILD = ROOT / "data" / "build" / "bench"
GGUF_KINDS = ("bf16", "q8_0", "f32")
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


def gguf_array(tensor: Tensor, kind: str):
    """Return a weight as numpy, and GGUF's type of it."""
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
    """Return a writer that has everything but the tensors."""
    import gguf

    c = llama.config
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(c.context_length)
    writer.add_embedding_length(c.dim)
    writer.add_block_count(c.n_layers)
    writer.add_feed_forward_length(c.hidden_dim)
    writer.add_head_count(c.n_heads)
    writer.add_head_count_kv(c.n_kv_heads)
    writer.add_layer_norm_rms_eps(c.norm_eps)
    writer.add_rope_freq_base(c.rope_theta)
    writer.add_rope_dimension_count(c.head_dim)
    writer.add_vocab_size(c.vocab_size)
    writer.add_tokenizer_model("none")  # the bench gives it ids
    return writer


def write_gguf(llama, file, kind: str) -> Path:
    r"""Write the same weights as a GGUF file of llama.cpp.

    Its rows of q and k are in Meta's order.

    Args:
        kind: "bf16", "f32", or "q8_0": int8 with a float16 scale for every
            32 weights. Norms are float32 in all three.
    """
    if kind not in GGUF_KINDS:
        raise ValueError(f"kind is {kind!r}; expected one of {GGUF_KINDS}")
    file, c = Path(file), llama.config
    if file.is_file():
        return file

    def write(part):
        writer = gguf_writer(llama, part)
        for name, weight in weights(llama).items():
            if name == "output.weight" and llama.tied:
                continue
            array, held = gguf_array(weight.detach(), kind)
            their = renamed(name, GGUF_NAMES, "blk")
            writer.add_tensor(their, array, raw_dtype=held)
        if c.scaling_factor is not None:
            writer.add_tensor("rope_freqs.weight", rope_divisors(c))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    save_under(file, write)
    return file


def rope_divisors(config):
    """Return llama.cpp's divisor of each frequency, (hd/2,) float32."""
    hd = config.head_dim
    freqs = 1 / config.rope_theta ** (torch.arange(0, hd, 2) / hd)
    scaled = scale_frequencies(freqs, config.scaling_factor)
    return (freqs / scaled).float().numpy()


def write_for_peers(source, folder, kinds=("bf16", "q8_0")) -> Path:
    r"""Write what each peer opens into one folder, and return it.

    A format whose package is not installed is left out.

    Args:
        source: a folder of Meta's files.
        kinds: the GGUF files, see `write_gguf`.
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


TINY = dict(dim=64, n_layers=2, n_heads=4, n_kv_heads=2)


def main(folder=None, size="1b") -> None:
    """Write the checkpoint; of another size than "1b": for a rehearsal."""
    folder = Path(folder) if folder else BUILD / "1b"
    shapes = {} if size == "1b" else TINY
    write_for_peers(write_1b(folder, **shapes), folder)
    print(folder)


if __name__ == "__main__":
    main(*sys.argv[1:3])
