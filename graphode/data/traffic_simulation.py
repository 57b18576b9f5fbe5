"""Traffic without files: kinematic waves on a random road graph, rush hours, incidents, noise.

Each sensor stands on a cell of road. Cars are conserved and move from cell to cell by the wave
equation of Lighthill and Whitham (1955) and Richards (1956), in Daganzo's (1994) cells:

    flow i → j = share_ij · min(demand(ρ_i), supply),    speed(ρ) = v (1 − ρ / ρ_jam)

with Greenshields' (1935) relation of speed and density ρ: what a cell can send is ρ speed(ρ) up to
the capacity, what it can take is the capacity until it is crowded, then ρ speed(ρ). A cell that
leads to several gives each its share; if one of them is full the others wait behind it. So queues
grow upstream and dissolve, as waves that the graph carries. Cars enter everywhere, most in the
morning and the evening of a weekday, with surges of their own at each place, and leave when they
are at their end. Now and then an incident halves a cell's capacity.
"""

import math

import numpy as np
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import minimum_spanning_tree, shortest_path
from scipy.spatial.distance import cdist

from graphode.data.traffic_series import (
    STEPS_PER_DAY,
    TrafficSeries,
    regular_times,
    split_by_fractions,
)

FREE_SPEED = 65.0  # mph
JAM_DENSITY = 1.0  # densities are fractions of a standing queue
SUBSTEPS = 10  # of 30 seconds: a wave at free speed passes about half a mile, less than a cell
CELL_MILES = 1.0
# What enters at a place fluctuates by this much (of its logarithm), for about this many steps.
SURGE, SURGE_STEPS = 0.6, 9


def simulated_traffic(
    num_sensors: int = 20,
    num_days: int = 10,
    seed: int = 0,
    noise: float = 1.0,
    demand: float = 1.0,
    incidents_per_day: float = 1.0,
) -> TrafficSeries:
    """Speeds at every sensor every five minutes, in miles per hour; starts on a Monday.

    Args:
        num_sensors: Cells of road, one sensor each; at least 2.
        num_days: Whole days; a first day more is simulated and left out.
        seed: The roads, the demand of each day, the incidents and the noise.
        noise: Standard deviation of a measurement, in mph.
        demand: Multiplies the cars that enter; at 2 most rush hours jam.
        incidents_per_day: Expected number over all cells.
    """
    if num_sensors < 2 or num_days < 1:
        raise ValueError(
            f"There must be at least 2 sensors and 1 day, but `num_sensors` is {num_sensors} and "
            f"`num_days` is {num_days}."
        )
    if min(noise, demand, incidents_per_day) < 0:
        raise ValueError("`noise`, `demand` and `incidents_per_day` must be 0 or more.")
    random = np.random.default_rng(seed)
    miles = _roads(num_sensors, random)
    density = _densities(miles, num_days, demand, incidents_per_day, random)
    speeds = FREE_SPEED * (1 - density / JAM_DENSITY)
    speeds = np.clip(speeds + noise * random.standard_normal(speeds.shape), 0, None)
    return TrafficSeries(
        name="simulated",
        speeds=torch.from_numpy(speeds).to(torch.get_default_dtype()),
        times=regular_times(len(speeds)),
        split=split_by_fractions(len(speeds)),
        distances=torch.from_numpy(shortest_path(csr_matrix(miles))).to(torch.get_default_dtype()),
    )


def _roads(num_sensors: int, random: np.random.Generator) -> np.ndarray:
    """Lengths of a random connected road graph, both ways; 0 where there is no road.

    A minimum spanning tree of points in the plane, and roads that close loops: between points that
    are among the three nearest of each other.
    """
    places = random.random((num_sensors, 2)) * math.sqrt(num_sensors) * CELL_MILES
    lengths = cdist(places, places)
    tree = minimum_spanning_tree(csr_matrix(lengths)).toarray()
    third = np.sort(lengths, axis=1)[:, min(3, num_sensors - 1)]
    near = lengths <= np.minimum(third[:, None], third[None, :])
    return np.where(near | (np.maximum(tree, tree.T) > 0), lengths, 0.0)


