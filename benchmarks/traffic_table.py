"""The rows of the tables in docs/traffic.md."""

from typing import Any

Cells = tuple[str, ...]
MEMBERS = 5


def table_2_rows(found: list[dict[str, Any]], metric: str) -> tuple[Cells, list[Cells]]:
    """Header and rows of one metric of table 2, the paper's protocol.

    Args:
        found: The committed cells.
        metric: As a cell names it.
    """
    own = [row for row in found if row["metric"] == metric and row["column"].endswith("%")]
    columns = sorted({row["column"] for row in own}, key=lambda name: float(name.split()[0]))
    cells = {(row["model"], row["column"]): row for row in own}
    lines: list[Cells] = []
    for model in dict.fromkeys(row["model"] for row in own):
        shown = (cells.get((model, column)) for column in columns)
        lines.append((model, *("" if cell is None else _value(cell) for cell in shown)))
    return (f"{metric}, by the share that is kept", *columns), lines


def _value(cell: dict[str, Any]) -> str:
    text = f"{cell['mean']:.3f} ± {cell['std']:.3f}"
    return text if cell["members"] == MEMBERS else f"{text}<br>{cell['members']} members"


def claim_lines(found: list[dict[str, Any]]) -> str:
    """What must be seen, whether it is, and the numbers."""
    return "\n".join(
        f"- **{claim['verdict'].capitalize()}**: {claim['claim']}."
        + (f" {'; '.join(claim['where'])}." if claim["where"] else "")
        for claim in found
    )
