"""Errors of forecasts, by hand and against plain loops."""

import dataclasses

import numpy as np
import pytest
import torch

from graphode.data import simulated_traffic, traffic_windows
from graphode.data.traffic_windows import Standardizer, keep_mask
from graphode.experiments.traffic_errors import METRICS, ErrorSums, GroupedSquares
from graphode.experiments.traffic_forecasters import HistoricalAverage, Persistence
from graphode.experiments.traffic_normalization import Normalizer, daily_averages

CPU = torch.device("cpu")


def measured(forecast, truth, mask=None, parts=1):
    sums = ErrorSums((forecast.shape[0], forecast.shape[2], forecast.shape[3]), "cpu")
    splits = zip(
        forecast.chunk(parts, 1),
        truth.chunk(parts),
        [None] * parts if mask is None else mask.chunk(parts),
        strict=True,
    )
    for one, true, seen in splits:
        sums.add(one, true, seen)
    return {name: value[:, 0].tolist() for name, value in sums.metrics().items()}


def test_errors_of_opposite_sign_cancel_in_the_printed_mape_only():
    truth = torch.tensor([[[50.0, 10.0]], [[50.0, 10.0]]])  # two times, two sensors
    forecast = torch.tensor([[[45.0, 8.0]], [[55.0, 11.0]]])[None]
    found = measured(forecast, truth)
    assert found["mape"] == pytest.approx([100 * (0.1 + 0.1 + 0.2 + 0.1) / 4])
    # Sensor 0: (0.1 − 0.1) / 2; sensor 1: (0.2 − 0.1) / 2.
    assert found["mape_printed"] == pytest.approx([100 * (0.0 + 0.05) / 2])
    assert found["mae"] == pytest.approx([(5 + 5 + 2 + 1) / 4])


def test_the_printed_rmse_is_the_mean_over_sensors():
    truth = torch.zeros(2, 1, 2) + 50
    forecast = truth + torch.tensor([[[3.0, 0.0]], [[3.0, 4.0]]])
    found = measured(forecast[None], truth)
    assert found["rmse"] == pytest.approx([np.sqrt((9 + 9 + 16) / 4)])
    assert found["rmse_per_sensor"] == pytest.approx([(3 + np.sqrt(8)) / 2])


def test_sums_over_batches_are_a_plain_loop_over_all_errors():
    truth = 40 + 10 * torch.randn(12, 1, 5)
    forecast = truth + torch.randn(3, 12, 1, 5)
    mask = torch.rand(12, 1, 5) < 0.8
    found = measured(forecast, truth, mask, parts=4)
    assert set(found) == set(METRICS)
    for member in range(3):
        errors = (truth - forecast[member])[mask]
        assert found["rmse"][member] == pytest.approx(errors.square().mean().sqrt().item())
        assert found["mae"][member] == pytest.approx(errors.abs().mean().item())
        relative = errors.abs() / truth[mask]
        assert found["mape"][member] == pytest.approx(100 * relative.mean().item())
        each = [
            ((truth - forecast[member]) / truth)[..., s][mask[..., s]].mean().abs()
            for s in range(5)
        ]
        assert found["mape_printed"][member] == pytest.approx(100 * torch.stack(each).mean().item())


def test_what_lies_under_the_mask_is_not_seen():
    truth = torch.full((4, 1, 2), 30.0)
    forecast = truth[None] + 1
    mask = torch.ones(4, 1, 2, dtype=torch.bool)
    mask[0] = False
    broken = truth.clone()
    broken[0] = torch.nan
    assert measured(forecast, broken, mask) == measured(forecast[:, 1:], truth[1:])


def test_standing_traffic_is_left_out_of_percentages():
    truth = torch.tensor([[[0.0]], [[50.0]]])
    found = measured(torch.tensor([[[[5.0]], [[55.0]]]]), truth)
    assert found["mape"] == pytest.approx([10.0])
    assert found["mape_printed"] == pytest.approx([10.0])
    assert found["mae"] == pytest.approx([5.0])


