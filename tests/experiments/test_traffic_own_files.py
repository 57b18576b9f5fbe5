"""`graphode run traffic --dataset file`: a table of speeds of one's own, and its distances."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
import torch

from graphode import cli
from graphode.data import simulated_traffic
from graphode.experiments.traffic import TrafficForecast
from graphode.experiments.traffic_data import described, few_days, graph_of, load_series
from graphode.experiments.traffic_prediction import TrafficPrediction, predict
from graphode.experiments.traffic_run import run
from tests.experiments.consoles import plain, said

SMALL = {"hidden": 4, "epochs": 1, "masks": 2, "batch_size": 32, "device": "cpu"}


def test_a_table_of_ones_own_is_forecast(tmp_path, without_type_checks):
    series = simulated_traffic(4, 3)
    assert series.distances is not None
    table = series.speeds.numpy().copy()
    table[5, 1] = np.nan
    np.savetxt(tmp_path / "speeds.csv", table, delimiter=",", fmt="%.3f")
    np.savetxt(tmp_path / "distances.csv", series.distances.numpy(), delimiter=",")
    changes = {
        "speeds": tmp_path / "speeds.csv",
        "distances": tmp_path / "distances.csv",
        "missing": "mask",
        **SMALL,
    }
    for model in ("gcde_gru", "gru"):
        config = TrafficForecast.of(model, "file", **changes, out=tmp_path / model)
        assert run(config, plain())["data"]["sensors"] == 4
    with pytest.raises(ValueError, match=r"sensor 1 at line 6.*--missing mask"):
        load_series(dataclasses.replace(config, missing="refuse"))


def own_files(folder, minutes=5, **changes) -> TrafficForecast:
    """Three days of four sensors, A to D, with times, and a list of the roads A, B, C."""
    speeds = simulated_traffic(4, 3).speeds.numpy()
    table = pd.DataFrame(speeds.round(3), columns=[*"ABCD"])
    dates = pd.date_range("2024-05-06", periods=len(speeds), freq=f"{round(60 * minutes)}s")
    table.insert(0, "time", dates.astype(str))
    table.to_csv(folder / "speeds.csv", index=False)
    (folder / "distances.csv").write_text("from,to,length\nA,B,1\nB,C,1\n")
    paths = {"speeds": folder / "speeds.csv", "distances": folder / "distances.csv"}
    given = {"percentile": 90.0, "out": folder / "run", "device": "cpu", **paths, **changes}
    return TrafficForecast.of("persistence", "file", **given)


def test_what_was_read_of_ones_own_files_is_said_before_training(tmp_path, without_type_checks):
    console = plain()
    run(own_files(tmp_path), console)
    words = said(console)
    assert words.startswith(
        "864 rows of 4 sensors, every 5 minutes, 3.0 days; 4 edges; warning: 1 "
        "sensor without an edge"
    )


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1, "second"), (20, "20 seconds"), (60, "minute"), (100, "100 seconds"), (900, "15 minutes")],
)
def test_the_interval_is_said_in_whole_minutes_or_in_seconds(tmp_path, seconds, words):
    config = own_files(tmp_path, minutes=seconds / 60)
    series = load_series(config)
    assert f"4 sensors, every {words}, " in described(series, graph_of(series, config), config)


def test_the_warning_of_sensors_without_an_edge_names_what_helps(tmp_path):
    config = own_files(tmp_path)
    assert config.distances is not None
    low = dataclasses.replace(config, percentile=60.0)
    gaussian = dataclasses.replace(config, graph="gaussian")
    for last_road, settings, remedy in (
        ("C,D,9", low, "edge, a higher --percentile adds some"),
        ("C,D,99", gaussian, "edge, --graph percentile with a higher --percentile adds some"),
        ("", config, "edge, --distances has no road there"),
    ):
        config.distances.write_text(f"from,to,length\nA,B,1\nB,C,1\n{last_road}\n")
        series = load_series(config)
        words = described(series, graph_of(series, settings), settings)
        assert words.endswith(f"1 sensor without an {remedy}")
    whole = dataclasses.replace(config, percentile=100.0)
    assert described(series, graph_of(series, whole), whole).endswith("no road there")


def test_a_folder_holds_the_run_of_one_recording(tmp_path, without_type_checks):
    config = own_files(tmp_path)
    result = run(config, plain())
    assert set(result["data"]["checksums"]) == {str(config.speeds), str(config.distances)}
    assert set(result["config"]["files"].values()) == set(result["data"]["checksums"].values())
    assert run(config, plain()) == result
    for path in (config.speeds, config.distances):
        assert path is not None
        before = path.read_text()
        path.write_text(before.replace("1\n", "2\n"))
        with pytest.raises(ValueError, match=r"the files have changed since.*--out.*--fresh"):
            run(config, plain())
        path.write_text(before)
    config.speeds.write_text(config.speeds.read_text().replace("1\n", "2\n"))
    anew = run(dataclasses.replace(config, fresh=True), plain())
    assert anew["metrics"] != result["metrics"]


def test_settings_of_ones_own_files_reach_the_reader(tmp_path):
    series = load_series(own_files(tmp_path, minutes=7, interval_minutes=10.0))
    assert (series.steps_per_day, series.times[1].item()) == (144, pytest.approx(0.7))
    config = own_files(tmp_path)
    assert config.speeds is not None
    assert config.distances is not None
    lines = config.speeds.read_text().splitlines(keepends=True)
    config.speeds.write_text("".join([*lines[:5], lines[4], *lines[5:]]))
    config.distances.write_text("from,to,length\nA,B,1\nB,A,4\n")
    with pytest.raises(ValueError, match=r"2024-05-06 00:15 repeats .*--duplicates mean"):
        load_series(config)
    config = dataclasses.replace(config, duplicates="mean")
    with pytest.raises(ValueError, match="--directed"):
        load_series(config)
    series = load_series(dataclasses.replace(config, directed=True))
    assert (series.num_steps, series.distances[0, 1], series.distances[1, 0]) == (864, 1, 4)
    assert graph_of(series, dataclasses.replace(config, directed=True)).num_edges == 1


def test_the_flags_of_ones_own_files_are_those_that_errors_name(tmp_path, capsys):
    config = own_files(tmp_path)
    flags = ["--dataset", "file", "--model", "persistence", "--out", str(tmp_path / "run")]
    flags += ["--speeds", str(config.speeds), "--distances", str(config.distances)]
    flags += ["--missing", "mask", "--duplicates", "mean", "--interval-minutes", "15", "--directed"]
    cli.main(["run", "traffic", *flags])
    assert "every 15 minutes" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["run", "traffic", "--help"])
    assert "sha256" not in capsys.readouterr().out


@pytest.mark.parametrize("together", [True, False])
def test_a_line_for_each_reading_is_forecast(tmp_path, together, without_type_checks):
    """Of sensors that report together, or each at times of its own."""
    config = own_files(tmp_path, missing="mask", keep=1.0, churn=0.25, **SMALL)
    assert config.speeds is not None
    table = pd.read_csv(config.speeds, parse_dates=["time"])[:300]
    lines = table.melt("time", var_name="sensor", value_name="value")
    late = lines["sensor"].map({"A": 0, "B": 50, "C": 110, "D": 200})
    lines["time"] += pd.to_timedelta(0 if together else late, unit="s")
    lines.sort_values("time").to_csv(config.speeds, index=False)
    console = plain()
    found = run(dataclasses.replace(config, model="gcde_gru"), console)
    rows = 300 if together else 1200
    words = f"1200 readings, a line for each: {rows} rows of 4 sensors, every 5 minutes, 1.0 days; "
    assert said(console).startswith(words)
    assert found["metrics"]["rmse"]["mean"] < 20


def test_too_few_days_to_know_what_is_usual_are_warned_of_before_training(
    tmp_path, without_type_checks
):
    config = dataclasses.replace(own_files(tmp_path, **SMALL), model="gcgru")
    console = plain()
    run(config, console)
    _, warning, *rest = said(console).splitlines()
    assert warning.startswith("Warning: what is usual at a time of day is known from 1.8 days of ")
    assert warning.endswith("compare --normalization overall and per_sensor.")
    assert rest
    enough = load_series(own_files(tmp_path, minutes=10))
    assert few_days(enough, config) is None
    few = load_series(own_files(tmp_path))
    for change in ({"normalization": "per_sensor"}, {"model": "historical_average"}):
        assert few_days(few, dataclasses.replace(config, **change)) is None
    assert few_days(simulated_traffic(4, 10), config) is None


@pytest.mark.parametrize("protocol", ["next_sample", "stgcn", "unseen_times"])
def test_an_outage_of_all_sensors_is_a_gap(tmp_path, protocol, without_type_checks):
    changes = {"protocol": protocol, "missing": "mask", "churn": 0.25, "keep": 1.0, **SMALL}
    config = own_files(tmp_path, **changes)
    assert config.speeds is not None
    table = pd.read_csv(config.speeds)
    for first in (100, 550, 750):  # in training, validation and test data
        table.loc[first : first + 19, [*"ABCD"]] = np.nan
    table.to_csv(config.speeds, index=False)
    for model in ("gcde_gru", "gcgru"):
        found = run(dataclasses.replace(config, model=model, out=tmp_path / model), plain())
        assert found["metrics"]["rmse"]["mean"] < 20
    with np.load(tmp_path / "gcgru" / "arrays.npz") as arrays:
        assert arrays["training_gaps"].max() >= 21


@pytest.mark.parametrize(
    ("scale", "lively", "words"),
    [
        (0.001, 0, "no MAPE (all truths are under 1) over 1 member"),
        (0.001, 1, "% (of 25 % of the truths) over 1 member"),
        (1.0, 0, "% over 1 member"),
    ],
)
def test_percentages_say_which_truths_they_are_of(
    tmp_path, scale, lively, words, without_type_checks
):
    config = own_files(tmp_path)
    assert config.speeds is not None
    table = pd.read_csv(config.speeds)
    table[[*"ABCD"][lively:]] *= scale
    table.to_csv(config.speeds, index=False)
    first, again = plain(), plain()
    made = run(config, first)
    assert run(config, again) == made
    for console in (first, again):
        assert words in said(console)


def test_a_table_of_truths_under_1_goes_on_without_percentages(
    tmp_path, capsys, without_type_checks
):
    config = own_files(tmp_path)
    assert config.speeds is not None
    table = pd.read_csv(config.speeds)
    table[[*"ABCD"]] *= 0.001
    table.to_csv(config.speeds, index=False)
    flags = ["--dataset", "file", "--speeds", str(config.speeds), "--models", "persistence"]
    flags += ["--distances", str(config.distances), "--out", str(tmp_path / "table"), "--quick"]
    flags += ["--no-studies", "--seeds", "1"]
    for _ in range(2):
        cli.main(["reproduce", "table-2", *flags])
        assert "There is no MAPE" in capsys.readouterr().out
    rows = json.loads((tmp_path / "table" / "table.json").read_text())
    assert {row["metric"].split()[0].rstrip(",") for row in rows} == {"RMSE", "MAE"}
    assert "nan" not in (tmp_path / "table" / "table.md").read_text()


def test_churn_is_tested_where_those_who_stay_measured_something(tmp_path, without_type_checks):
    config = own_files(tmp_path, missing="mask", churn=0.5, percentile=100.0, keep=1.0, **SMALL)
    assert config.speeds is not None
    table = pd.read_csv(config.speeds)
    away = torch.randperm(4, generator=torch.Generator().manual_seed(config.seed))[:2]
    stay = [name for k, name in enumerate("ABCD") if k not in away]
    table.loc[700:, stay] = np.nan
    table.loc[800:, stay] = 50.0
    table.to_csv(config.speeds, index=False)
    found = run(dataclasses.replace(config, model="gcde_gru"), plain())["churn"]
    assert np.isfinite(found["rise_percent"]["mean"])


def test_the_sensor_that_is_drawn_as_lively_is_not_the_one_that_is_often_silent(tmp_path):
    config = own_files(tmp_path, missing="mask", **SMALL)
    assert config.speeds is not None
    table = pd.read_csv(config.speeds)
    wave = np.sin(np.arange(len(table)))
    table[[*"ABCD"]] = 60 + wave[:, None] * np.array([1.0, 3.0, 0.1, 9.0])
    table.loc[::3, "C"] = np.nan
    table.to_csv(config.speeds, index=False)
    run(config, plain())
    with np.load(tmp_path / "run" / "arrays.npz") as arrays:
        assert arrays["sensors"].tolist() == ["D", "B", "A"], "from lively to quiet, of four"


def test_stamps_that_jitter_are_forecast(tmp_path, without_type_checks):
    config = own_files(tmp_path)
    assert config.speeds is not None
    table = pd.read_csv(config.speeds, parse_dates=["time"])
    late = np.random.default_rng(0).integers(0, 60, len(table))
    table["time"] += pd.to_timedelta(late, unit="s")
    table.to_csv(config.speeds, index=False)
    for model in ("gcde_gru", "historical_average"):
        out = tmp_path / model
        found = run(dataclasses.replace(config, model=model, **SMALL, out=out), plain())
        assert found["metrics"]["rmse"]["mean"] < 20


def test_ones_own_samples_are_all_seen_unless_some_are_to_be_dropped(tmp_path, capsys):
    assert own_files(tmp_path).keep == 1
    assert TrafficForecast.of("gcde_gru", "simulated").keep == 0.3
    flags = ["--speeds", str(tmp_path / "speeds.csv"), "--out", str(tmp_path / "run")]
    flags += ["--distances", str(tmp_path / "distances.csv"), "--model", "persistence"]
    cli.main(["run", "traffic", "--dataset", "file", *flags])
    assert "keep 100 %" in capsys.readouterr().out


@pytest.fixture
def finished(tmp_path, without_type_checks):
    """A run of two members on one's own files, with speeds missing here and there."""
    config = own_files(tmp_path, missing="mask", churn=0.0, members=2, **SMALL)
    table = pd.read_csv(config.speeds)[:300]
    table.loc[::7, "B"] = np.nan
    table.to_csv(config.speeds, index=False)
    config = dataclasses.replace(config, model="gcde_gru", unit="km/h")
    console = plain()
    run(config, console)
    assert f"graphode predict {config.out}" in said(console)
    return config


