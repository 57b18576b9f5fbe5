"""The tables in docs/node_classification.md."""

import statistics
from typing import Any

from committed import hardware, markdown, result, span

Cells = tuple[str, ...]
GOALS = {"cora": 84.5, "citeseer": 73.4, "pubmed": 80.4}
COLUMNS = {"cora": "Cora, public split", "citeseer": "Citeseer", "pubmed": "Pubmed"}
FAMILIES = {"diffusion": "Gated diffusion", "gcnii": "GCNII flow"}


def table_1_rows(found: list[dict[str, Any]]) -> tuple[Cells, list[Cells]]:
    """Header and rows of table 1, beside the paper's figures.

    Args:
        found: The committed cells.
    """
    columns = list(dict.fromkeys(row["column"] for row in found))
    cells = {(row["model"], row["column"]): row for row in found}
    lines: list[Cells] = []
    for model in dict.fromkeys(row["model"] for row in found):
        shown = (cells.get((model, column)) for column in columns)
        lines.append((model, *(_accuracy(row) if row else "" for row in shown)))
    return ("test accuracy, % (paper)", *columns), lines


def _accuracy(row: dict[str, Any]) -> str:
    ours = f"{row['mean']:.1f} ± {row['std']:.1f}"
    if row["paper"] is not None:
        ours += f" ({row['paper']:.1f} ± {row['paper_std']:.1f})"
    notes = [f"{row['evaluations']:.0f} evaluations"] if row["evaluations"] > 4 else []
    notes += [f"{row['members']} members"] if row["members"] != 100 else []
    notes += ["on a CPU"] if "CPU" in row["label"] else []
    return "<br>".join([ours, *notes])


def tuned_rows(
    trials: list[dict[str, Any]], cells: list[dict[str, Any]]
) -> tuple[Cells, list[Cells]]:
    """Header and rows of what preset `tuned` reaches, and of how it was found.

    Args:
        trials: Of the search.
        cells: Of the tuned table.
    """
    lines: list[Cells] = []
    for model in dict.fromkeys(cell["model"] for cell in cells):
        shown = {cell["column"]: cell for cell in cells if cell["model"] == model}
        reached = (_reached(shown.get(COLUMNS[name]), goal) for name, goal in GOALS.items())
        lines.append((f"{model}: test accuracy, % (goal)", *reached))
    for model, label in FAMILIES.items():
        rows = [[r for r in trials if (r["model"], r["dataset"]) == (model, n)] for n in GOALS]
        lines.append((f"{label}: settings tried", *(str(len(tried)) for tried in rows)))
        members = (str(sum(len(row["seeds"]) for row in tried)) for tried in rows)
        lines.append(("… members trained for it", *members))
        lines.append(("… validation accuracy of the best, %", *(map(_best, rows))))
    return ("", *COLUMNS.values()), lines


def _reached(cell: dict[str, Any] | None, goal: float) -> str:
    if cell is None:
        return f"– ({goal})"
    text = f"{cell['mean']:.2f} ± {cell['std']:.2f} ({goal})<br>{cell['members']} members"
    return f"{text}, {cell['evaluations']:.0f} evaluations"


def _best(tried: list[dict[str, Any]]) -> str:
    """Of the settings with the most members, as the search ranks them."""
    if not tried:
        return "–"
    most = max(len(row["seeds"]) for row in tried)
    means = [
        statistics.fmean(row["validation_accuracy"]) for row in tried if len(row["seeds"]) == most
    ]
    return f"{100 * max(means):.1f} ({most} members)"


def redrawn_rows(found: dict[str, Any]) -> tuple[Cells, list[Cells]]:
    """Header and rows of what a solve costs when its masks are redrawn.

    Args:
        found: Of `redrawn_masks.py`.
    """
    moments = ("at the start", "trained")
    lines: list[Cells] = []
    for solver in found["solves"][0]["trained"]:
        spans = []
        for moment in moments:
            counted = sorted(row[moment][solver] for row in found["solves"])
            spans.append(f"{counted[0]} – {counted[-1]}")
        lines.append((solver, *spans))
    header = ("evaluations of a training solve", "first epoch", f"epoch {found['trained_epochs']}")
    return header, lines


