"""What a few notebooks need of a checkpoint that others do without."""


def require_ranks(llama) -> None:
    """Raise ValueError unless a model's tokenizer is Llama 3's."""
    if not hasattr(llama.tokenizer, "ranks"):
        raise ValueError(
            "from here on this notebook needs Llama 3's tokenizer, and "
            f"{llama.name} has another: run it without LLAMA_DIR, on the "
            "pocket Llama"
        )