def test_a_finished_run_forecasts_what_comes_after_the_rows_that_are_there(finished):
    """Of a table cut short, for its next row, it says what the test said, by itself and in mean."""
    with np.load(finished.out / "arrays.npz") as arrays:
        times, shown = arrays["forecast_times"], arrays["forecasts"]
        names = arrays["sensors"].tolist()
    row = int(times[20])
    table = pd.read_csv(finished.speeds)
    table[:row].to_csv(finished.speeds, index=False)
    console = plain()
    found = predict(TrafficPrediction(run=finished.out, minutes=(30.0, 5.0)), console)
    assert found.index.tolist() == [5.0, 30.0]
    assert str(found["time"].iloc[0]) == table["time"][row]
    alone = finished.out.with_name("alone")
    assert "after 2024-05-" in said(console)
    table.to_csv(finished.speeds, index=False)
    run(dataclasses.replace(finished, members=1, out=alone), plain())
    table[:row].to_csv(finished.speeds, index=False)
    of_one = predict(TrafficPrediction(run=alone, minutes=(5.0,)), plain())
    np.testing.assert_allclose(of_one[names].to_numpy()[0], shown[20], rtol=1e-5)
    assert [*pd.read_csv(finished.out / "forecast.csv")] == ["minutes", "time", *"ABCD"]


