"""Numbers of this checkpoint next to those of the 1B."""

from lessons.compare import compare_with_1b
from llamalib import LLAMA_1B
from tests.helpers import small_config


def test_both_columns_are_computed(capsys):
    rows = {
        "wk": lambda c: (c.n_kv_heads * c.head_dim, c.dim),
        "numbers": lambda c: c.n_kv_heads * c.head_dim * c.dim,
        "share": lambda c: c.n_kv_heads / c.n_heads,
        "size": lambda c: f"{2 * c.dim} bytes",
    }
    config = small_config()
    compare_with_1b(config, rows)
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["here", "Llama", "3.2-1B"]
    assert all(len(line) == len(head) for line in lines)
    assert lines[0].endswith("(512, 2048)")
    assert lines[1].split()[-1] == "1,048,576"
    assert lines[2].split()[-1] == "0.25"
    assert lines[3].endswith(f"{2 * LLAMA_1B.dim} bytes")
    assert str(rows["wk"](config)) in lines[0]
