"""Rows of a table that was reproduced, or runs behind pictures, into the committed ones.

    graphode reproduce table-1 --models gcde_dpr5 --datasets pubmed --out runs/table-1 --device cuda
    python benchmarks/keep_table.py runs/table-1 results/table-1.json

    graphode reproduce figures --only integration-time --out runs/figures --device cuda
    python benchmarks/keep_table.py runs/figures results/node-figures.json

A row takes the place of the committed one of the same model, column and metric, or stands after the
others of its model; a run that of the run of its name. What was replaced is said. A row of fewer
members than the committed one is left out, and said too. Quick rows are refused: they are no
results. Paths of run folders are left out. Claims are judged on whole tables, and are not touched.
The last line is one JSON object: how many rows came, and how many of them are new.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from measure import write

Row = dict[str, Any]


def merged(committed: list[Row], made: list[Row]) -> tuple[list[Row], list[tuple[Row | None, Row]]]:
    """The rows of both, and each that came with the one whose place it took."""
    quick = [row for row in made if "quick" in row.get("label", "")]
    if quick:
        raise ValueError(
            f"Rows of `--quick` show that all runs, not what is reached, but {len(quick)} came, "
            f"such as {quick[0]['model']}, {quick[0]['column']}. Reproduce the table without it."
        )
    rows, changes = list(committed), []
    for row in made:
        kept = {name: value for name, value in row.items() if name != "folder"}
        place = next((k for k, old in enumerate(rows) if _name(old) == _name(row)), None)
        if place is not None and rows[place]["members"] > row["members"]:
            print(f"{_line(rows[place], kept)}: left out, as it has fewer members.")
            continue
        if place is not None:
            changes.append((rows[place], kept))
            rows[place] = kept
            continue
        changes.append((None, kept))
        own = [k for k, old in enumerate(rows) if _name(old)[0] == _name(row)[0]]
        rows.insert(own[-1] + 1 if own else len(rows), kept)
    return rows, changes


def _name(row: Row) -> tuple[str, ...]:
    return (row["run"],) if "run" in row else (row["model"], row["column"], row["metric"])


def _line(old: Row | None, new: Row) -> str:
    before = "new" if old is None else f"was {_value(old)}"
    return f"{', '.join(_name(new))}: {_value(new)} ({before})"


def _value(row: Row) -> str:
    value = row.get("accuracy", row)
    spread = "" if value["std"] is None else f" ± {value['std']:.4g}"
    mean = "failed" if value["mean"] is None else f"{value['mean']:.4g}{spread}"
    return f"{mean}, {row['members']} members, {row['seconds']:.0f} s"


def _made(folder: Path) -> list[Row]:
    """What `graphode reproduce` has written there, of a table or behind pictures."""
    table = folder / "table.json"
    if table.exists():
        return json.loads(table.read_text())
    return json.loads((folder / "figures.json").read_text())["runs"]


def main() -> None:
    """Merge, and say what changed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("made", type=Path, help="the --out of `graphode reproduce`")
    parser.add_argument("committed", type=Path, help="a file under results/")
    parser.add_argument(
        "--device", default="cpu", help="as of every benchmark; makes no difference"
    )
    arguments = parser.parse_args()
    found = json.loads(arguments.committed.read_text())
    is_bare = isinstance(found, list)  # of rows, without machine, command and claims
    part = "runs" if "runs" in found else "rows"
    rows, changes = merged(found if is_bare else found[part], _made(arguments.made))
    write(rows if is_bare else {**found, part: rows}, arguments.committed)
    for old, new in changes:
        print(_line(old, new))
    print(json.dumps({"rows": len(changes), "new": sum(old is None for old, _ in changes)}))


if __name__ == "__main__":
    main()
