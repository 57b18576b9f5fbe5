"""Table 1 and its figures are made from run folders, and say what they are."""

import csv
import json
import math

import numpy as np
import pytest

from graphode import cli
from graphode.experiments import figures, node_figures, table_1
from graphode.experiments.run_folder import RunFolder
from graphode.experiments.table_1 import DATASETS, LINES, Table1, cell_config
from graphode.experiments.tables import Row, markdown, rich_table, write
from tests.experiments.consoles import plain, said
from tests.experiments.karate_runs import Config, train_in

REQUIRED = {
    "model", "column", "metric", "mean", "std", "paper", "members", "evaluations", "seconds",
}  # fmt: skip


def test_nodes_without_a_class_are_drawn_in_a_colour_of_their_own():
    styles = [node_figures.class_style(label) for label in (-1, 0, 6)]
    assert [name for name, _ in styles] == ["none", "0", "6"]
    assert len({color for _, color in styles}) == 3


def test_names_of_models_stay_whole_in_a_narrow_terminal():
    cell = {"metric": "RMSE", "mean": 2.1, "std": 0.1, "members": 2, "evaluations": 0.0}
    cell |= {"model": "Historical average", "seconds": 1.0, "epochs": 2}
    rows = [Row(column=f"{k} of 12 in, 15 min out", **cell) for k in range(5)]
    console = plain(80)
    console.print(rich_table(rows, "title"))
    assert "Historical average" in said(console)


@pytest.fixture
def small(monkeypatch):
    """Narrow models, whatever the table says of their width."""
    of = table_1.NodeClassification.of
    narrow = {"hidden": 4, "trajectories": 1}
    monkeypatch.setattr(
        table_1.NodeClassification, "of", lambda *args, **given: of(*args, **{**given, **narrow})
    )


def test_quick_without_data_fills_the_cells_it_can(
    tmp_path, small, no_data, capsys, without_type_checks
):
    flags = ["--quick", "--epochs", "2", "--device", "cpu", "--out", str(tmp_path)]
    cli.main(["reproduce", "table-1", *flags])
    shown = " ".join(capsys.readouterr().out.split())
    assert "Cora, public split is left out" in shown
    assert "--data-root" in shown
    assert "QUICK" in shown
    rows = json.loads((tmp_path / "table.json").read_text())
    assert [row["model"] for row in rows] == [line.name for line in LINES["printed"]]
    for row in rows:
        assert row.keys() >= REQUIRED
        assert row["column"] == "Cora, LINQS order (the authors' split)"
        assert row["label"] == "quick"
        assert row["members"] == 2
        assert 0 <= row["mean"] <= 100
    assert rows[4]["paper"] == 83.8
    assert rows[4]["evaluations"] == 4
    with open(tmp_path / "table.csv") as file:
        assert [row["model"] for row in csv.DictReader(file)] == [row["model"] for row in rows]
    text = (tmp_path / "table.md").read_text()
    assert text.startswith("# Table 1")
    assert "QUICK" in text
    assert "| GCDE-rk4 |" in text
    # Again: nothing is trained, all is read.
    cli.main(["reproduce", "table-1", *flags])
    assert capsys.readouterr().out.count("finished before") == 8
    assert json.loads((tmp_path / "table.json").read_text()) == rows


def test_a_quick_table_says_how_many_epochs_its_cells_had(
    tmp_path, small, no_data, monkeypatch, without_type_checks
):
    monkeypatch.setattr(table_1, "QUICK_EPOCHS", {"gcn": (2, 1), "gcn_star": (3, 1)})
    cells = {"quick": True, "device": "cpu", "out": tmp_path, "datasets": ("cora_linqs",)}
    for models, words in ((("gcn",), ", 2 epochs,"), (("gcn", "gcn_star"), ", 2 to 3 epochs,")):
        table_1.run(Table1(models=models, **cells), plain())
        assert words in (tmp_path / "table.md").read_text()


def test_without_any_data_set_the_flag_is_named(tmp_path, no_data, capsys):
    with pytest.raises(SystemExit):
        cli.main(["reproduce", "table-1", "--datasets", "pubmed", "--out", str(tmp_path)])
    assert "--data-root" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--datasets", "reddit"], "Unknown dataset 'reddit' in the printed table"),
        (["--models", "gat"], "Unknown model 'gat' in the printed table"),
        (["--seeds", "0"], "`seeds` must be 1 or more"),
        (["--preset", "authors", "--datasets", "cora"], "Unknown dataset 'cora' in the authors"),
    ],
)
def test_mistakes_are_explained(capsys, flags, message):
    with pytest.raises(SystemExit):
        cli.main(["reproduce", "table-1", *flags])
    captured = capsys.readouterr()
    assert message in " ".join((captured.err + captured.out).replace("│", " ").split())


def test_cells_are_the_papers_protocol(tmp_path):
    for preset in ("printed", "authors"):
        for line in LINES[preset]:
            for dataset in DATASETS[preset]:
                run = cell_config(Table1(preset=preset), line, dataset, tmp_path)
                assert run.members == 100
                assert (run.epochs, run.select_from) == (
                    (200, 0) if line.model == "gcn" else (2000, 1000)
                )


