"""Dates with an offset from UTC: distances are those of time that has passed, clocks are local."""

import numpy as np
import pandas as pd
import pytest
import torch

from graphode.data import Standardizer, read_speeds, traffic_windows
from graphode.data.time_columns import find_times
from graphode.experiments.traffic_normalization import daily_averages

DAY = 96  # intervals of 15 minutes
SPRING, AUTUMN = "2024-03-30", "2024-10-26"  # the day before clocks change in Berlin


def berlin(start, days=3):
    """Every 15 minutes of some days, as time that has passed."""
    first = pd.Timestamp(start, tz="Europe/Berlin")
    return pd.date_range(first, periods=days * DAY, freq="15min")


def table(folder, times, corner="time", speeds=None):
    """A CSV of two sensors."""
    rows = np.arange(len(times))
    frame = pd.DataFrame({"S0": 60 + np.sin(rows) if speeds is None else speeds, "S1": 70.0})
    frame.insert(0, corner, list(times))
    frame.to_csv(folder / "v.csv", index=False)
    return folder / "v.csv"


def written(dates, form="iso"):
    if form == "iso":
        return [date.isoformat() for date in dates]
    return [f"{date:%Y-%m-%d %H:%M}{form}" for date in dates]


@pytest.mark.parametrize("offset", ["+01:00", " +01:00", "+0100", "+01", "-05:00", "+05:30", "Z"])
@pytest.mark.parametrize("corner", ["time", "when"])
def test_dates_of_one_offset_have_the_time_of_day_of_their_clock(tmp_path, offset, corner):
    dates = pd.date_range("2024-03-01 08:00", periods=50, freq="15min")
    series = read_speeds(table(tmp_path, written(dates, offset), corner))
    assert series.times.tolist() == list(range(32, 82)), "from 8 o'clock on"
    assert series.stretches is None


@pytest.mark.parametrize("start", [SPRING, AUTUMN])
def test_where_the_offset_changes_distances_are_true_and_the_time_of_day_is_the_clocks(
    tmp_path, start
):
    dates = berlin(start)
    series = read_speeds(table(tmp_path, written(dates)))
    assert series.steps_per_day == DAY
    clock = 4 * dates.hour.to_numpy() + dates.minute.to_numpy() / 15
    np.testing.assert_array_equal(series.times % DAY, clock)
    assert series.stretches is not None
    changed = DAY + (8 if start == SPRING else 12)  # after 2 hours of the second day, or 3
    assert series.stretches.tolist() == [0] * changed + [1] * (len(dates) - changed)
    for stretch in (0, 1):
        assert (series.times[series.stretches == stretch].diff() == 1).all()


@pytest.mark.parametrize("start", [SPRING, AUTUMN])
@pytest.mark.parametrize("within_days", [False, True])
def test_no_window_lies_across_a_change_of_the_offset(tmp_path, start, within_days):
    series = read_speeds(table(tmp_path, written(berlin(start))))
    everything, kept = range(series.num_steps), torch.ones(series.num_steps, dtype=torch.bool)
    as_they_are = Standardizer(torch.zeros(()), torch.ones(()))
    windows = traffic_windows(
        series, everything, kept, as_they_are, steps=3, horizons=(1, 2), within_days=within_days
    )
    assert series.stretches is not None
    rows = torch.cat([windows.inputs, windows.queries], 1)
    assert (rows.diff() == 1).all()
    assert (series.times[rows].diff() == 1).all()
    assert {0, 1} == set(series.stretches[rows].unique().tolist())