def test_a_forecast_follows_the_last_row_with_a_speed_whatever_the_offset_is_after_it(
    finished, tmp_path
):
    """Clocks are put forward in the midst of the table, and no sensor speaks from then on."""
    table = pd.read_csv(finished.speeds)[:40]
    when = pd.date_range("2024-03-31T00:05", periods=40, freq="5min", tz="Europe/Berlin")
    table["time"] = [moment.isoformat() for moment in when]
    table.loc[23:, list("ABCD")] = np.nan  # from 3:00 on, which follows 1:55
    table.to_csv(tmp_path / "newer.csv", index=False)
    told = {"run": finished.out, "speeds": tmp_path / "newer.csv"}
    found = predict(TrafficPrediction(**told, minutes=(5.0,)), plain())
    assert found["time"].tolist() == [pd.Timestamp("2024-03-31T03:00", tz="Europe/Berlin")]
    table.loc[23:26, "A"] = 60.0
    table.to_csv(tmp_path / "newer.csv", index=False)
    with pytest.raises(ValueError, match="the table has 4 since its offset from UTC changed"):
        predict(TrafficPrediction(**told), plain())


@pytest.mark.parametrize(
    ("zone", "written", "offsets", "shown"),
    [
        (None, "2024-05-06 05:00:00", [], "no offset from UTC"),
        ("Europe/Berlin", "2024-05-06 05:00:00+02:00", [120.0], "+02:00"),
        ("UTC", "2024-05-06 05:00:00+00:00", [0.0], "+00:00"),
    ],
)
def test_forecasts_are_dated_by_the_clock_of_the_last_row_and_another_clock_is_warned_of(
    finished, tmp_path, zone, written, offsets, shown
):
    table = pd.read_csv(finished.speeds)[:60]
    when = pd.date_range("2024-05-06", periods=60, freq="5min", tz=zone)
    table["time"] = [moment.isoformat() for moment in when]
    table.to_csv(tmp_path / "newer.csv", index=False)
    with np.load(finished.out / "arrays.npz") as arrays:
        kept = dict(arrays)
    assert kept["offsets"].tolist() == [], "the run's own dates have none"
    for known in ([], [0.0], [60.0, 120.0]):
        np.savez(finished.out / "arrays.npz", **{**kept, "offsets": np.array(known)})
        told = {"run": finished.out, "speeds": tmp_path / "newer.csv", "minutes": (5.0,)}
        console = plain()
        predict(TrafficPrediction(**told), console)
        assert pd.read_csv(finished.out / "forecast.csv")["time"].tolist() == [written]
        is_known = set(offsets) <= set(known) and bool(offsets) == bool(known)
        assert (f"Warning: these dates have {shown}" in said(console)) != is_known


