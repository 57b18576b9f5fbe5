"""Tables with a line for each reading: time, sensor and value."""

import numpy as np
import pandas as pd
import pytest

from graphode.data import read_distances, read_speeds

DATES = pd.date_range("2024-03-04 06:00", periods=6, freq="10min")
SPEEDS = pd.DataFrame(np.arange(18.0).reshape(6, 3), index=DATES, columns=["10", "9", "100"])


def long(speeds: pd.DataFrame = SPEEDS, head: str = "sensor") -> pd.DataFrame:
    """A line for each reading; all of a time together."""
    lines = speeds.rename_axis("time").reset_index().melt("time", var_name=head, value_name="value")
    return lines.sort_values("time", kind="stable", ignore_index=True)


def read(folder, table: pd.DataFrame, **options):
    table.to_csv(folder / "v.csv", index=False)
    return read_speeds(folder / "v.csv", **options)


@pytest.mark.parametrize("head", ["sensor", "Station_ID", "Detector Name", "id"])
@pytest.mark.parametrize("order", [["time"], ["sensor", "time"]])
def test_a_long_table_is_the_wide_one(tmp_path, head, order):
    lines = long().sort_values(order, kind="stable").rename(columns={"sensor": head})
    series = read(tmp_path, lines)
    assert series.sensor_names == ("9", "10", "100"), "by number"
    np.testing.assert_array_equal(series.speeds, SPEEDS[["9", "10", "100"]])
    assert series.times.tolist() == [36, 37, 38, 39, 40, 41]
    assert (series.steps_per_day, series.readings, series.observed) == (144, 18, None)
    assert read(tmp_path, SPEEDS.rename_axis("time").reset_index()).readings is None


def test_value_and_sensor_come_in_any_order(tmp_path):
    series = read(tmp_path, long()[["time", "value", "sensor"]])
    np.testing.assert_array_equal(series.speeds, SPEEDS[["9", "10", "100"]])


def test_a_column_of_text_names_sensors_where_times_come_again_and_again(tmp_path):
    named = SPEEDS.set_axis(["north", "mid", "south"], axis=1)
    series = read(tmp_path, long(named, head="where"))
    assert series.sensor_names == ("mid", "north", "south")
    np.testing.assert_array_equal(series.speeds, named[["mid", "north", "south"]])


def test_sensors_are_in_the_order_of_the_numbers_in_their_names(tmp_path):
    """As the rows of a matrix of distances without names are."""
    series = read(tmp_path, long(SPEEDS.set_axis(["s10", "s2", "s1b"], axis=1)))
    assert series.sensor_names == ("s1b", "s2", "s10")
    np.testing.assert_array_equal(series.speeds, SPEEDS[["100", "9", "10"]])


@pytest.mark.parametrize("duplicates", ["refuse", "mean"])
def test_of_several_values_one_is_asked_for(tmp_path, duplicates):
    """Whose lines of one time are not to be averaged over the sensors."""
    lines = long().assign(flow=300.0)
    with pytest.raises(ValueError, match=r"that 'sensor' names, but 2 columns .* one value\."):
        read(tmp_path, lines, duplicates=duplicates)


def test_names_of_sensors_are_text(tmp_path):
    series = read(tmp_path, long(SPEEDS.set_axis(["02", "01", "3b"], axis=1)))
    assert series.sensor_names == ("01", "02", "3b")
    (tmp_path / "d.csv").write_text("from,to,length\n01,02,7\n")
    assert read_distances(tmp_path / "d.csv", 3, sensor_names=series.sensor_names)[0, 1] == 7


def test_a_long_parquet_file(tmp_path, monkeypatch):
    """Read by pandas, here without the library that reads the bytes."""
    lines = long().astype({"sensor": int})
    monkeypatch.setattr(pd, "read_parquet", lambda path: lines.set_index(["time", "sensor"]))
    (tmp_path / "v.parquet").touch()
    series = read_speeds(tmp_path / "v.parquet")
    assert series.sensor_names == ("9", "10", "100")
    np.testing.assert_array_equal(series.speeds, SPEEDS[["9", "10", "100"]])


