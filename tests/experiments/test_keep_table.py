"""Rows of a reproduced table take their places among the committed ones."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import keep_table


def row(model: str, column: str, mean: float, **others: object) -> dict[str, object]:
    same = {"metric": "test accuracy, %", "std": 0.5, "members": 3, "seconds": 1.0, "label": ""}
    return {"model": model, "column": column, "mean": mean, **same, **others}


@pytest.fixture
def keep(tmp_path, monkeypatch):
    """Merges rows into three committed ones; what is committed then."""
    committed, out = tmp_path / "table.json", tmp_path / "runs"
    out.mkdir()
    rows = [row("GCN", "Cora", 81.0), row("GCN", "Pubmed", 79.0), row("GCDE", "Cora", 83.0)]
    committed.write_text(json.dumps({"machine": {}, "rows": rows, "claims": ["one"]}))

    def run(made: list[dict[str, object]]) -> None:
        (out / "table.json").write_text(json.dumps(made))
        monkeypatch.setattr(sys, "argv", ["keep_table.py", str(out), str(committed)])
        keep_table.main()

    run.path = committed
    run.committed = lambda: json.loads(committed.read_text())
    return run


def test_a_row_replaces_its_own_and_a_new_one_joins_its_model(keep, capsys):
    made = [
        row("GCN", "Cora", 82.0, folder="/somewhere", device="a GPU", date="2026-01-01"),
        row("GCN", "Citeseer", 70.0),
        row("GADE", "Cora", 80.0),
    ]
    keep(made)
    rows, said = keep.committed()["rows"], capsys.readouterr().out
    assert keep.committed()["claims"] == ["one"]
    assert [(r["model"], r["column"], r["mean"]) for r in rows] == [
        ("GCN", "Cora", 82.0),
        ("GCN", "Pubmed", 79.0),
        ("GCN", "Citeseer", 70.0),
        ("GCDE", "Cora", 83.0),
        ("GADE", "Cora", 80.0),
    ]
    assert rows[0]["device"] == "a GPU"
    assert "folder" not in rows[0]
    assert "82 ± 0.5, 3 members, 1 s (was 81 ± 0.5" in said
    assert json.loads(said.splitlines()[-1]) == {"rows": 3, "new": 2}


def test_a_committed_file_may_be_rows_alone(keep):
    keep.path.write_text(json.dumps(keep.committed()["rows"]))
    keep([row("GCDE", "Cora", 84.0)])
    assert [r["mean"] for r in keep.committed()] == [81.0, 79.0, 84.0]


@pytest.mark.parametrize("label", ["quick", "quick, run beside others"])
def test_quick_rows_are_no_results(keep, label):
    with pytest.raises(ValueError, match="Reproduce the table without it"):
        keep([row("GCN", "Cora", 50.0, label=label)])
    assert keep.committed()["rows"][0]["mean"] == 81.0


def test_fewer_members_do_not_replace_more(keep, capsys):
    keep([row("GCN", "Cora", 90.0, members=2), row("GCDE", "Cora", 84.0, members=4)])
    rows, said = keep.committed()["rows"], capsys.readouterr().out
    assert [r["mean"] for r in rows] == [81.0, 79.0, 84.0]
    assert "90 ± 0.5, 2 members, 1 s (was 81 ± 0.5, 3 members, 1 s): left out" in said
    assert json.loads(said.splitlines()[-1]) == {"rows": 1, "new": 0}


def test_runs_behind_pictures_are_kept_by_their_names(tmp_path, monkeypatch):
    def run(name: str, mean: float) -> dict[str, object]:
        accuracy = {"mean": mean, "std": 0.5}
        return {"run": name, "members": 3, "seconds": 1.0, "accuracy": accuracy}

    committed = tmp_path / "node-figures.json"
    committed.write_text(json.dumps({"runs": [run("one", 81.0), run("two", 82.0)]}))
    made = {"runs": [run("two", 83.0), run("three", 84.0)]}
    (tmp_path / "figures.json").write_text(json.dumps(made))
    monkeypatch.setattr(sys, "argv", ["keep_table.py", str(tmp_path), str(committed)])
    keep_table.main()
    runs = json.loads(committed.read_text())["runs"]
    assert [(r["run"], r["accuracy"]["mean"]) for r in runs] == [
        ("one", 81.0), ("two", 83.0), ("three", 84.0),
    ]  # fmt: skip
