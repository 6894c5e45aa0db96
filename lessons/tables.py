"""Tables in Markdown. This file needs the standard library alone."""


def table(rows) -> str:
    """Return rows of cells as a table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