def test_the_tuned_table_has_one_line_and_says_how_it_was_found(
    tmp_path, small, monkeypatch, capsys, without_type_checks
):
    monkeypatch.setattr(table_1, "DATASETS", {**DATASETS, "tuned": ("cora_linqs",)})
    flags = ["--preset", "tuned", "--quick", "--epochs", "2", "--device", "cpu"]
    monkeypatch.chdir(tmp_path)
    cli.main(["reproduce", "table-1", *flags])
    (row,) = json.loads((tmp_path / "runs/table-1-tuned-quick/table.json").read_text())
    assert row["model"] == "Gated diffusion (tuned)"
    assert row["paper"] is None
    assert row["evaluations"] > 1
    assert "one search on the validation nodes" in " ".join(capsys.readouterr().out.split())


def test_cells_that_two_presets_share_are_one_folder(tmp_path):
    def folders(preset):
        runs = [cell_config(Table1(preset=preset), x, "pubmed", tmp_path) for x in LINES[preset]]
        return {run.out: RunFolder(tmp_path, run) for run in runs}

    printed, authors = folders("printed"), folders("authors")
    shared = printed.keys() & authors.keys()
    assert len(printed) == 8
    assert len(shared) == 3
    for out in shared:
        one, other = printed[out].config, authors[out].config
        assert {**vars(one), "preset": ""} == {**vars(other), "preset": ""}


def test_markdown_leaves_a_dash_where_there_is_no_run(tmp_path):
    cells = {"metric": "accuracy", "members": 3, "evaluations": 4.0, "seconds": 1.5, "epochs": 2}
    rows = [
        Row(model="A", column="x", mean=80.04, std=0.46, paper=81.0, paper_std=0.5, **cells),
        Row(model="B", column="y", mean=None, std=None, **cells),
    ]
    lines = markdown(rows, "Title", ["A note."]).splitlines()
    assert lines[2:6] == [
        "|  | x | y |",
        "| --- | --- | --- |",
        "| A | 80.0 ± 0.5<br>paper 81.0 ± 0.5<br>4 evals, 3 members, 2 s | – |",
        "| B | – | failed<br>4 evals, 3 members, 2 s |",
    ]
    write(rows, tmp_path, "Title")
    assert len(json.loads((tmp_path / "table.json").read_text())) == 2


def test_a_curve_over_chunks_is_that_over_all_members(tmp_path):
    folder = RunFolder(tmp_path, Config())
    folder.open()
    values = np.random.default_rng(0).random((5, 7))
    for chunk, part in enumerate((values[:, :3], values[:, 3:])):
        folder.append(
            {
                "epoch": epoch,
                "chunk": chunk,
                "members": part.shape[1],
                "a": row.mean(),
                "a_std": row.std(),
            }
            for epoch, row in enumerate(part)
        )
    epochs, mean, std = node_figures.curve(tmp_path, "a")
    assert epochs.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(mean, values.mean(1))
    np.testing.assert_allclose(std, values.std(1))


def test_curves_go_through_the_epochs_that_were_evaluated(tmp_path):
    train_in(tmp_path / "run", select_from=7, chunk=2)
    assert node_figures.curve(tmp_path / "run", "test_accuracy")[0].tolist() == [
        2, 5, 7, 8, 9, 10, 11
    ]  # fmt: skip
    assert node_figures.curve(tmp_path / "run", "evaluations")[0].tolist() == list(range(12))
    runs = {"a run": tmp_path / "run"}
    node_figures.accuracies({"karate club": runs}, tmp_path / "accuracy.png")
    node_figures.evaluations(runs, "karate club", tmp_path / "evaluations.png")
    for name in ("accuracy", "evaluations"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_every_picture_is_drawn_from_small_runs(tmp_path, small, no_data, without_type_checks):
    console = plain()
    config = figures.Figures(
        quick=True, epochs=2, device="cpu", runs=tmp_path / "runs", out=tmp_path / "figures"
    )
    made = figures.run(config, console)
    assert [path.stem for path in made] == list(figures.PICTURES)
    for path in made:
        assert path.read_bytes().startswith(b"\x89PNG")
    numbers = json.loads((tmp_path / "figures" / "figures.json").read_text())["runs"]
    assert {each["run"] for each in numbers} == {
        path.name for path in (tmp_path / "runs").iterdir()
    }
    assert all(0 <= each["accuracy"]["mean"] <= 100 for each in numbers)
    with np.load(next((tmp_path / "runs").glob("*t1=10*")) / "arrays.npz") as arrays:
        assert arrays["times"][-1] == 10
        assert arrays["projected"].shape == (len(arrays["times"]), 1500, 2)
        assert (arrays["energy"] > 0).all()
        assert math.isfinite(arrays["energy"].sum())


def test_an_unknown_picture_is_refused():
    with pytest.raises(ValueError, match=r"Unknown picture 'cat'\. Choose among: trajectories"):
        figures.Figures(only=("cat",))


@pytest.mark.parametrize("name", ["seeds", "redrawn_seeds", "epochs"])
def test_pictures_of_nothing_are_refused_before_any_run(name):
    with pytest.raises(ValueError, match=f"`{name}` must be 1 or more, but is 0"):
        figures.Figures(**{name: 0})


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", figures.PICTURES)
def test_a_quick_picture_says_so(name, quick, tmp_path, no_data, monkeypatch):
    drawn = []
    for function in ("trajectories", "accuracies", "evaluations", "energies", "depths"):
        monkeypatch.setattr(node_figures, function, lambda *given: drawn.append(given))
    monkeypatch.setattr(figures.Studio, "_make", lambda self, run: run.out)
    config = figures.Figures(quick=quick, runs=tmp_path, out=tmp_path)
    figures.PICTURES[name](figures.Studio(config, plain()))
    assert ("QUICK" in str(drawn)) is quick
