"""Rows of a table that was reproduced, into the committed ones.

    graphode reproduce table-1 --models gcde_dpr5 --datasets pubmed --out runs/table-1 --device cuda
    python benchmarks/keep_table.py runs/table-1 results/table-1.json

A row takes the place of the committed one of the same model, column and metric, or stands after the
others of its model. What was replaced is said. Quick rows are refused: they are no results. Paths
of run folders are left out. Claims are judged on whole tables, and are not touched. The last line
is one JSON object: how many rows came, and how many of them are new.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from measure import write

Row = dict[str, Any]


def merged(committed: list[Row], made: list[Row]) -> tuple[list[Row], list[tuple[Row | None, Row]]]:
    """The rows of both, and each that came with the one whose place it took."""
    quick = [row for row in made if "quick" in row["label"]]
    if quick:
        raise ValueError(
            f"Rows of `--quick` show that all runs, not what is reached, but {len(quick)} came, "
            f"such as {quick[0]['model']}, {quick[0]['column']}. Reproduce the table without it."
        )
    rows, changes = list(committed), []
    for row in made:
        kept = {name: value for name, value in row.items() if name != "folder"}
        place = next((k for k, old in enumerate(rows) if _name(old) == _name(row)), None)
        if place is not None:
            changes.append((rows[place], kept))
            rows[place] = kept
            continue
        changes.append((None, kept))
        own = [k for k, old in enumerate(rows) if old["model"] == row["model"]]
        rows.insert(own[-1] + 1 if own else len(rows), kept)
    return rows, changes


def _name(row: Row) -> tuple[str, str, str]:
    return row["model"], row["column"], row["metric"]


def _line(old: Row | None, new: Row) -> str:
    before = "new" if old is None else f"was {_value(old)}"
    return f"{', '.join(_name(new))}: {_value(new)} ({before})"


def _value(row: Row) -> str:
    spread = "" if row["std"] is None else f" ± {row['std']:.4g}"
    mean = "failed" if row["mean"] is None else f"{row['mean']:.4g}{spread}"
    return f"{mean}, {row['members']} members, {row['seconds']:.0f} s"


def main() -> None:
    """Merge, and say what changed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("made", type=Path, help="the --out of `graphode reproduce`")
    parser.add_argument("committed", type=Path, help="a file under results/")
    parser.add_argument(
        "--device", default="cpu", help="as of every benchmark; makes no difference"
    )
    arguments = parser.parse_args()
    made = json.loads((arguments.made / "table.json").read_text())
    found = json.loads(arguments.committed.read_text())
    is_bare = isinstance(found, list)  # of rows, without machine, command and claims
    rows, changes = merged(found if is_bare else found["rows"], made)
    write(rows if is_bare else {**found, "rows": rows}, arguments.committed)
    for old, new in changes:
        print(_line(old, new))
    print(json.dumps({"rows": len(changes), "new": sum(old is None for old, _ in changes)}))


if __name__ == "__main__":
    main()