def test_squares_are_summed_in_their_groups():
    truth, forecast = torch.zeros(4, 2, 3), torch.randn(2, 4, 2, 3)
    group = torch.tensor([[0, 1], [1, 1], [2, 9], [0, 0]])
    sums = GroupedSquares(2, 4, "cpu")
    for part in range(2):
        rows = slice(2 * part, 2 * part + 2)
        sums.add(forecast[:, rows], truth[rows], group[rows])
    assert sums.counts[0].tolist() == [9.0, 9.0, 3.0, 3.0]  # 9 is beyond the last group
    for g, chosen in enumerate((group == 0, group == 1, group == 2, group == 9)):
        expected = forecast[:, chosen].square().sum((1, 2))
        torch.testing.assert_close(sums.squares[:, g], expected)


def whole_windows(series, steps=3):
    every = torch.ones(series.num_steps, dtype=torch.bool)
    as_it_is = Standardizer(torch.zeros(()), torch.ones(()))
    return traffic_windows(series, series.split.test, every, as_it_is, steps)


def test_persistence_is_the_last_speed_exactly():
    series = simulated_traffic(4, 4)
    windows = whole_windows(series)
    rows = torch.arange(20)
    forecast = Persistence(series, CPU)([windows] * 2, rows)
    assert forecast.shape == (2, 20, 1, 4)
    for row in range(20):
        last = series.speeds[windows.inputs[row, -1]]
        assert forecast[0, row, 0].equal(last)
        assert forecast[1, row, 0].equal(last)


def test_persistence_goes_back_to_what_was_observed():
    series = simulated_traffic(3, 4)
    observed = torch.ones_like(series.speeds, dtype=torch.bool)
    start = series.split.test.start
    observed[start + 2, 0] = False  # the last step of the first window
    observed[start : start + 3, 1] = False  # all of its steps
    series = dataclasses.replace(series, observed=observed)
    windows = whole_windows(series)
    forecast = Persistence(series, CPU)([windows], torch.tensor([0]))[0, 0, 0]
    assert forecast[0] == series.speeds[start + 1, 0]
    seen = observed[: series.split.train.stop, 1]
    assert forecast[1] == pytest.approx(series.speeds[: series.split.train.stop, 1][seen].mean())
    assert forecast[2] == series.speeds[start + 2, 2]


def test_the_historical_average_is_the_mean_of_that_time_of_day():
    series = simulated_traffic(3, 8)
    kept = keep_mask(series.num_steps, 0.5, 3)
    windows = whole_windows(series)
    rows = torch.arange(0, len(windows), 37)
    forecast = HistoricalAverage(series, [kept], CPU)([windows], rows)[0, :, 0]
    days = range(0, series.split.train.stop, 288)  # first rows of training, day by day
    for place, row in enumerate(rows.tolist()):
        slot = int(windows.queries[row, 0]) % 288
        seen = [d + slot for d in days if d + slot < series.split.train.stop and kept[d + slot]]
        if seen:
            expected = series.speeds[seen].mean(0)
        else:
            expected = series.speeds[: series.split.train.stop][kept[: series.split.train.stop]]
            expected = expected.mean(0)
        torch.testing.assert_close(forecast[place], expected)


@pytest.mark.parametrize("kind", ["overall", "per_sensor", "usual"])
def test_normalized_training_data_is_standard_and_comes_back(kind):
    series = simulated_traffic(4, 5)
    kept = keep_mask(series.num_steps, 0.6, 1)
    found = Normalizer.fit(series, kept, kind)
    z = found.standardize(series.speeds, series.times)
    train = z[: series.split.train.stop][kept[: series.split.train.stop]]
    over = (0,) if kind == "per_sensor" else (0, 1)
    assert train.mean(over).abs().max() < (0.1 if kind == "usual" else 1e-9)
    assert (train.std(over, correction=0) - 1).abs().max() < (0.1 if kind == "usual" else 1e-9)
    torch.testing.assert_close(found.restore(z, series.times), series.speeds)
    some = torch.tensor([2, 0])
    part = found.restore(z[:, some], series.times, some)
    torch.testing.assert_close(part, series.speeds[:, some])