def test_a_forecast_says_after_which_row_it_comes_where_the_last_are_empty(finished, tmp_path):
    table = pd.read_csv(finished.speeds)[:60]
    table.loc[58:, [*"ABCD"]] = np.nan
    table.to_csv(tmp_path / "newer.csv", index=False)
    told = TrafficPrediction(run=finished.out, speeds=tmp_path / "newer.csv", minutes=(5.0,))
    console = plain()
    predict(told, console)
    assert "after 2024-05-06 04:45:00, the last of 60 rows with a speed" in said(console)
    pd.read_csv(finished.speeds).drop(columns="time").to_csv(tmp_path / "own.csv", index=False)
    timeless = dataclasses.replace(finished, speeds=tmp_path / "own.csv", out=tmp_path / "timeless")
    run(timeless, plain())
    table.drop(columns="time").to_csv(tmp_path / "newer.csv", index=False)
    console = plain()
    predict(dataclasses.replace(told, run=timeless.out), console)
    assert "after row 58, the last of 60 rows with a speed" in said(console)


def test_a_run_of_which_every_member_failed_does_not_forecast(finished):
    result = json.loads((finished.out / "result.json").read_text())
    result["members"], result["selected"]["epoch"] = 0, [-1, -1]
    (finished.out / "result.json").write_text(json.dumps(result))
    with pytest.raises(ValueError, match=r"no member that can forecast\..*lower --lr"):
        predict(TrafficPrediction(run=finished.out), plain())


