"""The simulated trajectories are the solution: an oracle, convergence, every crossing found."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphode.data import Particles, simulate
from graphode.data.first_roots import first_crossings
from tests.data.particle_runs import TWO, along_a_line, default_systems, scipy_states


@pytest.mark.parametrize(
    "system",
    [Particles(n=6), Particles(n=4, sign="printed"), Particles(n=5, r=1.6, alpha=3.0, beta=0.5)],
    ids=["paper", "printed", "stiff"],
)
def test_states_equal_those_of_scipy_restarted_at_each_crossing(system: Particles):
    system = dataclasses.replace(system, dt=1 / 64)
    ours = simulate(system, 4)
    assert ours.crossings > 10
    theirs = scipy_states(system, system.initial_states([4])[0].numpy())
    np.testing.assert_allclose(ours.states[0].numpy(), theirs, rtol=0, atol=1e-7)


def test_halving_the_tolerance_changes_no_state_by_a_millionth():
    finer = simulate(Particles(), range(3), tolerance=5e-13)
    assert (finer.states - default_systems().states).abs().max() < 1e-6


def test_another_solver_finds_the_same_trajectories():
    other = simulate(Particles(), range(3), solver="tsit5", tolerance=1e-11)
    assert (other.states - default_systems().states).abs().max() < 1e-6


def test_fixed_steps_converge_to_the_located_jumps():
    system = Particles(n=4, duration=1.0, dt=1 / 16)
    exact = simulate(system, range(3))
    assert bool((exact.crossings > 0).all())
    coarse, fine = (
        (simulate(system, range(3), step_size=h).states - exact.states).abs().max()
        for h in (5e-2, 2e-3)
    )
    assert fine < 1e-3
    assert fine < coarse / 5


def test_a_system_does_not_depend_on_those_beside_it():
    alone = simulate(Particles(), 1)
    assert alone.crossings.equal(default_systems().crossings[1:2])
    assert (alone.states[0] - default_systems().states[1]).abs().max() < 1e-7


def test_a_seed_gives_the_same_system_again():
    system = Particles(dt=1 / 8, duration=1.0)
    again = simulate(system, [7, 8]).states
    assert simulate(system, [7, 8]).states.equal(again)
    assert (again[0] - again[1]).abs().max() > 0.1


def test_turning_the_start_turns_the_trajectories():
    system = Particles(n=5, dt=1 / 32)
    start = system.initial_states([3])
    angle = torch.tensor(0.7)
    turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()]).reshape(2, 2)
    turned = simulate(system, initial=start @ torch.block_diag(turn, turn))
    expected = simulate(system, initial=start).states @ torch.block_diag(turn, turn)
    torch.testing.assert_close(turned.states, expected, rtol=0, atol=1e-7)


def test_particles_that_graze_between_outputs_are_seen():
    # Closest at r/2 less a hundred-thousandth, for a few thousandths of a time unit.
    system = dataclasses.replace(TWO, anchor=False, duration=2.0, dt=1.0)
    missed = simulate(system, initial=along_a_line(1.0, 1.0, 0.50001))
    grazed = simulate(system, initial=along_a_line(1.0, 1.0, 0.49999))
    assert missed.crossings.tolist() == [0]
    assert grazed.crossings.tolist() == [2]
    assert grazed.velocities[0, -1, 0, 1] > 1e-4


@given(st.integers(0, 10_000))
def test_the_first_root_is_that_of_a_fine_grid(seed: int):
    # Cubics through values and slopes are exact for cubics.
    draw = np.random.default_rng(seed)
    c = draw.normal(size=(4, 3, 5)) * np.array([0.3, 1, 2, 3])[:, None, None]
    c[0] = np.abs(c[0])

    def value(s: np.ndarray) -> np.ndarray:
        s = s[:, None, None]
        return c[0] + s * (c[1] + s * (c[2] + s * c[3]))

    grid, fine = np.linspace(0, 1, 9), np.linspace(0, 1, 20_001)
    slopes = (c[1] + 2 * grid[:, None, None] * c[2] + 3 * grid[:, None, None] ** 2 * c[3]) / 8
    where, which = first_crossings(value(grid), slopes, np.ones(3, dtype=bool))
    below = value(fine) < 0
    for sample in range(3):
        if not below[:, sample].any():
            # A dip may lie between two points of the fine grid.
            assert which[sample] == -1 or value(where)[sample, sample, which[sample]] > -1e-6
            continue
        first = fine[below[:, sample].any(1).argmax()]
        assert which[sample] >= 0
        assert first - 5.1e-5 <= where[sample] <= first + 1e-12
