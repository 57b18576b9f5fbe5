"""The generator: cars are conserved, queues travel upstream, days have rush hours."""

import numpy as np
import pytest
import torch

from graphode.data import Standardizer, keep_mask, simulated_traffic, traffic_graph, traffic_windows
from graphode.data.traffic_simulation import FREE_SPEED, advance

DT = 1 / 120  # half a minute, in hours
CAPACITY = np.full(8, FREE_SPEED / 4)
RING = np.roll(np.eye(8), 1, axis=1)  # each cell leads to the next


@pytest.fixture(scope="module")
def week():
    return simulated_traffic(num_sensors=12, num_days=7, seed=1)


def test_cars_are_conserved_on_a_ring():
    density = np.random.default_rng(0).random(8)
    cars = density.sum()
    for _ in range(500):
        density = advance(density, np.zeros(8), RING, CAPACITY, DT)
        assert density.min() >= 0
        assert density.max() <= 1
    assert abs(density.sum() - cars) < 1e-12


def test_cars_leave_only_by_the_share_that_stays_behind():
    density = np.full(8, 0.2)
    after = advance(density, np.zeros(8), 0.75 * RING, CAPACITY, DT)
    flow = FREE_SPEED * 0.2 * 0.8
    assert abs((density - after).sum() - 8 * DT * 0.25 * flow) < 1e-12


def test_light_traffic_drifts_downstream():
    density = np.zeros(8)
    density[0] = 0.1
    assert advance(density, np.zeros(8), RING, CAPACITY, DT).nonzero()[0].tolist() == [0, 1]


def test_a_queue_grows_upstream_of_a_closed_road_and_clears_below_it():
    capacity = CAPACITY.copy()
    capacity[5] = 0.0
    density = np.full(8, 0.2)
    first_jammed = {}
    for step in range(400):
        density = advance(density, np.zeros(8), RING, capacity, DT)
        for cell in np.flatnonzero(density > 0.5):
            first_jammed.setdefault(int(cell), step)
    # The queue starts in front of the closed cell and reaches the cells behind it one by one.
    upstream = [cell for cell in (4, 3, 2) if cell in first_jammed]
    assert len(upstream) >= 1
    assert [first_jammed[cell] for cell in upstream] == sorted(
        first_jammed[cell] for cell in upstream
    )
    assert density[6] < 0.01, "nothing arrives behind the closure"


def test_rush_hours_are_slow_and_nights_are_free(week):
    by_hour = week.speeds[: 5 * 288].mean(1).reshape(5, 24, 12).mean((0, 2))
    assert by_hour[3] > 62
    assert by_hour[8] < by_hour[12] < by_hour[3]
    assert by_hour[18] < by_hour[12]
    weekend = week.speeds[5 * 288 :].mean()
    assert weekend > week.speeds[: 5 * 288].mean() + 1


def test_neighbours_slow_down_together():
    """Beyond the time of day, which all share: near sensors correlate more than far ones."""
    week = simulated_traffic(num_sensors=12, num_days=5, seed=1, noise=0.0)
    days = week.speeds.reshape(5, 288, -1)
    rest = (days - days.mean(0)).reshape(5 * 288, -1)
    correlation = torch.corrcoef(rest.T)
    assert week.distances is not None
    apart = ~torch.eye(12, dtype=torch.bool)
    near = (week.distances < week.distances[apart].quantile(0.25)) & apart
    far = week.distances > week.distances[apart].quantile(0.75)
    assert correlation[near].mean() > correlation[far].mean() + 0.4


def test_the_seed_decides():
    small = {"num_sensors": 4, "num_days": 1}
    first = simulated_traffic(**small, seed=3)
    assert torch.equal(first.speeds, simulated_traffic(**small, seed=3).speeds)
    assert not torch.equal(first.speeds, simulated_traffic(**small, seed=4).speeds)


def test_noise_is_added_to_the_waves_and_changes_nothing_else():
    waves = simulated_traffic(4, 1, seed=0, noise=0.0).speeds
    noisy = simulated_traffic(4, 1, seed=0, noise=2.0).speeds
    assert waves.max() <= FREE_SPEED
    assert 1.8 < (noisy - waves).std() < 2.2
    assert abs((noisy - waves).mean()) < 0.2


def test_roads_connect_everything(week):
    assert week.distances is not None
    assert torch.isfinite(week.distances).all()
    assert torch.equal(week.distances, week.distances.T)


def test_it_goes_the_way_of_real_data(week):
    graph = traffic_graph(week.distances)
    kept = keep_mask(week.num_steps, 0.5, seed=0)
    windows = traffic_windows(week, week.split.train, kept, Standardizer.fit(week, kept))
    batch = windows.batch(torch.arange(4))
    assert graph.propagate(batch.x).shape == (4, 5, 12, 3)


@pytest.mark.parametrize(
    "arguments", [{"num_sensors": 1}, {"num_days": 0}, {"noise": -1.0}, {"demand": -1.0}]
)
def test_impossible_roads_are_refused(arguments):
    with pytest.raises(ValueError, match=r"at least 2 sensors|0 or more"):
        simulated_traffic(**arguments)