def test_a_newer_table_may_have_its_sensors_in_any_order_and_some_may_be_silent(
    finished, tmp_path, without_type_checks
):
    newer = pd.read_csv(finished.speeds)[:60]
    told = {"run": finished.out, "speeds": tmp_path / "newer.csv", "minutes": (5.0, 20.0)}

    def forecast(table: pd.DataFrame, **changes: object) -> tuple[pd.DataFrame, str]:
        table.to_csv(told["speeds"], index=False)
        console = plain()
        found = predict(TrafficPrediction(**{**told, **changes}), console)
        return found, " ".join(said(console).split())

    expected, words = forecast(newer)
    assert "Without a speed" not in words
    found, _ = forecast(newer[["time", *"DBAC"]])
    pd.testing.assert_frame_equal(found, expected)
    silent, words = forecast(newer.assign(C=np.nan))
    assert "Without a speed in the last 5 rows" in words
    assert words.endswith("neighbours: C.")
    assert not np.allclose(silent["C"], expected["C"])
    gone, words = forecast(newer.drop(columns="C"))
    assert words.endswith("neighbours: C.")
    pd.testing.assert_frame_equal(gone, silent)
    # So it is where no cell was empty in training.
    whole = newer.fillna({"B": 60.0})
    whole = pd.concat([whole] * 5, ignore_index=True).assign(
        time=pd.read_csv(finished.speeds)["time"]
    )
    whole.to_csv(tmp_path / "whole.csv", index=False)
    strict = dataclasses.replace(
        finished, missing="refuse", speeds=tmp_path / "whole.csv", out=tmp_path / "strict"
    )
    run(strict, plain())
    _, words = forecast(newer.assign(C=np.nan), run=strict.out)
    assert words.endswith("neighbours: C.")


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--speeds", "s.csv", "--distances", "d.csv"], "--speeds, --distances"),
        (["--speeds", "s.csv", "--unit", "km/h"], "--speeds"),
        (["--key", "data", "--channel", "0"], "--key, --channel"),
        (["--missing", "mask", "--duplicates", "mean"], "--missing, --duplicates"),
        (["--interval-minutes", "5", "--directed"], "--interval-minutes, --directed"),
    ],
)
@pytest.mark.parametrize("command", [["run", "traffic"], ["reproduce", "table-2", "--quick"]])
def test_ones_own_files_are_not_passed_over_where_the_data_set_is_another(
    tmp_path, capsys, command, flags, named, without_type_checks
):
    with pytest.raises(SystemExit):
        cli.main([*command, *flags, "--out", str(tmp_path / "run")])
    shown = capsys.readouterr().err
    assert f"({named}) are given, but the data set is simulated: add --dataset file" in shown
    assert not (tmp_path / "run").exists()