def test_sensors_may_report_at_times_of_their_own(tmp_path):
    """Rows are the distinct times; the interval is that of one sensor, not from row to row."""
    offsets = pd.to_timedelta([0, 70, 200], unit="s")
    parts = [long(SPEEDS[[name]]).assign(sensor=name) for name in SPEEDS]
    lines = pd.concat(
        [part.assign(time=part["time"] + by) for part, by in zip(parts, offsets, strict=True)]
    ).sort_values("time")
    with pytest.raises(ValueError, match=r"sensor '9' at 2024-03-04 06:00 has none; 36 of 54"):
        read(tmp_path, lines)
    series = read(tmp_path, lines, missing="mask")
    assert series.steps_per_day == 144
    assert series.observed is not None
    assert series.observed.sum(1).tolist() == [1] * 18
    assert series.times[:4].tolist() == pytest.approx([36, 36 + 7 / 60, 36 + 1 / 3, 37])
    for place, name in enumerate(["9", "10", "100"]):
        own = series.speeds[series.observed[:, place], place]
        assert own.tolist() == SPEEDS[name].tolist()


def test_an_interval_that_is_not_usual_is_refused_with_one_near_it(tmp_path):
    dates = pd.date_range("2024-03-04", periods=6, freq="51min")
    with pytest.raises(ValueError, match=r"is 51 minutes.*such as 60, with --interval-minutes"):
        read(tmp_path, long(SPEEDS.set_index(dates)))


def test_readings_of_one_sensor_and_time_are_refused_or_averaged(tmp_path):
    lines = long()
    twice = pd.concat([lines[:2], lines[1:2].assign(value=3.0), lines[2:]])
    with pytest.raises(ValueError, match=r"sensor '9', must have one row for each time.*06:00 rep"):
        read(tmp_path, twice)
    series = read(tmp_path, twice, duplicates="mean")
    assert series.speeds[0].tolist() == [2, 0, 2]
    assert series.speeds.shape == (6, 3)


def test_empty_cells_are_refused_or_masked(tmp_path):
    lines = long()
    lines.loc[4, "value"] = np.nan
    with pytest.raises(ValueError, match=r"sensor '9' at 2024-03-04 06:10 has none.*--missing"):
        read(tmp_path, lines)
    observed = read(tmp_path, lines.drop(index=8), missing="mask").observed
    assert observed is not None
    assert (~observed).nonzero().tolist() == [[1, 0], [2, 2]]


@pytest.mark.parametrize("duplicates", ["refuse", "mean"])
def test_readings_that_go_back_are_refused(tmp_path, duplicates):
    """Where clocks are set back, without offsets, an hour would be the mean of two."""
    lines = long().assign(time=[*DATES.repeat(3)[:15], *DATES.repeat(3)[:3]])
    with pytest.raises(ValueError, match=r"sensor '9', must be in the order of time.*06:00"):
        read(tmp_path, lines, duplicates=duplicates)


def test_what_may_be_long_or_not_is_refused(tmp_path):
    states = pd.DataFrame({"time": DATES, "a": 1.0, "state": ["ok", "bad"] * 3})
    with pytest.raises(ValueError, match=r"the sensor that 'state' names.*Head.*else delete it"):
        read(tmp_path, states)
    for duplicates in ("refuse", "mean"):
        with pytest.raises(ValueError, match=r"'link' names.*`sensor` if.*else merge the lines"):
            read(tmp_path, long(head="link"), duplicates=duplicates)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,sensor,value\n2024-01-01,a,1\n2024-01-01,,2\n", "'sensor'.*2024-01-01 00:00 has no"),
        ("time,sensor,value,ok\n2024-01-01,a,1,1\n", "'sensor'.*hold numbers.*three columns: time"),
        (
            "time,sensor,value\n2024-01-01,a,1\n2024-01-01,b,fast\n",
            "'value'.*2024-01-01 00:00 it holds 'fast'",
        ),
        ("2024-01-01,a,1\n2024-01-01,b,2\n", "begins with a date.*`time,sensor,value` first"),
        ("sensor,time,value\na,2024-01-01,1\n", "must be one column, the first"),
    ],
)
def test_tables_that_are_almost_long_are_refused(tmp_path, text, message):
    (tmp_path / "v.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_speeds(tmp_path / "v.csv")
