"""Recordings that hold together, and those that do not."""

import pytest
import torch

from graphode.data import TrafficSeries, split_by_days, split_by_fractions
from graphode.data.traffic_series import regular_times


def test_fractions_divide_time_without_rest():
    split = split_by_fractions(17_844)
    assert (split.train, split.val, split.test) == (
        range(10_706),
        range(10_706, 14_275),
        range(14_275, 17_844),
    )


def test_days_are_whole():
    split = split_by_days(44 * 288)
    assert (split.train.stop, split.val.stop, split.test.stop) == (34 * 288, 39 * 288, 44 * 288)


@pytest.mark.parametrize("fractions", [(0.5, 0.5), (0.6, 0.2, 0.3), (1.0, 0.0, 0.0)])
def test_fractions_that_are_none_are_refused(fractions):
    with pytest.raises(ValueError, match="three positive numbers that sum to 1"):
        split_by_fractions(100, fractions)


@pytest.mark.parametrize("days", [(34, 5), (34, 5, 6), (0, 1, 1)])
def test_days_that_do_not_fit_are_refused(days):
    with pytest.raises(ValueError, match="44 in all"):
        split_by_days(44 * 288, days)


def series(**fields) -> TrafficSeries:
    usual = {
        "name": "test",
        "speeds": torch.rand(10, 2),
        "times": regular_times(10),
        "split": split_by_fractions(10),
    }
    return TrafficSeries(**{**usual, **fields})


def test_times_that_do_not_increase_are_refused():
    times = regular_times(10)
    with pytest.raises(ValueError, match=r"row 4 \(3\) repeats the row before.*merge"):
        series(times=torch.cat([times[:4], times[3:9]]))
    with pytest.raises(ValueError, match=r"row 1 \(8\) comes before the row before.*Sort"):
        series(times=times.flip(0))


@pytest.mark.usefixtures("without_type_checks")
def test_times_of_other_rows_are_refused():
    with pytest.raises(ValueError, match=r"shape \[10\], one for each row"):
        series(times=regular_times(9))


def test_nan_without_a_mask_is_refused_and_with_one_is_not():
    speeds = torch.rand(10, 2)
    speeds[3, 1] = torch.nan
    with pytest.raises(ValueError, match=r"step 3, sensor 1 the speed is nan; 1 of 20.*`observed`"):
        series(speeds=speeds)
    observed = torch.isfinite(speeds)
    assert series(speeds=speeds, observed=observed).num_sensors == 2
    with pytest.raises(ValueError, match="step 3, sensor 1"):
        series(speeds=speeds, observed=torch.ones(10, 2, dtype=torch.bool))


@pytest.mark.usefixtures("without_type_checks")
def test_distances_of_other_sensors_are_refused():
    with pytest.raises(ValueError, match=r"2 × 2.*but is 3 × 3.*different sensors"):
        series(distances=torch.zeros(3, 3))


def test_days_are_counted_from_midnight():
    found = series(times=regular_times(10) * 4, steps_per_day=12).days
    assert found.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]