def in_channels(config: TrafficForecast) -> TrafficForecast:
    """The same speeds in channel 2 of an npz, as PEMS08.npz is published, without names."""
    assert config.speeds is not None
    speeds = pd.read_csv(config.speeds)[[*"ABCD"]].to_numpy()
    path = config.speeds.with_suffix(".npz")
    np.savez(path, data=np.stack([speeds * 0, speeds * 0 + 1, speeds], -1), stations=np.arange(4))
    path.with_name("distances.csv").write_text("from,to,length\n0,1,1\n1,2,1\n")
    return dataclasses.replace(config, speeds=path)


def test_the_speeds_of_an_npz_are_chosen_by_key_and_channel(tmp_path, capsys, without_type_checks):
    named = dataclasses.replace(own_files(tmp_path, **SMALL), model="gcde_gru")
    expected = load_series(named).speeds
    config = in_channels(named)
    with pytest.raises(ValueError, match=r"data, stations, but no `key`.*--key"):
        load_series(config)
    with pytest.raises(ValueError, match=r"3 channels, .*--channel"):
        load_series(dataclasses.replace(config, key="data"))
    chosen = dataclasses.replace(config, key="data", channel=2)
    torch.testing.assert_close(load_series(chosen).speeds, expected)
    files = ["--dataset", "file", "--speeds", str(config.speeds), "--key", "data", "--channel", "2"]
    files += ["--distances", str(config.distances), "--percentile", "100"]
    short = ["--epochs", "1", "--masks", "1", "--device", "cpu", "--out", str(tmp_path / "table")]
    table = ["--quick", "--no-studies", "--seeds", "1", "--models", "persistence"]
    cli.main(["reproduce", "table-2", *files, *short, *table])
    run(chosen, plain())
    capsys.readouterr()
    cli.main(["predict", str(config.out), "--minutes", "5"])
    assert "4 sensors, 1 time after the last row" in capsys.readouterr().out
    # A newer one of the same kind is read as the run's was, unless something else is said.
    newer = tmp_path / "newer.npz"
    assert config.speeds is not None
    with np.load(config.speeds) as arrays:
        np.savez(newer, data=arrays["data"][:50], other=arrays["data"][:50, :, 2])
    told = {"run": config.out, "minutes": (5.0,), "speeds": newer}
    found = predict(TrafficPrediction(**told), plain())
    other = TrafficPrediction(**told, channel=0)
    assert not np.allclose(predict(other, plain()), found)
    with pytest.raises(ValueError, match="Leave out --channel"):
        predict(TrafficPrediction(**told, key="other"), plain())
    np.savetxt(tmp_path / "newer.csv", expected[:50].numpy(), delimiter=",")
    told["speeds"] = tmp_path / "newer.csv"
    np.testing.assert_allclose(predict(TrafficPrediction(**told), plain()), found)


