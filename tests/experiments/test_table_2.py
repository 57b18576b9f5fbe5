"""Table 2, its claims and its pictures are made from run folders, and say what they are."""

import csv
import dataclasses
import json
import shutil

import numpy as np
import pytest

from graphode import cli
from graphode.experiments import traffic_figures
from graphode.experiments.table_2 import (
    KEEPS,
    LINES,
    PAPER,
    Line,
    Table2,
    _labelled,
    _notes,
    cell_config,
    column_of,
    rows_of,
    run,
)
from graphode.experiments.tables import Row
from graphode.experiments.traffic import TrafficForecast
from graphode.experiments.traffic_claims import claims, growth, rmse_by
from graphode.experiments.traffic_units import NAMES, Units

REQUIRED = {
    "model", "column", "metric", "mean", "std", "paper", "members", "evaluations", "seconds",
}  # fmt: skip
FIVE_MINUTES = Units("mph", 5.0)


def test_the_table_is_written_with_its_claims_and_pictures(tmp_path, capsys, without_type_checks):
    flags = ["--quick", "--epochs", "1", "--masks", "2", "--sensors", "5", "--days", "3"]
    flags += ["--keeps", "0.5", "--seeds", "1", "--device", "cpu", "--out", str(tmp_path)]
    flags += ["--models", "persistence", "gcgru", "gcde_gru"]
    cli.main(["reproduce", "table-2", *flags])
    shown = " ".join(capsys.readouterr().out.split())
    assert "QUICK" in shown
    assert "of PeMSD7(M), not of simulated" in shown
    rows = json.loads((tmp_path / "table.json").read_text())
    assert all(row.keys() >= REQUIRED for row in rows)
    names = ["Persistence", "GCGRU, printed", "GCDE-GRU, printed", "GCGRU", "GCDE-GRU"]
    assert list(dict.fromkeys(row["model"] for row in rows)) == names
    assert {row["metric"] for row in rows} == set(map(FIVE_MINUTES.metric, NAMES))
    stgcn = [row["column"] for row in rows if row["column"].startswith("12 in")]
    assert set(stgcn) == {f"12 in, {ahead} min out" for ahead in (15, 30, 45)}
    printed = [
        row
        for row in rows
        if (row["model"], row["column"], row["metric"])
        == ("GCDE-GRU, printed", "50 %", "RMSE, mph")
    ]
    assert [row["paper"] for row in printed] == [11.04]
    with open(tmp_path / "table.csv") as file:
        assert [row["model"] for row in csv.DictReader(file)] == [row["model"] for row in rows]
    assert (tmp_path / "table.md").read_text().startswith("# Table 2")
    found = json.loads((tmp_path / "claims.json").read_text())
    assert any("never seen" in c["claim"] or "multiples of 10" in c["claim"] for c in found)
    for name in ("gaps", "training", "forecasts", "by-time"):
        assert (tmp_path / f"{name}.png").stat().st_size > 5000
    cli.main(["reproduce", "table-2", *flags])
    assert capsys.readouterr().out.count("finished before") == 5 + 4
    assert json.loads((tmp_path / "table.json").read_text()) == rows
    shutil.rmtree(tmp_path / "gcgru-tuned-50")
    cli.main(["reproduce", "table-2", *flags, "--finished"])
    assert capsys.readouterr().out.count("finished before") == 5 + 4 - 1
    there = json.loads((tmp_path / "table.json").read_text())
    gone = [row for row in rows if row not in there]
    assert {(row["model"], row["column"]) for row in gone} == {("GCGRU", "50 %")}


def test_a_table_of_what_is_finished_needs_something_finished(tmp_path):
    with pytest.raises(ValueError, match="No run of the table is finished"):
        run(Table2(quick=True, finished=True, device="cpu", out=tmp_path))


def test_the_papers_numbers_are_those_of_its_table():
    assert [mean for mean, _ in PAPER["gcgru"]["mape"]] == [23.60, 22.86, 21.33, 20.92]
    assert [mean for mean, _ in PAPER["gru"]["rmse"]] == [13.25, 13.22, 13.28, 13.29]
    assert PAPER["gcde_gru"]["rmse"][0] == (11.67, 0.10)


