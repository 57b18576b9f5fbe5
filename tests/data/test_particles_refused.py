"""What the particle simulator refuses, and what it says."""

from typing import Any

import pytest
import torch
from torch import Tensor

from graphode.data import CoincidentParticlesError, Particles, simulate
from graphode.flows import SolveError
from tests.data.particle_runs import TWO, along_a_line


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"n": 1}, "`n` must be a whole number of particles, 2 or more, but is 1"),
        ({"n": 2.5}, "`n` must be a whole number of particles, 2 or more, but is 2.5"),
        ({"dt": 0.0}, "`dt` must be positive and finite, but is 0.0"),
        ({"dt": -1.0}, "`dt` must be positive and finite, but is -1.0"),
        ({"duration": 0.0}, "`duration` must be positive and finite, but is 0.0"),
        ({"duration": float("nan")}, "`duration` must be positive and finite, but is nan"),
        ({"dt": 6.0}, "`dt` must not exceed `duration`, but is 6.0, longer than 5.0"),
        ({"r": 0.0}, "`r` must be positive and finite, but is 0.0"),
        ({"alpha": -1.0}, "`alpha` must be finite and 0 or more, but is -1.0.*sign='printed'"),
        ({"sign": "other"}, "`sign` must be 'physical' or 'printed', but is 'other'"),
    ],
)
def test_bad_parameters_are_named(values: dict[str, float], text: str):
    with pytest.raises(ValueError, match=text):
        Particles(**values)


def test_particles_in_one_place_have_no_direction():
    start = Particles(n=4).initial_states([0, 1])
    start[1, 3, :2] = start[1, 0, :2]
    with pytest.raises(
        CoincidentParticlesError,
        match="Particles 0 and 3 of system 1 are in the same place at the start, where n_ij",
    ):
        simulate(Particles(n=4), initial=start)


def test_particles_that_meet_head_on_are_named_with_the_time():
    with pytest.raises(
        CoincidentParticlesError, match=r"Particles 0 and 1 of system 0 .* at t ≈ 0\.69.*undefined"
    ):
        simulate(TWO, initial=along_a_line(0.8, 1.0))
    assert simulate(TWO, initial=along_a_line(0.8, 1.0, 1e-3)).crossings == 4


def test_particles_at_rest_where_the_force_sets_in_are_said_to_slide():
    with pytest.raises(SolveError, match=r"System 0 crosses without end.*end earlier"):
        simulate(TWO, initial=along_a_line(0.25, 0.0))


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    ("initial", "text"),
    [
        (torch.zeros(2, 3, 4), r"shape \[systems, 2, 4\].*have shape \[2, 3, 4\]"),
        (torch.zeros(2, 4), r"have shape \[2, 4\]"),
        (torch.full((1, 2, 4), torch.nan), "must be finite"),
    ],
)
def test_bad_initial_states_are_named(initial: Tensor, text: str):
    with pytest.raises(ValueError, match=text):
        simulate(TWO, initial=initial)


def test_a_solver_of_fixed_step_needs_a_step_size():
    with pytest.raises(ValueError, match=r"'rk4' does not. Use bosh3, dopri5, tsit5 or dopri8"):
        simulate(TWO, solver="rk4")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"seeds": []}, "`seeds` must name one system or more"),
        ({"tolerance": 0.0}, "`tolerance` must be positive and finite, but is 0.0"),
        ({"step_size": 0.0}, "`step_size` must be positive and finite, but is 0.0"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], text: str):
    with pytest.raises(ValueError, match=text):
        simulate(TWO, **options)
