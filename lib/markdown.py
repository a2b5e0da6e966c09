"""Write tables as Markdown: figures that pages quote and terminals show."""

from collections.abc import Iterable, Sequence


def markdown_table(head: Sequence, rows: Iterable[Sequence]) -> str:
    """Return a table, one line per row."""
    lines = [head, ["---"] * len(head), *rows]
    # Cells become strings here, because a cell may be a number or None.
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in lines)


def shown(number: float | None, form: str = "{:.2f}", none: str = "-") -> str:
    """Return a number as a cell of a table, or the text `none` if there is no number."""
    return none if number is None else form.format(number)