def test_cells_are_the_papers_protocol(tmp_path):
    for line in LINES:
        cell = cell_config(Table2(dataset="pemsd7m"), line, 0.3, tmp_path)
        epochs = 40 if line.preset == "printed" else 12
        assert (cell.members, cell.masks, cell.epochs, cell.keep) == (5, 20, epochs, 0.3)
        assert cell.preset == line.preset
    assert Table2().probabilities == KEEPS == (0.3, 0.5, 0.7, 1.0)
    assert {line.model for line in Table2(preset="printed").lines} == {
        "persistence", "historical_average", "gru", "gcgru", "gcde_gru",
    }  # fmt: skip
    folders = [cell_config(Table2(), line, keep, tmp_path).out for line in LINES for keep in KEEPS]
    assert len(set(folders)) == len(folders)


def test_each_keep_has_a_column_and_a_folder_of_its_own(tmp_path):
    keeps = (0.3, 0.304, 0.07, 0.29, 1.0)
    table = Table2(quick=True, keeps=keeps)
    cells = [cell_config(table, LINES[0], keep, tmp_path).out for keep in keeps]
    assert len(set(cells)) == len(keeps)
    assert [column_of(keep) for keep in keeps] == ["30 %", "30.4 %", "7 %", "29 %", "100 %"]
    names = [TrafficForecast.of(keep=keep).resolved().out for keep in keeps[:3]]
    assert [str(out).rsplit("-")[-1] for out in names] == ["30", "30.4", "7"]
    with pytest.raises(ValueError, match=r"`keeps` must differ.* are 30 %, 50 %, 30 %. Give each"):
        Table2(keeps=(0.3, 0.5, 0.3))


def test_a_percentile_that_is_given_is_that_of_every_line(tmp_path):
    for line in LINES:
        table = Table2(percentile=90.0, normalization="per_sensor")
        given = cell_config(table, line, 0.3, tmp_path)
        assert given.normalization == "per_sensor"
        preset = cell_config(Table2(), line, 0.3, tmp_path)
        assert (given.graph, given.percentile) == ("percentile", 90.0)
        assert preset.percentile == (40.0 if line.preset == "printed" else 10.0)


def test_the_warning_before_a_table_names_a_flag_that_the_table_has(capsys):
    with pytest.raises(SystemExit):
        cli.main(["reproduce", "table-2", "--help"])
    shown = capsys.readouterr().out
    assert "--percentile" in shown
    assert "--normalization" in shown


@pytest.mark.parametrize(
    ("dataset", "unit", "words"),
    [
        ("pemsd7m", "mph", "are of PeMSD7(M)."),
        ("pems08", "mph", "are of PeMSD7(M), not of pems08: other roads, other speeds."),
        ("v.csv", "km/h", "of PeMSD7(M), in mph, not of v.csv: other roads, other speeds."),
        ("v.csv", None, "of PeMSD7(M), in mph, not of v.csv: other roads, other speeds."),
    ],
)
def test_the_papers_numbers_are_spoken_of_where_they_stand(dataset, unit, words):
    given = {"members": 1, "evaluations": 0.0, "seconds": 0.0, "epochs": 1, "mean": 2.0, "std": 0.1}
    ours = Row(model="GRU", column="30 %", metric="RMSE", **given)
    printed = dataclasses.replace(ours, model="GRU, printed", paper=13.25)
    units = Units(unit, 5.0)
    assert _notes([ours, printed], dataset, units, [])[-1].endswith(words)
    assert not any("paper" in note for note in _notes([ours], dataset, units, []))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--models", "arima"], "Unknown model 'arima' in table 2"),
        (["--seeds", "0"], "`seeds` must be 1 or more"),
        (["--keeps", "0.3", "2"], "`keep` must be a probability"),
        (["--dataset", "file"], "without distances there is no graph"),
        (["--dataset", "metr_la"], "metr_la"),
    ],
)
def test_mistakes_are_explained(capsys, flags, message, without_type_checks):
    with pytest.raises(SystemExit):
        cli.main(["reproduce", "table-2", *flags])
    captured = capsys.readouterr()
    assert message in " ".join((captured.err + captured.out).replace("│", " ").split())


