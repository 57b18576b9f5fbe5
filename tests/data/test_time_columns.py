"""The time column of a table of one's own: what is read, and what is refused."""

import numpy as np
import pandas as pd
import pytest

from graphode.data import read_speeds

START = 1_714_953_600  # 2024-05-06 00:00, in unix seconds


def table(path, times, corner="time", sensors=2):
    """A CSV of sensors S0, S1 … whose speeds rise and fall."""
    rows = np.arange(len(times))
    frame = pd.DataFrame({f"S{k}": 60 + 5 * np.sin(rows + k) for k in range(sensors)})
    frame.insert(0, corner, list(times))
    frame.to_csv(path / "v.csv", index=False)
    return path / "v.csv"


@pytest.mark.parametrize("corner", ["time", "Date", "DATETIME", "timestamp", "Date_Time", " Time"])
@pytest.mark.parametrize("rows", [2, 40])
def test_unix_seconds_under_a_times_name_are_the_time(tmp_path, corner, rows):
    series = read_speeds(table(tmp_path, START + 300 * np.arange(rows), corner))
    assert series.sensor_names == ("S0", "S1")
    assert series.times.tolist() == list(range(rows))
    assert series.steps_per_day == 288


@pytest.mark.parametrize("times", [range(20), range(1000 * START, 1000 * START + 20), [0.5, 1.5]])
def test_numbers_under_a_times_name_that_are_no_unix_seconds_are_refused(tmp_path, times):
    with pytest.raises(ValueError, match=r"'time' of v\.csv must hold dates, .*unix seconds"):
        read_speeds(table(tmp_path, times))


@pytest.mark.parametrize("corner", ["t", "epoch", "", "step"])
@pytest.mark.parametrize("rows", [2, 40])
def test_unix_seconds_under_another_name_are_not_taken_for_a_sensor(tmp_path, corner, rows):
    with pytest.raises(ValueError, match=r"not a speed. Head it `time` if it holds unix seconds"):
        read_speeds(table(tmp_path, START + 300 * np.arange(rows), corner))


@pytest.mark.parametrize("header", [True, False])
def test_a_count_of_rows_is_not_taken_for_a_sensor(tmp_path, header):
    frame = pd.DataFrame({"S0": 60 + np.sin(np.arange(30)), "S1": 61 + np.cos(np.arange(30))})
    frame.to_csv(tmp_path / "v.csv", header=header)
    with pytest.raises(ValueError, match=r"never falls \(0, 1, …\): a time or a count of rows"):
        read_speeds(tmp_path / "v.csv")


def test_a_time_that_is_not_the_first_column_is_refused(tmp_path):
    (tmp_path / "v.csv").write_text(f"id,time,S0\n7,{START},60\n7,{START + 300},61\n")
    with pytest.raises(ValueError, match=r"one column, the first, but 'time' comes after 'id'"):
        read_speeds(tmp_path / "v.csv")


@pytest.mark.parametrize("format", ["%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M", "%d.%m.%Y %H:%M:%S"])
def test_dates_that_may_be_day_or_month_first_are_refused(tmp_path, format):
    """Three days of May, or a day of each of three months."""
    dates = pd.date_range("2024-05-06", periods=864, freq="5min")
    with pytest.raises(ValueError, match=r"day first or the month first.*Write 2024-0\d-0\d 00:00"):
        read_speeds(table(tmp_path, dates.strftime(format)))


def test_dates_that_may_have_the_day_first_are_shown_one_that_tells(tmp_path):
    """The first of January is the first of January either way."""
    dates = pd.date_range("2024-01-01", periods=600, freq="5min").strftime("%d/%m/%Y %H:%M")
    message = "'02/01/2024 00:00' is 2024-01-02 or 2024-02-01. Write 2024-01-02 00:00"
    with pytest.raises(ValueError, match=message):
        read_speeds(table(tmp_path, dates))


@pytest.mark.parametrize(
    "format",
    [
        "%d/%m/%Y %H:%M",
        "%m/%d/%Y %H:%M",
        "%m/%d/%Y %I:%M:%S %p",
        "%d.%m.%Y %H:%M",
        "%Y/%m/%d %H:%M",
        "%Y-%m-%dT%H:%M:%S",
        "%Y-%m-%d %H:%M:%S.%f",
        "%Y-%m-%dT%H:%M:%SZ",
    ],
)
def test_dates_of_one_format_that_can_be_read_in_one_way_only_are_read(tmp_path, format):
    dates = pd.date_range("2024-05-11", periods=864, freq="5min")
    series = read_speeds(table(tmp_path, dates.strftime(format)))
    assert series.times.tolist() == list(range(864))


@pytest.mark.parametrize(
    ("dates", "held"),
    [
        (["2024-05-06 00:00", "06/05/2024 00:05"], "several formats"),
        (["13/05/2024 00:00", "05/14/2024 00:05"], "several formats"),
        (["2024-05-06 00:00", ""], "nan in line 3"),
        (["00:00", "00:05"], "'00:00' in line 2"),
    ],
)
def test_columns_of_several_formats_or_of_no_dates_are_refused(tmp_path, dates, held):
    with pytest.raises(ValueError, match=f"one format.*{held}.*Write 2024-05-06 00:05"):
        read_speeds(table(tmp_path, dates))


@pytest.mark.parametrize("minutes", [0.5, 1, 5, 8, 9, 15, 60])
def test_the_interval_is_the_usual_distance_whatever_is_missing(tmp_path, minutes):
    seconds = 60 * minutes * np.delete(np.arange(60), [3, 4, 20])
    series = read_speeds(table(tmp_path, (START + seconds).astype(int)))
    assert series.steps_per_day == 1440 / minutes
    assert series.times[:5].tolist() == [0, 1, 2, 5, 6]


@pytest.mark.parametrize("minutes", [5, 10, 15])
def test_stamps_that_jitter_have_the_interval_they_jitter_about(tmp_path, minutes):
    late = np.random.default_rng(0).integers(0, 60, 864)
    path = table(tmp_path, START + 60 * minutes * np.arange(864) + late)
    series = read_speeds(path)
    assert series.steps_per_day == 1440 // minutes
    np.testing.assert_allclose(series.times, np.arange(864) + late / 60 / minutes)
    assert read_speeds(path, interval_minutes=30).steps_per_day == 48


def test_an_interval_that_does_not_divide_a_day_is_refused(tmp_path):
    path = table(tmp_path, START + 60 * 7 * np.arange(40))
    with pytest.raises(ValueError, match=r"divide a day, but .* is 7 minutes.*--interval-minutes"):
        read_speeds(path)
    with pytest.raises(ValueError, match="divide a day"):
        read_speeds(path, interval_minutes=0)
    assert read_speeds(path, interval_minutes=5).times[:3].tolist() == pytest.approx([0, 1.4, 2.8])