def stopping_rows(found: dict[str, Any]) -> tuple[Cells, list[Cells]]:
    """Header and row of accuracies on halves of the validation nodes, by patience.

    Args:
        found: Of `early_stopping.py`.
    """
    rows = found["accuracy"]
    names = ("never" if row["patience"] is None else str(row["patience"]) for row in rows)
    accuracies = (f"{100 * row['mean']:.2f}" for row in rows)
    return ("a member stops after so many epochs", *names), [
        ("accuracy on the other half, %", *accuracies)
    ]


def depth_rows(runs: list[dict[str, Any]]) -> tuple[Cells, list[Cells]]:
    """Header and rows of GCN* by layers and of GCDE-dpr5 by the length of its interval.

    Args:
        runs: Of `graphode reproduce figures`.
    """
    named = {run["run"]: run for run in runs}
    layers = {2: "gcn_star-cora"} | {k: f"gcn_star-layers={k}-cora" for k in range(3, 7)}
    spans = {span: f"gcde_dpr5-t1={span}-lr=0.01-cora" for span in (1, 5, 10)}
    lines: list[Cells] = []
    for label, names in (
        ("GCN*, {} layers", layers),
        ("GCDE-dpr5, S = {}, rate 1e-2", spans),
    ):
        for value, name in names.items():
            if name in named:
                run = named[name]
                accuracy = f"{run['accuracy']['mean']:.1f} ± {run['accuracy']['std']:.1f}"
                if run["members"] != 100:
                    accuracy += f"<br>{run['members']} members, {run['device']}"
                cost = f"{run['evaluations']:.0f}" if run["evaluations"] else ""
                lines.append((label.format(value), accuracy, cost))
    return ("Cora, public split", "test accuracy, %", "evaluations"), lines


def table_1() -> str:
    """Node classification beside the paper's figures."""
    found = result("table-1")
    rows = found["rows"]
    table = markdown(*table_1_rows(rows))
    first = list(dict.fromkeys(row["model"] for row in rows))[:6]
    own = [row for row in rows if row["model"] in first]
    assert not any("beside" in row["label"] for row in own), "seconds of runs that were not alone"
    total = sum(row["seconds"] for row in own) / 60
    return (
        f"{table}\n\n*Mean ± standard deviation over 100 members (where fewer, said so), 2000 "
        f"epochs; the paper's in brackets. The cells of the first six lines took {total:.1f} "
        f"minutes together: {hardware(found)}.*"
    )


def tuned() -> str:
    """What preset `tuned` reaches, and how it was found."""
    return markdown(*tuned_rows(result("table-1-search"), result("table-1-tuned")))


def redrawn() -> str:
    """What a solve costs when its masks are redrawn."""
    found = result("redrawn-masks")
    table = markdown(*redrawn_rows(found))
    return f"{table}\n\n*Least and most of {len(found['solves'])} members, LINQS Cora.*"


def stopping() -> str:
    """When to stop, by halves of the validation nodes."""
    found = result("early-stopping")
    members = len(found["accuracy"][0]["members"])
    table = markdown(*stopping_rows(found))
    what = f"{COLUMNS[found['dataset']]}, {members} members, {found['splits']} halvings"
    return f"{table}\n\n*{what}: {hardware(found)}.*"


def depths() -> str:
    """Deeper and longer."""
    runs = result("node-figures")["runs"]
    first = runs[0]
    taken = f"{first['device']}, torch {first['torch']}, {span([run['date'] for run in runs])}"
    what = "Mean ± standard deviation over 100 members; where fewer, said so"
    return f"{markdown(*depth_rows(runs))}\n\n*{what}. {taken}.*"