def _densities(
    miles: np.ndarray,
    num_days: int,
    demand: float,
    incidents_per_day: float,
    random: np.random.Generator,
) -> np.ndarray:
    """Density of every cell at every step, after one day to fill the roads."""
    num_cells = len(miles)
    share = np.where(miles > 0, random.uniform(0.2, 1.0, miles.shape), 0.0)
    leave = random.uniform(0.1, 0.3, num_cells)  # of the cars that pass, those at their end
    share *= (1 - leave[:, None]) / share.sum(1, keepdims=True)
    capacity = FREE_SPEED * JAM_DENSITY / 4 * random.uniform(0.7, 1.0, num_cells)
    weight = random.uniform(0.5, 1.5, (2, num_cells))  # of morning and evening, by place
    dt = 24.0 / STEPS_PER_DAY / SUBSTEPS  # hours
    density, surge = np.zeros(num_cells), np.zeros(num_cells)
    memory = math.exp(-1 / SURGE_STEPS)
    recorded = np.empty((num_days, STEPS_PER_DAY, num_cells))
    for day in range(-1, num_days):
        busy = random.normal(1.0, 0.08) * (1.0 if day % 7 < 5 else 0.4) * demand
        limits = _incidents(capacity, incidents_per_day, random)
        for step in range(STEPS_PER_DAY):
            fresh = random.standard_normal(num_cells)
            surge = memory * surge + math.sqrt(1 - memory**2) * fresh
            usual = _entering(24.0 * step / STEPS_PER_DAY, weight)
            entering = busy * usual * np.exp(SURGE * surge - SURGE**2 / 2)
            for _ in range(SUBSTEPS):
                density = advance(density, entering, share, limits[step], dt)
            if day >= 0:
                recorded[day, step] = density
    return recorded.reshape(-1, num_cells)


def _entering(hour: float, weight: np.ndarray) -> np.ndarray:
    """Cars that enter each cell per hour, in units of a standing mile of queue."""
    morning = math.exp(-(((hour - 8.0) / 1.3) ** 2) / 2)
    evening = math.exp(-(((hour - 17.5) / 1.8) ** 2) / 2)
    daytime = 0.5 * (1 + math.tanh((hour - 6) / 1.5)) * 0.5 * (1 - math.tanh((hour - 21) / 1.5))
    return 0.15 + 0.9 * daytime + 1.1 * (morning * weight[0] + evening * weight[1])


def _incidents(capacity: np.ndarray, rate: float, random: np.random.Generator) -> np.ndarray:
    """The capacity of each cell at each step of a day, halved for half an hour to two hours."""
    limits = np.tile(capacity, (STEPS_PER_DAY, 1))
    for _ in range(random.poisson(rate)):
        start = random.integers(STEPS_PER_DAY)
        limits[start : start + random.integers(6, 24), random.integers(len(capacity))] *= 0.5
    return limits


def advance(
    density: np.ndarray,
    entering: np.ndarray,
    share: np.ndarray,
    capacity: np.ndarray,
    dt: float,
) -> np.ndarray:
    """One step of the cell transmission model.

    Args:
        density: Of each cell, from 0 to `JAM_DENSITY`.
        entering: Cars that would enter each cell from outside, per hour.
        share: Of the cars that leave cell i, the part that goes on to j, `[i, j]`; what a row
            lacks to 1 leaves the roads.
        capacity: The largest flow of each cell.
        dt: In hours, less than a cell's length over the free speed.
    """
    flow = FREE_SPEED * density * (1 - density / JAM_DENSITY)
    crowded = density > JAM_DENSITY / 2
    sends = np.minimum(np.where(crowded, FREE_SPEED * JAM_DENSITY / 4, flow), capacity)
    takes = np.minimum(np.where(crowded, flow, FREE_SPEED * JAM_DENSITY / 4), capacity)
    wanted = share.T @ sends
    room = np.minimum(1.0, takes / np.maximum(wanted, 1e-12))
    # The fullest cell ahead holds back all that leave this one.
    held = np.where(share > 0, room[None, :], 1.0).min(1)
    arrives = share.T @ (sends * held)
    # Cars at their end leave the road whatever is ahead, so that no jam lasts for ever.
    on = share.sum(1)
    passes = sends * (on * held + 1 - on)
    # Cars from ramps enter where the road has room left.
    enters = np.minimum(entering, np.maximum(takes - arrives, 0.0))
    return density + dt / CELL_MILES * (arrives + enters - passes)
