"""The simulated particles obey physics."""

import pytest
import torch

from graphode.data import Particles, simulate
from tests.data.particle_runs import default_systems


def test_the_paper_has_2560_steps_of_ten_particles():
    found = default_systems()
    assert found.positions.shape == (3, 2561, 10, 2)
    assert found.velocities.shape == found.positions.shape
    assert found.times[-1] == 5
    assert found.times[1] == 1 / 512
    assert found.states[:, 0].equal(Particles().initial_states(range(3)))


def test_drag_takes_energy_away():
    energy = default_systems().energy()
    assert bool((energy.diff(dim=1) < 1e-9).all())
    assert bool((energy[:, -1] < 0.95 * energy[:, 0]).all())


def test_energy_falls_by_the_work_of_the_drag():
    found = default_systems()
    x = found.positions[:, :, :, None] - found.positions[:, :, None]
    v = found.velocities[:, :, :, None] - found.velocities[:, :, None]
    distance = x.norm(dim=-1).clamp(min=1e-300)
    rate = (x * v).sum(-1) / distance
    power = 0.1 * (rate.square() * found.adjacency).sum((-2, -1)) / 2
    lost = torch.cumulative_trapezoid(power, dx=1 / 512)
    # The power jumps at crossings, which the trapezoidal rule between outputs does not see.
    torch.testing.assert_close(
        found.energy()[:, :1] - found.energy()[:, 1:], lost, rtol=0, atol=2e-3
    )


def test_without_drag_energy_is_conserved_across_every_jump():
    found = simulate(Particles(beta=0.0, dt=1 / 64), range(3))
    assert bool((found.crossings > 50).all())
    energy = found.energy()
    torch.testing.assert_close(energy, energy[:, :1].expand_as(energy), rtol=0, atol=1e-8)


def test_the_printed_sign_feeds_energy_in():
    energy = simulate(Particles(sign="printed", dt=1 / 64), range(3)).energy()
    assert bool((energy.diff(dim=1) > -1e-9).all())
    assert bool((energy[:, -1] > 1.2 * energy[:, 0]).all())


def test_without_the_anchor_momentum_is_conserved():
    found = simulate(Particles(anchor=False, duration=2.0, dt=1 / 64), range(3))
    momentum = found.momentum()
    assert bool((found.crossings > 0).all())
    torch.testing.assert_close(momentum, momentum[:, :1].expand_as(momentum), rtol=0, atol=1e-12)
    bound = default_systems().momentum()
    assert bool(((bound - bound[:, :1]).abs().amax((1, 2)) > 0.1).all())


def test_angular_momentum_is_conserved_with_drag_and_anchor():
    angular = default_systems().angular_momentum()
    torch.testing.assert_close(angular, angular[:, :1].expand_as(angular), rtol=0, atol=1e-8)


def test_out_of_reach_particles_swing_as_pendulums():
    system = Particles(n=3, r=1e-3, dt=1 / 16)
    found, start = simulate(system, 0), system.initial_states([0])
    assert found.crossings.tolist() == [0]
    t = found.times[:, None, None]
    expected = start[0, :, :2] * t.cos() + start[0, :, 2:] * t.sin()
    torch.testing.assert_close(found.positions[0], expected, rtol=0, atol=1e-9)


def test_adjacency_is_within_half_r_and_equals_the_graphs():
    found = default_systems()
    adjacency = found.adjacency
    assert adjacency.equal(adjacency.transpose(-1, -2))
    assert not adjacency.diagonal(dim1=-2, dim2=-1).any()
    for step in (0, 1000, 2560):
        dense = torch.block_diag(*adjacency[:, step].double())
        assert found.graph(step).to_dense().equal(dense)


def test_pair_force_is_the_spring_inside_half_r_and_nothing_beyond():
    distance = torch.tensor([0.2, 0.5, 0.500001])
    force = Particles(alpha=2.0, beta=0.5).pair_force(distance, torch.full((3,), 0.3))
    torch.testing.assert_close(force, torch.tensor([2 * 0.8 - 0.15, 2 * 0.5 - 0.15, 0.0]))
    printed = Particles(alpha=2.0, beta=0.5, sign="printed").pair_force(distance, 0.3)
    assert printed.equal(-force)


def test_progress_is_shown_with_the_time_left(capsys: pytest.CaptureFixture[str]):
    simulate(Particles(n=3, duration=0.5, dt=1 / 8), progress=True)
    assert "0.50 of 0.50" in capsys.readouterr().err
    simulate(Particles(n=3, duration=0.5, dt=1 / 8))
    assert capsys.readouterr().err == ""
