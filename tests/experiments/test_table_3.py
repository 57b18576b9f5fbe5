"""Table 3: its files, its claims, its pictures, its command."""

import csv
import dataclasses
import json
import re
from pathlib import Path

import jaxtyping
import pytest

from graphode import cli
from graphode.experiments import particle_figures
from graphode.experiments.multi_agent import HORIZONS
from graphode.experiments.multi_agent_claims import claims
from graphode.experiments.table_3 import (
    LINES,
    NAMES,
    PAPER,
    Table3,
    _short,
    collect,
    line_config,
    run,
)
from graphode.experiments.tables import Row, markdown
from tests.experiments.consoles import plain, said

CONTRACT = {
    "model",
    "column",
    "metric",
    "mean",
    "std",
    "paper",
    "members",
    "evaluations",
    "seconds",
}
MAIN = ("Persistence", "Harmonic motion", "Static", "Neural ODE", "GDE", "GDE-II", "GMDE-II")
PAIR = "Pair force (tuned)"


def test_numbers_of_one_size_have_equally_many_digits_in_the_terminal():
    numbers = (None, 0.00096, 0.04, 0.11, 7.96, 8.0, 42.0, 1015.3)
    shown = ["", "9.6e-4", "0.040", "0.11", "8.0", "8.0", "42.0", "1015"]
    assert [_short(number) for number in numbers] == shown


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A whole table of a few epochs, made from the command line's settings."""
    out = tmp_path_factory.mktemp("table")
    config = Table3(
        seeds=2,
        epochs=2,
        n=4,
        duration=2.0,
        dt=1 / 32,
        horizons=(1, 5, 10),
        device="cpu",
        out=out,
        side=False,
    )
    console = plain(80)
    jaxtyping.config.update("jaxtyping_disable", True)  # thousands of small calls
    rows = run(config, console)
    jaxtyping.config.update("jaxtyping_disable", False)
    return config, rows, said(console)


def row(model, metric, K, mean) -> Row:
    return Row(
        model=model,
        column=f"K = {K}",
        metric=metric,
        mean=mean,
        std=0.0,
        members=1,
        evaluations=0.0,
        seconds=0.0,
        epochs=1,
    )


def test_the_files_hold_every_line_metric_and_horizon(table):
    config, rows, _ = table
    records = json.loads((config.out / "table.json").read_text())
    assert set(records[0]) >= CONTRACT
    lines = [line.name for line in config.lines]
    found = {(r["model"], r["metric"], r["column"]): r for r in records}
    assert len(found) == len(records) == len(rows)
    for line in lines:
        for metric in NAMES.values():
            for K in config.horizons:
                record = found[line, metric, f"K = {K}"]
                assert record["mean"] >= 0
                assert record["std"] >= 0
                assert record["members"] == 2
    with open(config.out / "table.csv") as file:
        assert len(list(csv.DictReader(file))) == len(records)


def test_the_papers_numbers_stand_where_they_belong(table):
    config, rows, _ = table
    for one in rows:
        K = int(one.column.removeprefix("K = "))
        line = next(line for line in LINES if line.name == one.model)
        if line.paper and one.metric == NAMES["mape"]:
            assert one.paper == PAPER[line.model][HORIZONS.index(K)]
        else:
            assert one.paper is None
    text = (config.out / "table.md").read_text()
    assert "paper 13.5" in text
    assert "## RMSE\n" in text


def test_harmonic_motion_costs_nothing_wherever_it_is_measured(table):
    _, rows, _ = table
    found = [one for one in rows if one.model == "Harmonic motion"]
    assert any(one.metric.endswith("without retraining") for one in found)
    assert {(one.evaluations, one.seconds, one.epochs, one.label) for one in found} == {
        (0.0, 0.0, 0, "")
    }
    trained = {one.seconds for one in rows if one.model == PAIR}
    assert len(trained) == 1
    assert min(trained) > 0


def test_oracles_are_labelled(table):
    _, rows, _ = table
    labels = {one.model: one.label for one in rows}
    assert labels["GDE-II"] == "graph of predicted positions"
    assert labels["GDE-II, oracle graph"] == "oracle graph"
    assert labels["Static"] == ""


def test_the_terminal_shows_all_in_eighty_columns(table):
    _, _, printed = table
    for name in (*MAIN, PAIR):
        assert f"\n {name} " in printed
    shown = [line for line in printed.splitlines() if line.startswith(" ")]
    assert max(map(len, shown)) <= 80
    assert not any("…" in line for line in shown)


