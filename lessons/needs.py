"""What a few notebooks need of a checkpoint that others do without."""

from pathlib import Path

from llamalib.load import ROOT, SMOL


def is_large(llama) -> bool:
    """Return whether a model takes seconds where the pocket takes none."""
    return sum(weight.numel() for weight in llama.parameters()) > 10**8


def smollm2_file() -> Path:
    """Return SmolLM2's GGUF file; FileNotFoundError says how to get it."""
    for file in sorted((ROOT / SMOL).glob("*.gguf")):
        return file
    raise FileNotFoundError(
        "this notebook also reads SmolLM2's own file: "
        f"`python -m llamalib fetch {SMOL.name}` brings it"
    )


def require_ranks(llama) -> None:
    """Raise ValueError unless a model's tokenizer is Llama 3's."""
    if not hasattr(llama.tokenizer, "ranks"):
        raise ValueError(
            "from here on this notebook needs Llama 3's tokenizer, and "
            f"{llama.name} has another: run it without LLAMA_DIR, on the "
            "pocket Llama"
        )
