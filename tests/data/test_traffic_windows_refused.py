"""Windows that cannot be: the error names what is in the way."""

import pytest
import torch

from graphode.data import Standardizer, TrafficSeries, split_by_fractions, traffic_windows


def recording(**fields) -> TrafficSeries:
    """60 rows of 3 sensors, 24 a day."""
    given_fields = {
        "name": "test",
        "speeds": 50 + 10 * torch.randn(60, 3),
        "times": torch.arange(60, dtype=torch.float64),
        "split": split_by_fractions(60),
        "steps_per_day": 24,
    }
    return TrafficSeries(**{**given_fields, **fields})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 0}, "at least one sample"),
        ({"horizons": ()}, "at least one interval"),
        ({"horizons": (0, 1)}, "at least one interval"),
        ({"steps": 60}, "60 of 60 rows are kept and no window fits"),
        ({"steps": 58, "horizons": (3, 1)}, r"exactly 1, 3 intervals after a sample.*--no-studies"),
        ({"following": 0}, "`following` 0"),
        ({"span": range(0, 61)}, r"from 0 to 60, but is range\(0, 61\)"),
        ({"span": range(0, 60, 2)}, "consecutive rows"),
        ({"kept": torch.ones(59, dtype=torch.bool)}, r"shape \[60\]"),
        ({"kept": torch.zeros(60, dtype=torch.bool)}, "0 of 60 rows are kept and no window fits"),
    ],
)
def test_windows_that_cannot_be_are_refused(arguments, message):
    series = recording()
    usual = {
        "span": range(60),
        "kept": torch.ones(60, dtype=torch.bool),
        "standardizer": Standardizer.fit(series),
    }
    with pytest.raises(ValueError, match=message):
        traffic_windows(series, **{**usual, **arguments})


@pytest.mark.parametrize(
    ("fields", "arguments", "message"),
    [
        ({}, {"steps": 58, "horizons": (3,)}, "rows end before, or lack them: give more rows"),
        ({"stretches": torch.arange(60) // 6}, {"steps": 4, "horizons": (3,)}, "No stretch .* 6 "),
        ({"stretches": torch.arange(60) // 5}, {}, "No stretch has more than 5 kept samples"),
        ({"steps_per_day": 12}, {"steps": 8, "horizons": (6,), "within_days": True}, "takes 14 in"),
        ({"steps_per_day": 5}, {"within_days": True}, "no day has more than 5 .*`within_days`"),
        ({}, {"following": 57}, "At most 55 kept samples .*57 of `following` .--targets"),
        ({"stretches": torch.arange(60) // 7}, {"following": 3}, "At most 2 .*3 of `following`"),
        ({}, {"steps": 61}, r"no window fits\. Give more rows, or ask for shorter windows\.$"),
    ],
)
def test_where_no_window_fits_what_is_in_the_way_is_named(fields, arguments, message):
    series = recording(**fields)
    kept = torch.ones(60, dtype=torch.bool)
    with pytest.raises(ValueError, match=message) as caught:
        traffic_windows(series, range(60), kept, Standardizer.fit(series), **arguments)
    assert "jitter" not in str(caught.value)


def test_more_is_to_be_kept_where_some_is_not():
    series = recording()
    kept = torch.arange(60) % 12 == 0
    with pytest.raises(ValueError, match=r"5 of 60 .* Keep more, or ask for shorter windows\.$"):
        traffic_windows(series, range(60), kept, Standardizer.fit(series))


def test_rows_without_a_speed_are_no_remedy():
    observed = (torch.arange(60) % 12 == 0)[:, None].expand(60, 3)
    series = recording(observed=observed)
    kept = torch.ones(60, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"5 of 60 .* Give more rows with a speed, or ask"):
        traffic_windows(series, range(60), kept, Standardizer.fit(series))


def test_silent_sensors_are_named_as_the_table_names_them():
    observed = torch.ones(60, 3, dtype=torch.bool)
    observed[:, 1] = False
    named = recording(observed=observed, sensor_names=("north", "mid", "south"))
    with pytest.raises(ValueError, match=r"1 have none \(mid\)"):
        Standardizer.fit(named, per_sensor=True)
    with pytest.raises(ValueError, match=r"1 have none \(numbers 1\)"):
        Standardizer.fit(recording(observed=observed), per_sensor=True)
    with pytest.raises(ValueError, match="No speed was observed in the training rows"):
        Standardizer.fit(recording(observed=torch.zeros_like(observed)))


def test_jitter_is_blamed_where_times_jitter():
    series = recording(times=torch.arange(60.0).double() + 0.1 * torch.rand(60).double())
    kept = torch.ones(60, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"exactly 1, 3 intervals .* jitter do not have: round"):
        traffic_windows(series, range(60), kept, Standardizer.fit(series), horizons=(1, 3))