def test_without_the_data_set_the_place_for_it_is_named(tmp_path, capsys, no_data):
    with pytest.raises(SystemExit):
        cli.main(["reproduce", "table-2", "--dataset", "pemsd7m", "--out", str(tmp_path)])
    assert "V_228.csv" in capsys.readouterr().err


def test_a_model_that_loses_to_persistence_says_so():
    def row(model, mean):
        given = {"members": 1, "evaluations": 0.0, "seconds": 0.0, "epochs": 1}
        return Row(model=model, column="30 %", metric="RMSE, mph", mean=mean, std=0.1, **given)

    rows = [row("Persistence", 2.7), row("Historical average", 5.3), row("GRU", 3.0)]
    assert _labelled(rows[2], rows).label == "loses to persistence"
    assert _labelled(rows[1], rows).label == ""
    assert _labelled(row("GCGRU", 2.5), rows).label == ""
    assert _labelled(row("GCGRU", None), rows).label == ""


def folder_with(path, gap_rmse, members=2):
    """A run folder whose error at gap k is `gap_rmse[k]`, the same by the time of day."""
    path.mkdir()
    counts = np.full((members, len(gap_rmse)), 1000.0)
    squares = np.square(gap_rmse) * counts
    np.savez(
        path / "arrays.npz",
        gap_squares=squares,
        gap_counts=counts,
        day_squares=squares,
        day_counts=counts,
        training_gaps=np.ones(5),
    )
    return path


def result_of(folder, rmse, std=0.01, harder=0.2, **more):
    """Of two members on two masks, one of them harder, and of a third member that failed."""
    rows = [[rmse - harder, rmse + harder], [rmse - harder - 0.1, rmse + harder + 0.1], [None] * 2]
    return {
        "metrics": {"rmse": {"mean": float(rmse), "std": std}},
        "test": {"rmse": rows},
        "config": {"out": str(folder), "seed": 5, "members": 3},
        "failed_seeds": [7],
        **more,
    }


def table_of(tmp_path, ours, theirs, **more):
    results = {}
    for line, gaps in (("GCDE-GRU", ours), ("GCGRU", theirs)):
        for column, factor in (("30 %", 1.0), ("50 %", 0.8)):
            folder = folder_with(tmp_path / f"{line}{column}", factor * np.array(gaps))
            extra = more if line == "GCDE-GRU" else {"harder": 0.25}
            rmse = factor * np.sqrt(np.square(gaps).mean()) * (0.99 if column == "50 %" else 1)
            results[line, column] = result_of(folder, rmse, **extra)
    return results


def test_claims_are_checked_on_the_numbers(tmp_path):
    ours, theirs = [1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 1.1, 1.2, 1.3, 1.4]
    churn = {"rise_percent": {"mean": 1.0}}
    results = table_of(tmp_path, ours, theirs, churn=churn)
    found = {c["claim"]: c for c in claims(results, 5.0)}
    holds = {claim.split(",")[0].split(" grows")[0]: c["holds"] for claim, c in found.items()}
    assert holds["Tuned"]
    clearly = next(c for claim, c in found.items() if "standard deviation" in claim)
    assert clearly["holds"]
    assert clearly["where"][0].endswith("deviation 0.010, of the difference mask by mask 0.050")
    by_gap = next(c for claim, c in found.items() if "with the gap" in claim)
    assert by_gap["holds"]
    assert by_gap["where"][0] == "rank correlation 1.00"
    assert next(c for claim, c in found.items() if "come and go" in claim)["holds"]


def test_claims_that_fail_say_where(tmp_path):
    ours, theirs = [1.5, 1.4, 1.3, 1.2], [1.0, 1.1, 1.2, 1.3]
    churn = {"rise_percent": {"mean": 7.0}}
    unseen = {
        name: {"1": {"mean": value, "std": 0.01}}
        for name, value in (("forecast", 1.2), ("interpolated", 1.1), ("persistence", 1.5))
    }
    results = table_of(tmp_path, ours, theirs, churn=churn)
    results["GCDE-GRU", "unseen times"] = result_of(tmp_path, 1.0, unseen_times=unseen)
    found = claims(results, 5.0)
    for part, where in (
        ("wherever all ran", "GCGRU at 30 %"),
        ("standard deviation", "GCGRU at 30 %: by -"),
        ("multiples of 10", "RMSE 1.2000 (deviation over members 0.0100), interpolated 1.1000"),
        ("come and go", "+7.00 % at 30 %"),
    ):
        claim = next(c for c in found if part in c["claim"])
        assert not claim["holds"]
        assert any(where in text for text in claim["where"]), claim


