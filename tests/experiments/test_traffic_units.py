"""Speeds of one's own files in their own unit and interval: tables, pictures, claims and lines."""

import contextlib
import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from graphode import cli
from graphode.data import simulated_traffic
from graphode.experiments import traffic_figures
from graphode.experiments.run_folder import read_json
from graphode.experiments.traffic import TrafficForecast
from graphode.experiments.traffic_claims import claims
from graphode.experiments.traffic_run import run
from graphode.experiments.traffic_units import NAMES, Units
from tests.experiments import consoles

MPH = [
    "RMSE, mph",
    "RMSE by the printed formula (mean over sensors), mph",
    "MAE, mph",
    "MAPE, %",
    "MAPE by the printed formula, %",
]


def own_files(folder, minutes=15, start="2024-05-06", days=4, **changes) -> TrafficForecast:
    """Four sensors, A to D, for some days."""
    every = minutes // 5
    speeds = simulated_traffic(4, days).speeds.numpy()[::every]
    table = pd.DataFrame((1.609 * speeds).round(3), columns=[*"ABCD"])
    first = pd.Timestamp(start, tz="Europe/Berlin")
    dates = pd.date_range(first, periods=len(speeds), freq=f"{minutes}min")
    table.insert(0, "time", [date.isoformat() for date in dates])
    table.to_csv(folder / "speeds.csv", index=False)
    (folder / "distances.csv").write_text("from,to,length\nA,B,1\nB,C,1\nC,D,1\n")
    paths = {"speeds": folder / "speeds.csv", "distances": folder / "distances.csv"}
    given = {"percentile": 90.0, "masks": 2, "out": folder / "run", "device": "cpu", **paths}
    return TrafficForecast.of("persistence", "file", **{**given, **changes})


def said(config) -> str:
    console = consoles.plain()
    run(config, console)
    return consoles.said(console)


def result_of(dataset="pems08", unit: str | None = None, **data):
    return {"config": {"dataset": dataset} | ({"unit": unit} if unit else {}), "data": data}


@pytest.mark.parametrize("dataset", ["pems08", "pemsd7m", "simulated"])
def test_the_data_sets_of_the_library_are_in_mph(dataset):
    units = Units.of([result_of(dataset)])
    assert [units.metric(name) for name in NAMES] == MPH
    assert TrafficForecast.of("gru", dataset).resolved().unit == "mph"
    with pytest.raises(ValueError, match=rf"the data set is {dataset}, whose .* in mph.*--unit"):
        TrafficForecast.of("gru", dataset, unit="km/h")


def test_results_older_than_units_and_intervals_are_of_mph_and_five_minutes():
    assert Units.of([result_of("pems08")]) == Units("mph", 5.0, "speed")
    assert Units.of([result_of("file")]) == Units(None, 5.0, "reading")


def test_the_interval_is_that_of_the_first_run_that_knows_it():
    older, younger = result_of("file"), result_of("file", interval_minutes=15.0)
    assert Units.of([older, younger]).minutes == 15
    assert Units.of([younger, older]).minutes == 15


def test_intervals_are_called_by_whole_minutes_or_by_seconds():
    assert Units(None, 15.0).intervals == "15-minute intervals"
    assert Units(None, 1440 / 4320).intervals == "20-second intervals"


def test_where_no_unit_is_known_none_is_named():
    units = Units.of([result_of("file", interval_minutes=15.0)])
    assert units.metric("rmse") == "RMSE"
    assert units.metric("mape") == "MAPE, %"
    assert units.named("speed") == "speed"


def test_a_table_has_one_unit_whichever_of_its_runs_were_given_it():
    runs = [result_of("file"), result_of("file", "km/h")]
    assert Units.of(runs).speed == "km/h"
    assert Units.of(runs, "vehicles").speed == "vehicles"


@pytest.mark.parametrize(
    ("minutes", "words"),
    [
        (5.0, "5 minutes ahead, trained at multiples of 10, it is"),
        (15.0, "15 minutes ahead, trained at multiples of 30, it is"),
        (1.0, "1 minute ahead, trained at multiples of 2, it is"),
        (0.5, "0.5 minutes ahead, trained at multiples of 1, it is"),
    ],
)
def test_claims_speak_of_the_recordings_intervals(minutes, words):
    value = {"1": {"mean": 1.0, "std": 0.1}}
    unseen = dict.fromkeys(("forecast", "interpolated", "persistence"), value)
    (claim,) = claims({("GCDE-GRU", "unseen times"): {"unseen_times": unseen}}, minutes)
    assert claim["claim"].startswith(words)