def test_what_is_usual_at_a_time_of_day_stays_so_when_the_clock_changes(tmp_path):
    dates = berlin(SPRING, days=6)
    by_clock = 60 + 10 * np.sin(2 * np.pi * (dates.hour + dates.minute / 60) / 24)
    series = read_speeds(table(tmp_path, written(dates), speeds=by_clock))
    usual = daily_averages(series, torch.ones(series.num_steps, dtype=torch.bool))
    slots = (series.times % DAY).long()
    torch.testing.assert_close(usual[slots, 0], series.speeds[:, 0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("seconds", [12, 20, 100, 300, 900])
@pytest.mark.parametrize("given", [False, True])
def test_rows_on_the_multiples_of_any_interval_are_whole_numbers(tmp_path, seconds, given):
    slots = 86_400 // seconds
    dates = pd.date_range("2024-03-04", periods=2 * slots, freq=f"{seconds}s")
    named = round(seconds / 60, 7) if given else None  # as on a command line: 1.6666667
    series = read_speeds(table(tmp_path, dates), interval_minutes=named)
    assert series.steps_per_day == slots
    assert series.times.tolist() == list(range(2 * slots))


@pytest.mark.parametrize(("start", "minutes"), [("00:07", 15), ("00:02", 5), ("00:10", 60)])
def test_rows_off_the_multiples_are_whole_intervals_apart(tmp_path, start, minutes):
    slots = 1440 // minutes
    dates = pd.date_range(f"2024-03-04 {start}", periods=5 * slots, freq=f"{minutes}min")
    series = read_speeds(table(tmp_path, dates))
    assert series.times[0] == pytest.approx(int(start[3:]) / minutes, abs=1e-6)
    for ahead in (1, 9, slots):
        assert (series.times[:-ahead] + ahead == series.times[ahead:]).all()
    assert (series.times % slots).long().tolist() == 5 * list(range(slots))


def test_an_hour_that_comes_twice_is_not_taken_for_duplicates(tmp_path):
    path = table(tmp_path, written(berlin(AUTUMN)))
    twice = read_speeds(path, duplicates="mean")
    assert twice.num_steps == 3 * DAY
    np.testing.assert_array_equal(twice.times, read_speeds(path).times)


def test_rows_of_one_moment_under_two_offsets_are_duplicates(tmp_path):
    times = ["2024-10-27T02:30+02:00", "2024-10-27T01:30+01:00", "2024-10-27T01:45+01:00"]
    path = table(tmp_path, times)
    with pytest.raises(ValueError, match=r"2024-10-27 01:30\+01:00 repeats .*--duplicates mean"):
        read_speeds(path)
    assert read_speeds(path, duplicates="mean").num_steps == 2


def test_offsets_in_some_cells_only_are_refused(tmp_path):
    with pytest.raises(ValueError, match="several formats"):
        read_speeds(table(tmp_path, ["2024-05-06 00:00+02:00", "2024-05-06 00:15"]))


@pytest.mark.parametrize(
    "dates",
    [
        ["2024-05-06 00:00+02:00", "2024-05-06 00:15"],
        ["13/05/2024 00:00+02:00", "13/05/2024 00:15+02:00"],
        ["13.05.2024 00:00 +0200", "13.05.2024 00:15 +0200"],
    ],
)
def test_dates_with_offsets_that_are_refused_are_shown_one_with_an_offset(tmp_path, dates):
    with pytest.raises(ValueError, match=r"Write 2024-05-06 00:05\+02:00 in every cell\."):
        read_speeds(table(tmp_path, dates))


def test_clocks_set_back_without_an_offset_are_refused_with_what_to_write(tmp_path):
    plain = berlin(AUTUMN).tz_localize(None).strftime("%Y-%m-%d %H:%M")
    with pytest.raises(ValueError, match=r"02:00 comes before .*02:45\. .*2024-10-27 02:00\+01:00"):
        read_speeds(table(tmp_path, plain))
    with pytest.raises(ValueError, match=r"Sort the rows\.$"):
        read_speeds(table(tmp_path, ["2024-05-06 09:00", "2024-05-06 00:15"]))


@pytest.mark.parametrize("minutes", [1, 15, 30])
def test_rows_after_clocks_were_set_back_are_no_duplicates(tmp_path, minutes):
    first = pd.Timestamp(AUTUMN, tz="Europe/Berlin")
    dates = pd.date_range(first, periods=2 * 1440 // minutes, freq=f"{minutes}min")
    path = table(tmp_path, dates.strftime("%Y-%m-%d %H:%M"))
    with pytest.raises(ValueError, match=r"02:00 comes before .*2024-10-27 02:00\+01:00"):
        read_speeds(path, duplicates="mean")


def test_hourly_rows_that_repeat_without_an_offset_are_told_of_clocks(tmp_path):
    first = pd.Timestamp(AUTUMN, tz="Europe/Berlin")
    dates = pd.date_range(first, periods=48, freq="1h")
    message = r"02:00 repeats .*--duplicates mean.* clocks were set back .*2024-10-27 02:00\+01:00"
    with pytest.raises(ValueError, match=message):
        read_speeds(table(tmp_path, dates.strftime("%Y-%m-%d %H:%M")))


@pytest.mark.parametrize("last", [0, -900])
@pytest.mark.parametrize("kind", ["Z", "unix"])
def test_where_the_offset_is_known_clocks_are_not_blamed(tmp_path, kind, last):
    seconds = 1_714_953_600 + np.array([0, 900, 1800, 1800 + last])
    dates = pd.to_datetime(seconds, unit="s")
    with pytest.raises(ValueError, match=r"v\.csv") as caught:
        read_speeds(table(tmp_path, seconds if kind == "unix" else written(dates, kind)))
    assert "clocks" not in str(caught.value)


def test_rows_sorted_by_a_clock_that_was_set_back_are_refused_with_their_offsets(tmp_path):
    times = ["2024-10-27T02:00+02:00", "2024-10-27T02:00+01:00", "2024-10-27T02:15+02:00"]
    message = r"2024-10-27 02:15\+02:00 comes before .*, 2024-10-27 02:00\+01:00\. Sort the rows"
    with pytest.raises(ValueError, match=message):
        read_speeds(table(tmp_path, times))


def test_columns_that_know_their_time_zone_are_read_like_written_ones(tmp_path):
    """As a parquet file holds them."""
    dates = berlin(AUTUMN)
    nothing = np.zeros((len(dates), 0))
    known = find_times(pd.Series(dates, name="time"), nothing, "v.parquet")
    read = find_times(pd.Series(written(dates), name="time"), nothing, "v.csv")
    assert known is not None
    assert read is not None
    assert known.is_same(read)