def test_a_table_without_times_is_not_forecast_by_a_run_that_knows_them(finished, tmp_path):
    table = pd.read_csv(finished.speeds)[:60]
    table.drop(columns="time").to_csv(tmp_path / "bare.csv", index=False)
    bare = TrafficPrediction(run=finished.out, minutes=(5.0,), speeds=tmp_path / "bare.csv")
    with pytest.raises(ValueError, match=r"has none, but the table .* has a time for each row"):
        predict(bare, plain())
    pd.read_csv(finished.speeds).drop(columns="time").to_csv(tmp_path / "own.csv", index=False)
    timeless = dataclasses.replace(finished, speeds=tmp_path / "own.csv", out=tmp_path / "timeless")
    run(timeless, plain())
    assert predict(dataclasses.replace(bare, run=timeless.out), plain()).notna().all(axis=None)
    with pytest.raises(ValueError, match=r"has a time for each row, but the table .* has none"):
        predict(dataclasses.replace(bare, run=timeless.out, speeds=finished.speeds), plain())


def test_a_run_of_an_older_version_forecasts_still(finished):
    """Its folder tells neither whether there were times nor settings that are younger."""
    told = TrafficPrediction(run=finished.out, minutes=(5.0,))
    expected = predict(told, plain())
    with np.load(finished.out / "arrays.npz") as arrays:
        kept = {name: values for name, values in arrays.items() if name != "has_times"}
    np.savez(finished.out / "arrays.npz", **kept)
    result = json.loads((finished.out / "result.json").read_text())
    result["config"] = {k: v for k, v in result["config"].items() if k not in ("key", "channel")}
    (finished.out / "result.json").write_text(json.dumps(result))
    pd.testing.assert_frame_equal(predict(told, plain()), expected)


def test_a_repeated_row_of_a_newer_table_is_averaged_if_asked(finished, tmp_path, capsys):
    table = pd.read_csv(finished.speeds)[:60]
    twice = pd.concat([table, table[-1:]])
    twice.to_csv(tmp_path / "newer.csv", index=False)
    flags = ["predict", str(finished.out), "--speeds", str(tmp_path / "newer.csv")]
    with pytest.raises(SystemExit):
        cli.main(flags)
    assert "--duplicates mean" in capsys.readouterr().err
    cli.main([*flags, "--duplicates", "mean"])
    assert "4 sensors" in capsys.readouterr().out


def test_what_cannot_be_forecast_is_refused_with_what_to_do(finished, tmp_path, capsys):
    told = {"run": finished.out, "minutes": (5.0,)}
    other = pd.read_csv(finished.speeds)
    other.rename(columns={"B": "E"}).to_csv(tmp_path / "other.csv", index=False)
    other.to_csv(tmp_path / "nameless.csv", index=False, header=False)
    other[:3].to_csv(tmp_path / "short.csv", index=False)
    other.assign(**dict.fromkeys("ABCD", np.nan)).to_csv(tmp_path / "silent.csv", index=False)
    for name, text in (
        ("other", "A, B, C, D …, 4 in all, but has E …, 4 in all. Leave out"),
        ("nameless", "but has 0, 1, 2, 3"),
        ("short", "last 5 rows"),
        ("silent", "has 0"),
        ("none", "--speeds"),
    ):
        with pytest.raises(ValueError, match=text):
            predict(TrafficPrediction(**told, speeds=tmp_path / f"{name}.csv"), plain())
    with pytest.raises(ValueError, match="no finished run"):
        predict(TrafficPrediction(run=tmp_path), plain())
    run(dataclasses.replace(finished, model="gru", targets=1, out=tmp_path / "gru"), plain())
    with pytest.raises(SystemExit):
        cli.main(["predict", str(tmp_path / "gru")])
    assert "one answer for every time" in capsys.readouterr().err
