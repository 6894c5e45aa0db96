r"""Put a number of this checkpoint next to the same number of Llama 3.2-1B."""

from collections.abc import Callable

from llamalib.model import LLAMA_1B, ModelArgs


def compare_with_1b(config: ModelArgs, rows: dict[str, Callable]) -> None:
    r"""Print a table: each row's value here, and for Llama 3.2-1B.

    rows: by name, a function of a config that returns a whole number, a
    number, a shape, or a text with its unit.
    """
    texts = [("", "here", "Llama 3.2-1B")]
    texts += [
        (name, text_of(value(config)), text_of(value(LLAMA_1B)))
        for name, value in rows.items()
    ]
    columns = zip(*texts, strict=True)
    first, second, third = (max(map(len, each)) for each in columns)
    for name, here, there in texts:
        print(f"{name:{first}}  {here:>{second}}  {there:>{third}}")


def text_of(value) -> str:
    """Return 60,821,504, 0.828, (512, 2048), or a text as it is."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