def test_every_picture_is_drawn(table):
    config, _, printed = table
    for name in particle_figures.PICTURES:
        assert (config.out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert f"{name}.png" in printed.replace("\n", "")


def test_a_table_is_made_again_from_its_folders(table, monkeypatch):
    config, rows, _ = table
    monkeypatch.setattr("graphode.experiments.multi_agent_run.train", None)
    again, _ = collect(config, config.lines, config.out, plain())
    assert [dataclasses.replace(r) for r in again] == rows


def test_claims_hold_where_numbers_do():
    good = {
        "Persistence": 8.0,
        "Harmonic motion": 4.0,
        "Static": 9.0,
        "Neural ODE": 7.0,
        "GDE": 3.0,
        "GDE-II": 2.0,
        "GMDE-II": 1.0,
        PAIR: 0.5,
    }
    metrics = ("MAPE, %", "MAPE, median over systems, %", "median APE, %", "RMSE")
    rows = [row(m, metric, K, v) for m, v in good.items() for metric in metrics for K in (1, 3, 50)]
    found = claims(rows)
    assert [claim["holds"] for claim in found] == [True] * len(found)
    assert len(found) == 1 + 4 * 3 + 1

    elsewhere = [row(m, "RMSE, other starts", 50, good[m]) for m in (PAIR, "Harmonic motion")]
    (carried,) = (claim for claim in claims(rows + elsewhere) if claim not in found)
    assert carried["holds"]
    assert "without retraining" in carried["claim"]

    worse = [
        dataclasses.replace(r, mean=4.5)
        if (r.model, r.metric, r.column) == ("GDE-II", "RMSE", "K = 50")
        else r
        for r in rows
    ]
    failed = [claim for claim in claims(worse) if not claim["holds"]]
    assert [claim["claim"].split(",")[0] for claim in failed] == [
        "GDE-II < GDE < the better of Neural ODE and Static",
        "GDE-II beats persistence and harmonic motion",
    ]
    assert failed[1]["where"] == [
        "RMSE of GDE-II against Harmonic motion at K = 50 (4.5 against 4 at K = 50)"
    ]


@pytest.mark.parametrize(
    ("model", "claimed"),
    [
        ("GDE-II", "GDE-II (<|beats)"),
        ("GDE", "GDE (<|beats)"),
        (PAIR, "tuned"),
        ("Harmonic motion", "harmonic motion"),
    ],
)
def test_what_is_not_finite_is_neither_smaller_nor_larger(model, claimed):
    values = {**dict.fromkeys(("Persistence", "Harmonic motion", "Static", "Neural ODE"), 4.0)}
    values |= {"GDE": 3.0, "GDE-II": 2.0, PAIR: 0.5}
    metrics = ("MAPE, %", "MAPE, median over systems, %", "median APE, %", "RMSE", "RMSE, others")
    rows = [row(m, metric, 3, v) for m, v in values.items() for metric in metrics]
    assert all(claim["holds"] for claim in claims(rows))
    rows = [dataclasses.replace(r, mean=None) if r.model == model else r for r in rows]
    concerned = [claim for claim in claims(rows) if re.search(claimed, claim["claim"])]
    assert len(concerned) > 1
    assert not any(claim["holds"] for claim in concerned)


def test_of_two_the_one_that_is_finite_is_the_better():
    values = {"GDE-II": 1.0, "GDE": 2.0, "Static": 3.0, "Neural ODE": 4.0}
    for failed in ("Static", "Neural ODE"):
        held = {**values, failed: None}
        rows = [row(m, metric, 3, v) for m, v in held.items() for metric in NAMES.values()]
        assert [claim["holds"] for claim in claims(rows)] == [True]


def test_errors_that_are_not_finite_are_gaps_in_the_picture(tmp_path):
    values = {1: (1.0, 0.1), 5: (2.0, 0.2), 10: (None, None)}
    metrics = ("mape", "median_ape", "rmse")
    errors = {(m, metric): values for m in ("Static", "GDE") for metric in metrics}
    particle_figures.draw_growth(errors, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").exists()


def test_the_order_is_asked_from_three_steps_on():
    values = {"GDE-II": 1.0, "GDE": 2.0, "Static": 3.0, "Neural ODE": 4.0}
    rows = [
        row(m, metric, K, v) for m, v in values.items() for metric in NAMES.values() for K in (1, 3)
    ]
    swapped = [dataclasses.replace(r, mean=5 - r.mean) if r.column == "K = 1" else r for r in rows]
    assert [claim["holds"] for claim in claims(swapped)] == [True]


def test_the_order_is_asked_of_both_convolutions():
    values = {
        "GDE-II": 1.0,
        "GDE-II, self-loops": 2.5,
        "GDE": 2.0,
        "Static": 3.0,
        "Neural ODE": 4.0,
    }
    rows = [row(m, metric, 3, v) for m, v in values.items() for metric in NAMES.values()]
    found = {claim["claim"].split(" <")[0]: claim for claim in claims(rows)}
    assert found["GDE-II"]["holds"]
    assert found["GDE-II, self-loops"]["where"] == [
        "MAPE of GDE-II, self-loops against GDE at K = 3 (2.5 against 2 at K = 3)",
        "RMSE of GDE-II, self-loops against GDE at K = 3 (2.5 against 2 at K = 3)",
    ]


def test_a_table_of_two_metrics_has_two_parts():
    text = markdown([row("A", "MAPE, %", 1, 20.0), row("A", "RMSE", 1, 0.0123)], "T", costs=False)
    assert text.splitlines()[2:] == [
        "## MAPE, %",
        "",
        "|  | K = 1 |",
        "| --- | --- |",
        "| A | 20.0 ± 0.0 |",
        "",
        "## RMSE",
        "",
        "|  | K = 1 |",
        "| --- | --- |",
        "| A | 0.01230 ± 0.00000 |",
    ]


def test_side_studies_are_wider_or_fed():
    config = Table3()
    cells = {line.name: line_config(config, line, Path("runs")) for line in LINES}
    assert cells["Static, 32n"].hidden == 32
    assert cells["Neural ODE, A fed"].adjacency
    assert cells["GDE-II, oracle graph"].oracle
    assert cells["GDE-II, oracle graph"].model == cells["GDE-II"].model == "gde_ii"
    assert [line.name for line in LINES if line.paper] == ["Static", "Neural ODE", "GDE", "GDE-II"]
    assert cells[PAIR].schedule == "cosine"
    assert cells["GDE"].schedule == "constant"
    assert len({cell.out for cell in cells.values()}) == len(LINES)
    assert {line.name for line in Table3(quick=True).lines} < {line.name for line in config.lines}


def test_unknown_models_are_answered_with_known_ones():
    with pytest.raises(ValueError, match=r"Unknown model 'gcn' in table 3\. Choose among: persis"):
        Table3(models=("gcn",))
    with pytest.raises(ValueError, match="`seeds` must be 1 or more, but is 0"):
        Table3(seeds=0)


def test_the_command_line_runs_one_model_and_one_table(tmp_path, capsys, without_type_checks):
    small = "--n 3 --duration 1 --dt 0.03125 --device cpu --horizons 1 5 --epochs 2"
    main = f"run multi-agent --model gde --members 2 {small} --out {tmp_path / 'run'}"
    cli.main(main.split())
    assert "gde (graph of predicted positions), 2 members: K = 1" in capsys.readouterr().out
    assert json.loads((tmp_path / "run/config.json").read_text())["activation"] == "softplus"
    main = f"reproduce table-3 --quick --models harmonic gde_ii {small} --out {tmp_path / 'table'}"
    cli.main(main.split())
    said = capsys.readouterr().out
    assert "QUICK: what must be seen is not judged by so little" in said
    assert "FAILS" not in said
    records = json.loads((tmp_path / "table/table.json").read_text())
    assert {r["label"] for r in records if r["model"] == "GDE-II"} == {
        "graph of predicted positions, quick"
    }
    with pytest.raises(SystemExit):
        cli.main(["run", "multi-agent", "--n", "1"])
    assert "2 or more, but is 1" in " ".join(capsys.readouterr().err.split())


def test_no_claim_is_made_of_what_was_not_measured():
    models = ("Static", "Neural ODE", "GDE", "GDE-II")
    rows = [row(m, metric, 1, 1.0) for m in models for metric in ("MAPE, %", "RMSE")]
    assert claims(rows) == []
    assert len(claims([*rows, *(dataclasses.replace(r, column="K = 3") for r in rows)])) == 1