@pytest.mark.parametrize(
    ("margins", "verdict", "where"),
    [
        ([1, 2, 3, 4, 5, 6], "holds", "rank correlation 1.00"),
        ([2, 1, 3, 4, 6, 5], "holds", "rank correlation 0.89"),
        ([8, 1.7, 0.2, -0.1, 1, 2, 3, 4, 6, 5, 7, 8.4], "partly", "it falls to 4 and grows from"),
        ([8, 7, 6, 5, 1, 2], "fails", "rank correlation -0."),
        ([6, 5, 4, 3, 2, 1], "fails", "rank correlation -1.00"),
    ],
)
def test_a_margin_that_falls_before_it_grows_grows_partly(margins, verdict, where):
    found, numbers = growth(np.arange(1, len(margins) + 1), np.array(margins) / 100)
    assert found == verdict
    assert numbers[0].startswith(where)
    assert numbers[-1] == f"{margins[-1]:.1f} % at {len(margins)}"


def test_churn_that_concerns_nobody_is_not_judged(tmp_path):
    """Where the sensors that leave have no neighbour the others' error cannot rise."""
    churn = {"rise_percent": {"mean": 0.0}, "edges_cut": 0}
    results = table_of(tmp_path, [1.0] * 4, [1.0] * 4, churn=churn)
    claim = claims(results, 5.0)[-1]
    assert "come and go" in claim["claim"]
    assert (claim["verdict"], claim["holds"]) == ("not judged", False)
    churn["edges_cut"] = 3
    assert claims(results, 5.0)[-1]["verdict"] == "holds"
    notes = _notes([], "simulated", FIVE_MINUTES, claims(results, 5.0))
    assert notes[-1].startswith("HOLDS: When a tenth")


def test_a_loss_that_shrinks_with_sparser_data_is_no_margin_that_grows(tmp_path):
    results = table_of(tmp_path, [1.1] * 5, [1.0] * 5)
    results["GCDE-GRU", "50 %"]["metrics"]["rmse"]["mean"] *= 1.1
    claim = next(c for c in claims(results, 5.0) if "gets sparser" in c["claim"])
    assert claim["where"][0].startswith("-10.0 %")
    assert not claim["holds"]


def test_what_is_not_there_is_not_claimed():
    assert claims({}, 5.0) == []


def test_errors_by_group_are_means_over_members(tmp_path):
    folder = folder_with(tmp_path / "run", [0.0, 2.0, 3.0], members=3)
    mean, std, count = rmse_by(folder, "gap")
    assert mean.tolist() == [0.0, 2.0, 3.0]
    assert std.tolist() == [0.0] * 3
    assert count.tolist() == [1000.0] * 3


def test_pictures_that_cannot_be_drawn_are_left_out(tmp_path):
    folder = folder_with(tmp_path / "run", [1.0, 2.0, 3.0])
    drawn = list(
        traffic_figures.draw_all({("Persistence", "30 %"): folder}, tmp_path, FIVE_MINUTES)
    )
    assert [path.stem for path in drawn] == ["gaps", "by-gap", "by-time"]
    assert list(traffic_figures.draw_all({}, tmp_path, FIVE_MINUTES)) == []


def test_a_failed_run_is_a_row_without_numbers():
    nothing = {"mean": None, "std": None}
    result = {
        "metrics": {"rmse": nothing},
        "horizons": {},
        "members": 0,
        "evaluations": {"evaluations": 4.0},
        "seconds": 1.0,
        "config": {"protocol": "next_sample", "epochs": 2, "out": "x"},
        "device": "NVIDIA H200",
        "date": "2026-11-18T11:38:34+00:00",
    }
    (row,) = rows_of(result, Line("GCGRU", "gcgru"), "30 %", FIVE_MINUTES, quick=False)
    assert row.mean is None
    assert row.members == 0
    assert (row.device, row.date) == ("NVIDIA H200", "2026-11-18")