def test_nothing_but_kept_training_speeds_decides_what_is_usual():
    series = simulated_traffic(3, 5)
    kept = keep_mask(series.num_steps, 0.5, 1)
    seen = torch.zeros(series.num_steps, dtype=torch.bool)
    seen[: series.split.train.stop] = kept[: series.split.train.stop]
    other = series.speeds.clone()
    other[~seen] = 3.0
    changed = dataclasses.replace(series, speeds=other)
    for kind in ("overall", "per_sensor", "usual"):
        one, two = (Normalizer.fit(s, kept, kind) for s in (series, changed))
        assert one.usual.equal(two.usual)
        assert one.std.equal(two.std)


def test_averages_are_taken_around_the_clock_over_what_was_seen_the_nearest_most():
    series = simulated_traffic(2, 5)
    kept = keep_mask(series.num_steps, 0.4, 2) & (series.times % 2 == 0)
    smooth = daily_averages(series, kept, hours=1.0)
    train = torch.arange(series.split.train.stop)
    for slot in (0, 1, 140, 287):
        away = (train % 288 - slot + 144) % 288 - 144
        near = train[(away.abs() < 6) & kept[train]]
        assert len(near) > 3
        weight = 1 - away[near].abs().to(smooth) / 6
        expected = (weight[:, None] * series.speeds[near]).sum(0) / weight.sum()
        torch.testing.assert_close(smooth[slot], expected)


def test_averages_of_single_times_of_day_count_every_row_alike():
    series = simulated_traffic(2, 5)
    kept = keep_mask(series.num_steps, 0.9, 2)
    found = daily_averages(series, kept)
    train = torch.arange(series.split.train.stop)
    rows = train[(train % 288 == 100) & kept[train]]
    assert len(rows) > 1
    torch.testing.assert_close(found[100], series.speeds[rows].mean(0))


def test_what_is_usual_at_a_time_never_seen_lies_between_its_neighbours():
    # Of every second timestamp. Where all speeds within a stretch count alike, odd and even
    # intervals are averages of others, and what is usual jumps by more than half of what it rises.
    series = simulated_traffic(4, 5)
    kept = keep_mask(series.num_steps, 0.7, 3) & (series.times % 2 == 0)
    usual = Normalizer.fit(series, kept, "usual").usual
    between = (usual.roll(1, 0) + usual.roll(-1, 0)) / 2
    rise = (usual.roll(1, 0) - usual.roll(-1, 0)) / 2
    assert (usual - between).square().mean() < 0.1 * rise.square().mean()


@pytest.mark.parametrize("minutes", [1, 2, 3, 4, 5, 6, 15])
def test_every_interval_of_a_day_has_a_usual_speed_of_its_own(minutes):
    slots = 24 * 60 // minutes
    usual = torch.arange(slots, dtype=torch.float64)[:, None]
    found = Normalizer(usual, torch.ones(1), slots)
    times = torch.arange(slots, dtype=torch.float64) + 3 * slots
    assert found.restore(torch.zeros(slots, 1), times).equal(usual)


@pytest.mark.parametrize("kind", ["per_sensor", "usual"])
def test_a_sensor_that_training_never_saw_is_refused(kind):
    series = simulated_traffic(3, 5)
    observed = torch.ones_like(series.speeds, dtype=torch.bool)
    observed[: series.split.train.stop, 1] = False
    series = dataclasses.replace(series, observed=observed)
    kept = keep_mask(series.num_steps, 0.5, 1)
    with pytest.raises(ValueError, match=r"but 1 have none \(numbers 1\)\. Leave them out"):
        Normalizer.fit(series, kept, kind)
