"""A table of the paper with ours beside it: on the terminal, as JSON, Markdown and CSV.

A row of the files is one number: a model, a column, a metric, our mean and standard deviation, the
paper's, and what ours cost.
"""

import csv
import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from graphode.experiments.checks import check_count
from graphode.experiments.progress import counted

NOT_JUDGED = "QUICK: what must be seen is not judged by so little; see claims.json."


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One number.

    Args:
        model: A line of the table.
        column: A column of it.
        metric: What `mean` is, with its unit.
        mean, std: Over members.
        paper, paper_std: The paper's; None where it has none.
        members: How many are in the mean.
        evaluations: Of the field per solve in training, on average; 0 where there is no flow.
        paper_evaluations: The paper's.
        seconds: Of training, for all members.
        epochs: Trained.
        label: What a reader must know before comparing, such as "quick".
        folder: Where the run lies.
        device, date: What trained it, and on which day it was finished.
    """

    model: str
    column: str
    metric: str
    mean: float | None
    std: float | None
    paper: float | None = None
    paper_std: float | None = None
    members: int
    evaluations: float
    paper_evaluations: float | None = None
    seconds: float
    epochs: int
    label: str = ""
    folder: str = ""
    device: str = ""
    date: str = ""


def write(
    rows: Sequence[Row], out: Path, title: str, notes: Sequence[str] = (), costs: bool = True
) -> None:
    """`table.json`, `table.md` and `table.csv`."""
    out.mkdir(parents=True, exist_ok=True)
    records = [dataclasses.asdict(row) for row in rows]
    (out / "table.json").write_text(json.dumps(records, indent=2) + "\n")
    with open(out / "table.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in dataclasses.fields(Row)])
        writer.writeheader()
        writer.writerows(records)
    (out / "table.md").write_text(markdown(rows, title, notes, costs))


def markdown(rows: Sequence[Row], title: str, notes: Sequence[str] = (), costs: bool = True) -> str:
    """The table as Markdown; one for each metric where there are several.

    Args:
        costs: Whether evaluations, members and seconds stand in every cell.
    """
    lines = [f"# {title}", ""]
    metrics = list(dict.fromkeys(row.metric for row in rows))
    for metric in metrics:
        models, columns, cells = _grid([row for row in rows if row.metric == metric])
        lines += [f"## {metric}", ""] if len(metrics) > 1 else []
        lines += [_markdown_row(["", *columns]), _markdown_row(["---"] * (len(columns) + 1))]
        for model in models:
            shown = ["<br>".join(_lines(cells.get((model, column)), costs)) for column in columns]
            lines.append(_markdown_row([model, *shown]))
        lines.append("")
    lines += (f"- {note}" for note in notes)
    return "\n".join(lines).rstrip() + "\n"


def check_asked(table: str, models: Sequence[str], known: Iterable[str], seeds: int | None) -> None:
    """Refuse lines that a table does not have, and tables without members."""
    names = list(dict.fromkeys(known))
    for name in models:
        if name not in names:
            raise ValueError(
                f"Unknown model {name!r} in {table}. Choose among: {', '.join(names)}."
            )
    check_count("seeds", seeds)


def label_of(result: Mapping[str, Any], quick: bool) -> str:
    """What a reader of a row must know of the run it comes from."""
    words = {
        str(result.get("label", "")): True,
        "quick": quick,
        "run beside others": result.get("programs", 1) > 1,  # so that its seconds are many
    }
    return ", ".join(word for word, holds in words.items() if word and holds)


def taken(result: Mapping[str, Any]) -> dict[str, Any]:
    """Device and date of the run that a row comes from."""
    return {"device": result["device"], "date": result["date"][: len("2026-01-01")]}


def rich_table(rows: Sequence[Row], title: str, costs: bool = True) -> Table:
    """The table for the terminal, of one metric."""
    models, columns, cells = _grid(rows)
    table = Table(title=title, show_lines=True)
    table.add_column("model", no_wrap=True, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", overflow="fold")
    for model in models:
        ours = (_lines(cells.get((model, column)), costs) for column in columns)
        marked = [
            [f"[bold]{own}[/bold]", *(f"[dim]{line}[/dim]" for line in r)] for own, *r in ours
        ]
        table.add_row(model, *("\n".join(cell) for cell in marked))
    return table


def _grid(rows: Sequence[Row]) -> tuple[list[str], list[str], dict[tuple[str, str], Row]]:
    """Lines and columns in the order they come, and what stands where they meet."""
    models, columns = (
        list(dict.fromkeys(getattr(r, n) for r in rows)) for n in ("model", "column")
    )
    return models, columns, {(row.model, row.column): row for row in rows}


def _lines(row: Row | None, costs: bool) -> list[str]:
    """Ours, the paper's, and the cost."""
    if row is None:
        return ["–"]
    lines = [_plus_minus(row.mean, row.std)]
    if row.paper is not None:
        lines.append(f"paper {_plus_minus(row.paper, row.paper_std)}")
    if not costs:
        return lines
    cost = [f"{row.evaluations:.4g} evals"] if row.evaluations else []
    return [*lines, ", ".join([*cost, counted(row.members, "member"), f"{row.seconds:.0f} s"])]


def _plus_minus(mean: float | None, std: float | None) -> str:
    if mean is None:
        return "failed"
    # Percentages to one place; small numbers, such as errors in the unit of a state, to four
    # digits, and their deviation to the same place.
    size = abs(mean)
    form = ".3g"
    if size >= 10 or size == 0:
        form = ".1f"
    elif size >= 1e-4:
        form = f".{3 - math.floor(math.log10(size))}f"
    return f"{mean:{form}}" if std is None else f"{mean:{form}} ± {std:{form}}"


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