def test_a_unit_stands_in_the_line_and_does_not_make_another_run(tmp_path, without_type_checks):
    config = own_files(tmp_path)
    first = said(config)
    assert "mph" not in first
    number = first.split("test RMSE ")[1].split(",")[0]
    for unit in ("km/h", "vehicles"):
        again = said(dataclasses.replace(config, unit=unit))
        assert f"test RMSE {number} {unit}, MAPE" in again
        assert "finished before" in again
    given = dataclasses.replace(config, unit="km/h", out=tmp_path / "given")
    said(given)
    assert f"test RMSE {number} km/h" in said(dataclasses.replace(given, unit=None))


def test_folders_older_than_the_unit_are_read(tmp_path, without_type_checks):
    out = tmp_path / "run"
    config = TrafficForecast.of(
        "persistence", "simulated", sensors=4, days=3, masks=2, device="cpu", out=out
    )
    before = said(config).splitlines()[0]
    assert " mph, MAPE" in before
    for name in ("config.json", "result.json"):
        held = read_json(out / name)
        (held if name == "config.json" else held["config"]).pop("unit")
        held.get("data", {}).pop("interval_minutes", None)
        (out / name).write_text(json.dumps(held))
    assert said(config).splitlines()[0] == before


def test_the_interval_is_in_the_result_and_stgcns_horizons_are_its_multiples(
    tmp_path, without_type_checks
):
    result = run(own_files(tmp_path, protocol="stgcn", keep=1.0), consoles.plain())
    assert result["data"]["interval_minutes"] == 15
    assert list(result["horizons"]) == ["45 min", "90 min", "135 min"]


@pytest.mark.parametrize(("minutes", "parts"), [(15, 48), (30, 48), (60, 24)])
def test_every_part_of_the_day_has_errors_whatever_the_interval(
    tmp_path, minutes, parts, without_type_checks
):
    run(own_files(tmp_path, minutes, days=10, keep=1.0), consoles.plain())
    with np.load(tmp_path / "run" / "arrays.npz") as arrays:
        assert arrays["day_counts"].shape == (1, parts)
        assert (arrays["day_counts"] > 0).all()
        assert set(arrays["sensors"]) < set("ABCD")


def test_gaps_are_not_counted_across_a_change_of_the_clock_which_is_said(
    tmp_path, without_type_checks
):
    config = own_files(tmp_path, start="2024-03-30", keep=1.0)
    words = said(config)
    assert "offset from UTC changes 1 time: no window" in words
    assert "every 15 minutes, 4.0 days" in words
    with np.load(tmp_path / "run" / "arrays.npz") as arrays:
        assert (arrays["training_gaps"] == 1).all()


@pytest.mark.parametrize("unit", ["km/h", None])
def test_tables_and_pictures_of_ones_own_files_are_in_their_unit_and_interval(
    tmp_path, capsys, monkeypatch, unit, without_type_checks
):
    labels: set[str] = set()
    picture = traffic_figures.picture

    @contextlib.contextmanager
    def watched(path, *size):
        with picture(path, *size) as panels:
            yield panels
            labels.update(
                text for axes in panels for text in (axes.get_xlabel(), axes.get_ylabel())
            )

    monkeypatch.setattr(traffic_figures, "picture", watched)
    config = own_files(tmp_path, days=20)
    flags = ["--dataset", "file", "--speeds", str(config.speeds), "--distances"]
    flags += [str(config.distances), "--quick", "--epochs", "1", "--masks", "2", "--keeps", "0.5"]
    flags += ["--models", "persistence", "gcgru", "gcde_gru", "--preset", "tuned", "--seeds", "1"]
    flags += ["--device", "cpu", "--out", str(tmp_path / "table")]
    flags += ["--unit", unit] if unit else []
    cli.main(["reproduce", "table-2", *flags])
    ending = f", {unit}" if unit else ""
    rows = json.loads((tmp_path / "table" / "table.json").read_text())
    assert {row["metric"] for row in rows} == {name.replace(", mph", ending) for name in MPH}
    assert {"12 in, 45 min out", "12 in, 135 min out"} < {row["column"] for row in rows}
    found = {claim["claim"] for claim in json.loads((tmp_path / "table/claims.json").read_text())}
    assert any(claim.startswith("15 minutes ahead, trained at multiples of 30") for claim in found)
    assert labels >= {f"test RMSE{ending}", f"reading{ending}", f"validation RMSE{ending}"}
    assert labels >= {"gap, 15-minute intervals", "gap to the forecast, 15-minute intervals"}
    shown = " ".join(capsys.readouterr().out.split())
    for text in (*labels, *found, shown):
        assert "mph" not in text
        assert "5-minute" not in text.replace("15-minute", "")
