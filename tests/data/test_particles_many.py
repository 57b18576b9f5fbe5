"""Many particles: neighbours, forces and density."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphode.data import Particles, simulate
from graphode.data.neighbours import close_pairs
from graphode.data.particle_forces import NearPairs


@given(st.integers(2, 60), st.floats(0.01, 1.5), st.integers(0, 100))
def test_near_pairs_are_those_of_brute_force(n: int, radius: float, seed: int):
    x = torch.rand(n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    expected = [
        (i, j)
        for i, j in itertools.combinations(range(n), 2)
        if float((x[i] - x[j]).norm()) <= radius
    ]
    assert [tuple(pair) for pair in close_pairs(x, radius).t().tolist()] == expected


def test_many_particles_obey_the_forces_of_all_pairs():
    system = Particles().at_density(300)
    z = system.initial_states([0])[0]
    x, v = z[:, None, :2] - z[None, :, :2], z[:, None, 2:] - z[None, :, 2:]
    distance = x.norm(dim=-1).fill_diagonal_(torch.inf)
    force = system.pair_force(distance, (x * v).sum(-1) / distance) / distance
    acceleration = (force.nan_to_num()[..., None] * x).sum(1) - z[:, :2]
    expected = torch.cat([z[:, 2:], acceleration], -1)
    torch.testing.assert_close(NearPairs(system)(torch.tensor(0.0), z), expected)


def test_equal_density_means_equally_many_neighbours():
    neighbours = []
    for n in (50, 5000):
        system = Particles().at_density(n)
        z = system.initial_states([0])[0]
        assert (system.r, system.alpha) == (1.0, 1.0)
        neighbours.append(2 * close_pairs(z[:, :2], system.reach).shape[1] / n)
    assert neighbours[1] == pytest.approx(10 / 4 * torch.pi / 4, rel=0.1)
    assert neighbours[0] == pytest.approx(neighbours[1], rel=0.4)


def test_a_large_system_conserves_momentum_and_reports_its_cost():
    system = Particles(anchor=False, dt=1 / 64, duration=1 / 16).at_density(200)
    found = simulate(system, 0)
    momentum = found.momentum()
    torch.testing.assert_close(momentum, momentum[:, :1].expand_as(momentum), rtol=0, atol=1e-11)
    assert found.evaluations == 4 * 8 * 4
    assert found.crossings.tolist() == [-1]
    assert found.energy().shape == (1, 5)
