"""Bad input and failed solves: a clear error that names the remedy, nothing half done."""

import math
import re

import numpy as np
import pytest
import torch
from torch import Tensor

import graphode as gd

# Which would anticipate some of our own errors.
pytestmark = pytest.mark.usefixtures("without_type_checks")


def decay(t: Tensor, y: Tensor) -> Tensor:
    return -y


def blow_up(t: Tensor, y: Tensor) -> Tensor:
    """y′ = y²: from y(0) = 1 the solution 1 / (1 − t) ends at t = 1."""
    return y**2


ONE = torch.ones(1, dtype=torch.float64)


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([0.0, 2.0, 1.0], r"must increase \(or decrease\) strictly.*step 1 goes from 2 to 1.*Sort"),
        ([0.0, 1.0, 1.0], r"step 1 goes from 1 to 1.*merge those that are equal"),
        ([0.0, 0.0], r"step 0 goes from 0 to 0"),
        ([1.0, 0.0, 0.5], r"step 1 goes from 0 to 0.5"),
        ([0.0, math.nan], r"`times` must be finite, but entry 1 is nan"),
        ([0.0, math.inf], r"`times` must be finite, but entry 1 is inf"),
        ([0.0], r"at least two times.*has shape \[1\].*Put the start time in front"),
        ([], r"at least two times.*has shape \[0\]"),
        (torch.tensor(1.0), r"has shape \[\]"),
        (
            torch.zeros(3, 2),
            r"must have shape \[time\], with.*has shape \[3, 2\].*batch_dims",
        ),
    ],
)
def test_times_that_cannot_be_served_are_refused(times: object, message: str):
    with pytest.raises(ValueError, match=message):
        gd.solve(decay, ONE, times)


def test_times_of_another_batch_are_refused():
    times = torch.tensor([[0.0, 1.0], [0.0, 2.0]])
    with pytest.raises(ValueError, match=r"\[time\] or \[3, time\].*has shape \[2, 2\]"):
        gd.solve(decay, torch.ones(3, 1), times, batch_dims=1)
    times = torch.tensor([[0.0, 1.0], [0.0, 2.0], [3.0, 3.0]])
    with pytest.raises(ValueError, match=r"step 0 of sample 2 goes from 3 to 3"):
        gd.solve(decay, torch.ones(3, 1), times, batch_dims=1)
    times[2, 1] = math.nan
    with pytest.raises(ValueError, match=r"entry 1 of sample 2 is nan"):
        gd.solve(decay, torch.ones(3, 1), times, batch_dims=1)


@pytest.mark.parametrize("times", [[0j, 1.0], torch.tensor([False, True])])
def test_times_that_are_no_real_numbers_are_refused(times: object):
    with pytest.raises(TypeError, match=r"`times` must be real numbers"):
        gd.solve(decay, ONE, torch.as_tensor(times))


@pytest.mark.parametrize(
    ("y0", "error", "message"),
    [
        (
            torch.tensor([1, 2]),
            TypeError,
            r"floating-point dtype, but is torch.int64.*y0.float\(\)",
        ),
        (torch.tensor([1j]), TypeError, r"floating-point dtype, but is torch.complex"),
        (torch.ones(0, 3), ValueError, r"must not be empty, but has shape \(0, 3\)"),
        (
            torch.tensor([[1.0, math.nan], [math.inf, 0.0]]),
            ValueError,
            r"must be finite, but holds 2 non-finite.*index \(0, 1\): nan.*Fill or mask",
        ),
    ],
)
def test_start_that_cannot_be_integrated_is_refused(y0: Tensor, error: type, message: str):
    with pytest.raises(error, match=message):
        gd.solve(decay, y0, [0.0, 1.0])
    with pytest.raises(error, match=message):
        gd.Flow(lambda t, h, graph: -h)(y0.reshape(-1, 1) if y0.ndim == 1 else y0)


@pytest.mark.parametrize("y0", [[1.0], 1.0, np.ones(2), (torch.ones(1), torch.ones(1))])
def test_start_that_is_no_tensor_is_refused(y0: object):
    with pytest.raises(TypeError, match=r"`y0` must be a tensor, but is \w+.*Concatenate"):
        gd.solve(decay, y0, [0.0, 1.0])
    with pytest.raises(TypeError, match=r"`y0` must be a tensor, but is \w+.*torch.as_tensor"):
        gd.Flow(lambda t, h, graph: -h)(y0)


def test_batch_dims_beyond_the_state_are_refused():
    with pytest.raises(ValueError, match=r"`batch_dims` must be between 0 and the 1 dimensions"):
        gd.solve(decay, ONE, [0.0, 1.0], batch_dims=2)
    with pytest.raises(ValueError, match=r"must be \[..., nodes, channels\].*h\[..., None\]"):
        gd.Flow(lambda t, h, graph: -h)(ONE)


def test_sums_that_overflow_are_not_mistaken_for_a_non_finite_start():
    largest = torch.finfo(torch.float64).max
    solution = gd.solve(
        lambda t, y: torch.zeros_like(y), torch.full((3,), largest), [0.0, 1.0],
        solver="euler", num_steps=1, on_failure="status",
    )  # fmt: skip
    assert torch.equal(solution.states[-1], torch.full((3,), largest))


@pytest.mark.parametrize("solver", ["tsit5", "rk4", "trapezoid", "collocation", "adams"])
@pytest.mark.parametrize(
    ("f", "error", "message"),
    [
        (lambda t, y: y[:1], ValueError, r"shape of the state, \(2,\), but returned \(1,\)"),
        (lambda t, y: y[:, None] * y, ValueError, r"\(2,\), but returned \(2, 2\).*broadcasting"),
        (lambda t, y: y.sum(), ValueError, r"but returned \(\)"),
        (lambda t, y: y.float(), TypeError, r"must return torch.float64 on cpu.*torch.float32"),
        (lambda t, y: y.to("meta"), TypeError, r"torch.float64 on meta.*field.to\(y.device"),
        (lambda t, y: (y, y), TypeError, r"must return a tensor.*returned tuple"),
        (lambda t, y: None, TypeError, r"must return a tensor.*returned NoneType"),
    ],
)
def test_field_that_returns_something_else_is_refused(f, error: type, message: str, solver: str):
    num_steps = None if solver == "tsit5" else 3
    with pytest.raises(error, match=message):
        gd.solve(f, torch.ones(2), [0.0, 1.0], solver=solver, num_steps=num_steps)


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint"])
def test_field_that_returns_something_else_is_refused_under_every_gradient(gradient: str):
    y0 = torch.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match=r"shape of the state, \(2,\), but returned \(1,\)"):
        gd.solve(lambda t, y: y[:1], y0, [0.0, 1.0], gradient=gradient)


def test_unknown_solver_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"Unknown solver 'rk5'. Choose one of: (.*)\.") as caught:
        gd.solve(decay, ONE, [0.0, 1.0], solver="rk5")
    for name in gd.SOLVERS:
        assert name in str(caught.value)
    with pytest.raises(ValueError, match=r"Unknown solver 'rk5'"):
        gd.Flow(decay, solver="rk5")


def test_unknown_gradient_lists_the_known_ones():
    listed = "adjoint, backprop, checkpoint, checkpoint_adjoint"
    with pytest.raises(ValueError, match=f"Unknown gradient 'magic'. Choose one of: {listed}"):
        gd.solve(decay, ONE, [0.0, 1.0], gradient="magic")
    with pytest.raises(ValueError, match=r"`resets` must be at least 1"):
        gd.CheckpointAdjoint(resets=0)


@pytest.mark.parametrize("gradient", [gd.Adjoint, None, 3])
def test_gradient_that_is_no_gradient_is_refused(gradient: object):
    """A class instead of its instance, for one, must not pass for something else."""
    with pytest.raises(ValueError, match=r"Unknown gradient .*Choose one of: adjoint"):
        gd.solve(decay, ONE, [0.0, 1.0], gradient=gradient)


@pytest.mark.parametrize("value", [0.0, -1e-3, math.nan, math.inf])
@pytest.mark.parametrize("name", ["rtol", "atol"])
def test_tolerance_that_is_not_positive_is_refused(name: str, value: float):
    message = rf"`{name}` must be positive and finite, but is {value!r}. Use for example"
    with pytest.raises(ValueError, match=re.escape(message)[:40]):
        gd.solve(decay, ONE, [0.0, 1.0], **{name: value})
    with pytest.raises(ValueError, match=rf"`{name}` must be positive"):
        gd.Flow(decay, **{name: value})


@pytest.mark.parametrize("num_steps", [0, -3, True])
def test_number_of_steps_that_is_no_number_of_steps_is_refused(num_steps: int):
    with pytest.raises(ValueError, match=r"`num_steps` must be a positive whole number, but is"):
        gd.solve(decay, ONE, [0.0, 1.0], solver="rk4", num_steps=num_steps)


def test_number_of_steps_may_come_from_numpy_but_not_as_a_fraction():
    solution = gd.solve(decay, ONE, [0.0, 1.0], solver="rk4", num_steps=np.int64(3))
    assert solution.stats.accepted == 3
    with pytest.raises(ValueError, match=r"positive whole number, but is 2.5"):
        gd.solve(decay, ONE, [0.0, 1.0], solver="rk4", num_steps=2.5)


def test_settings_that_contradict_each_other_are_refused():
    with pytest.raises(ValueError, match=r"Give `num_steps` or `step_size`, not both"):
        gd.solve(decay, ONE, [0.0, 1.0], solver="rk4", num_steps=3, step_size=0.1)
    with pytest.raises(ValueError, match=r"`step_size` must be positive"):
        gd.solve(decay, ONE, [0.0, 1.0], solver="rk4", step_size=-0.1)
    with pytest.raises(ValueError, match=r"`max_steps` must be positive"):
        gd.solve(decay, ONE, [0.0, 1.0], max_steps=0)
    with pytest.raises(ValueError, match=r"`min_step` must not be negative"):
        gd.solve(decay, ONE, [0.0, 1.0], min_step=-1.0)


def test_unknown_failure_mode_is_refused():
    with pytest.raises(ValueError, match=r"`on_failure` must be 'raise' or 'status'"):
        gd.solve(decay, ONE, [0.0, 1.0], on_failure="ignore")


FIXED = ["euler", "midpoint", "heun", "rk4", "rk4_38", "adams", "leapfrog", "implicit_euler",
         "trapezoid", "collocation"]  # fmt: skip


@pytest.mark.parametrize("solver", FIXED)
def test_fixed_step_solver_asks_for_its_steps(solver: str):
    """Never silently one step between two output times."""
    with pytest.raises(
        ValueError,
        match=rf"Solver '{solver}' takes steps of fixed size.*`num_steps=`.*`step_size=`.*tsit5",
    ):
        gd.solve(decay, ONE, [0.0, 1.0], solver=solver)
    with pytest.raises(ValueError, match=r"takes steps of fixed size"):
        gd.Flow(decay, solver=solver)


def place_in(message: str) -> list[float]:
    """Time, step size and largest component."""
    found = re.search(r"t = (\S+) with step size (\S+); largest component (\S+) at", message)
    assert found is not None
    return [float(number) for number in found.groups()]


@pytest.mark.parametrize("solver", ["bosh3", "dopri5", "tsit5", "dopri8"])
def test_blow_up_says_where(solver: str):
    with pytest.raises(gd.SolveError, match="Step size underflow") as caught:
        gd.solve(blow_up, ONE, [0.0, 2.0], solver=solver)
    t, step, component = place_in(str(caught.value))
    assert t == pytest.approx(1.0, abs=1e-3)
    assert 0 < step < 1e-6
    assert component > 1e3
    assert "end before that time" in str(caught.value)


@pytest.mark.parametrize("solver", ["euler", "rk4", "adams", "dopri5"])
def test_blow_up_with_fixed_steps_says_where(solver: str):
    with pytest.raises(gd.SolveError, match="Non-finite state") as caught:
        gd.solve(blow_up, ONE, [0.0, 3.0], solver=solver, num_steps=60)
    t, step, component = place_in(str(caught.value))
    assert 0.9 < t < 2
    assert step == pytest.approx(0.05)
    assert math.isfinite(component)
    assert component > 1e3
    assert "take more steps (`num_steps`)" in str(caught.value)


@pytest.mark.parametrize("solver", ["tsit5", "rk4", "adams", "trapezoid", "implicit_euler"])
@pytest.mark.parametrize("only_final", [True, False])
def test_a_field_that_returns_nan_is_named_as_the_cause(solver: str, only_final: bool):
    steps = None if solver == "tsit5" else 4
    flow = gd.Flow(lambda t, h, graph: h.log(), solver=solver, num_steps=steps)
    start, message = -torch.ones(2, 1), r"The field returned NaN.*at t = 0 .*Look for a square root"
    with pytest.raises(gd.SolveError, match=message) as caught:
        flow(start) if only_final else flow.solve(start)
    assert "min_step" not in str(caught.value)


@pytest.mark.parametrize("edge", [0.0, 0.5])
def test_a_field_that_returns_nan_from_some_time_on_is_named_too(edge: float):
    with pytest.raises(gd.SolveError, match=rf"The field returned NaN.*at t = {edge:g} "):
        gd.solve(lambda t, y: (edge - t).sqrt() * y, ONE, [0.0, 1.0])


def test_a_field_is_not_blamed_for_what_lies_beyond_the_end():
    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.cos(1000 * t) * (10 - t).sqrt() * torch.ones_like(y)

    with pytest.raises(gd.SolveError, match="Too many steps"):
        gd.solve(f, ONE, [0.0, 10.0], max_steps=50)


def test_a_field_that_returns_infinity_is_named_for_its_sample():
    y0 = torch.tensor([[1.0], [0.0], [2.0]])
    with pytest.raises(gd.SolveError, match=r"returned infinity: sample 1 \(of 3, 1 failed\)"):
        gd.solve(lambda t, y: 1 / y, y0, [0.0, 1.0], batch_dims=1)


@pytest.mark.parametrize("num_steps", [None, 40])
@pytest.mark.parametrize("gradient", ["backprop", "checkpoint", "adjoint"])
def test_failure_names_the_sample_and_its_largest_component(num_steps: int | None, gradient: str):
    y0 = torch.tensor([[0.1, 0.1], [0.1, 2.0], [0.2, 0.1]], requires_grad=True)
    with pytest.raises(gd.SolveError, match=r"sample 1 \(of 3, 1 failed\).*at \(1,\)") as caught:
        gd.solve(
            blow_up,
            y0,
            [0.0, 1.0],
            batch_dims=1,
            solver="dopri5",
            num_steps=num_steps,
            gradient=gradient,
        )
    t = float(re.search(r"t = (\S+) ", str(caught.value)).group(1))
    assert t == pytest.approx(0.5, abs=0.2)


@pytest.mark.parametrize("num_steps", [None, 40])
def test_failure_becomes_a_status_on_request(num_steps: int | None):
    """… and the other samples are as right as if they were alone."""
    y0 = torch.tensor([[0.1], [2.0], [0.5]])
    options = {"solver": "dopri5", "num_steps": num_steps, "rtol": 1e-9, "atol": 1e-9}
    solution = gd.solve(blow_up, y0, [0.0, 0.2, 1.0], batch_dims=1, on_failure="status", **options)
    failed = gd.Status.STEP_UNDERFLOW if num_steps is None else gd.Status.NON_FINITE
    assert solution.status.tolist() == [gd.Status.SUCCESS, failed, gd.Status.SUCCESS]
    assert not solution.succeeded
    for i in (0, 2):
        alone = gd.solve(blow_up, y0[i], [0.0, 0.2, 1.0], **options)
        torch.testing.assert_close(solution.states[:, i], alone.states, rtol=1e-12, atol=0)
    # What was reached before the failure stays.
    assert solution.states[1, 1].item() == pytest.approx(2 / (1 - 0.4), rel=1e-4)


def test_too_many_steps_are_reported():
    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.cos(1000 * t) * torch.ones_like(y)

    with pytest.raises(gd.SolveError, match=r"Too many steps.*Raise `max_steps`.*stiff.*trapezoid"):
        gd.solve(f, ONE, [0.0, 10.0], max_steps=50)
    solution = gd.solve(f, ONE, [0.0, 10.0], max_steps=50, on_failure="status")
    assert solution.status == gd.Status.MAX_STEPS
    assert solution.stats.accepted + solution.stats.rejected == 50
    assert 0 < solution.end_times < 10
    assert gd.solve(f, ONE, [0.0, 0.001], max_steps=50).succeeded


def test_max_steps_is_per_sample():
    rates = torch.tensor([[1.0], [3000.0]])
    solution = gd.solve(
        lambda t, y: torch.cos(rates * t) * torch.ones_like(y),
        torch.ones(2, 1),
        [0.0, 10.0],
        batch_dims=1,
        max_steps=60,
        on_failure="status",
    )
    assert solution.status.tolist() == [gd.Status.SUCCESS, gd.Status.MAX_STEPS]


def test_smallest_step_is_respected():
    with pytest.raises(gd.SolveError, match=r"Step size underflow.*lower `min_step`"):
        gd.solve(blow_up, ONE, [0.0, 2.0], min_step=1e-3)
    solution = gd.solve(blow_up, ONE, [0.0, 2.0], min_step=1e-3, on_failure="status")
    assert solution.status == gd.Status.STEP_UNDERFLOW
    assert 0.5 < solution.end_times < 1
    # A last step may be shorter: it only has to arrive.
    assert gd.solve(decay, ONE, [0.0, 1e-5], min_step=1e-3).succeeded


@pytest.mark.parametrize("batch_dims", [0, 1])
def test_a_first_step_is_no_shorter_than_the_smallest(batch_dims: int):
    """Its guess is a cautious one, and says nothing of what the field needs."""
    solution = gd.solve(
        lambda t, y: torch.ones_like(y), torch.zeros(2), [0.0, 1.0],
        batch_dims=batch_dims, min_step=1e-2, dense=False,
    )  # fmt: skip
    torch.testing.assert_close(solution.states[-1], torch.ones(2))
    end = gd.Flow(lambda t, h, graph: torch.ones_like(h), min_step=1e-2)(torch.zeros(2, 1))
    torch.testing.assert_close(end, torch.ones(2, 1))


@pytest.mark.parametrize("events", [(), lambda t, y: y[0] - 5e29])
@pytest.mark.parametrize("options", [{"solver": "rk4", "num_steps": 4}, {"solver": "dopri5"}])
def test_large_states_are_finite(options: dict, events: object):
    """… although the sum of their squares is not, in float32."""
    y0 = torch.full((3,), 1e30, dtype=torch.float32)
    solution = gd.solve(decay, y0, [0.0, 1.0], events=events, **options)
    assert (solution.states[-1] / 1e30).tolist() == pytest.approx([math.exp(-1)] * 3, abs=1e-4)


def test_a_state_that_overflows_is_no_success():
    """What a step tolerates grows with the state, until any error is small beside infinity."""
    y0 = torch.full((2, 1), 3e38, dtype=torch.float32)

    def outward(t: Tensor, y: Tensor, graph: None = None) -> Tensor:
        return torch.full_like(y, 1e38)

    with pytest.raises(gd.SolveError, match=r"Non-finite state: .*t = 1"):
        gd.Flow(outward)(y0)
    solution = gd.solve(outward, y0, [0.0, 1.0], on_failure="status")
    assert solution.status == gd.Status.NON_FINITE


def test_leapfrog_needs_position_and_velocity():
    options = {"solver": "leapfrog", "num_steps": 4}
    with pytest.raises(ValueError, match=r"even last dimension, but the state has shape \(3,\)"):
        gd.solve(decay, torch.ones(3), [0.0, 1.0], **options)
    with pytest.raises(
        ValueError, match=r"returns \(velocity, acceleration\).*differs.*by up to 2"
    ):
        gd.solve(decay, torch.ones(4), [0.0, 1.0], **options)
    y0 = torch.ones(4, requires_grad=True)
    with pytest.raises(ValueError, match=r"'leapfrog' cannot solve the adjoint.*checkpoint"):
        gd.solve(
            lambda t, y: torch.cat([y[2:], -y[:2]]), y0, [0.0, 1.0], gradient="adjoint", **options
        )


def test_times_outside_the_solution_are_refused():
    solution = gd.solve(decay, ONE, [0.0, 1.0])
    for t in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match=r"between the first and last output times, \[0, 1\]"):
            solution.at(t)
    with pytest.raises(ValueError, match=r"one value per sample, shape \(\).*one by one"):
        solution.at(torch.tensor([0.1, 0.2]))


def test_ends_of_a_flow_are_checked():
    flow = gd.Flow(lambda t, h, graph: -h)
    h = torch.ones(3, 2, 1)
    with pytest.raises(ValueError, match=r"`t0` and `t1` must be finite"):
        flow(h, None, 0.0, math.nan)
    with pytest.raises(
        ValueError, match=r"`t1` must be a number or have one value per sample, shape \(3,\)"
    ):
        flow(h, None, 0.0, torch.ones(2))


def test_failure_leaves_nothing_half_done():
    """No gradient arrives anywhere from a solve that raised."""
    weight = torch.tensor(1.0, requires_grad=True)
    with pytest.raises(gd.SolveError):
        gd.solve(lambda t, y: weight * y**2, ONE, [0.0, 2.0], gradient="checkpoint")
    assert weight.grad is None


def test_complex_start_is_told_how_to_keep_its_imaginary_part():
    with pytest.raises(TypeError, match=r"is torch.complex128.*torch.view_as_real\(y0\)"):
        gd.solve(decay, torch.ones(2, dtype=torch.complex128), [0.0, 1.0])


def test_start_made_of_numbers_is_told_of_torch():
    with pytest.raises(TypeError, match=r"but is ndarray. .*torch.as_tensor"):
        gd.solve(decay, np.ones(2), [0.0, 1.0])


@pytest.mark.parametrize(
    "times",
    [
        np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[D]"),
        np.array([0.0, None], dtype=object),
        ["0", "1"],
    ],
)
def test_times_that_are_no_numbers_are_refused(times: object):
    with pytest.raises(TypeError, match=r"`times` must be real numbers.*days since the first"):
        gd.solve(decay, ONE, times)


@pytest.mark.parametrize("dtype", [">f8", np.longdouble, np.float16, ">i4", np.uint16])
def test_times_of_any_kind_of_number_are_read(dtype: object):
    solution = gd.solve(decay, ONE, np.array([0, 1], dtype=dtype))
    assert solution.times.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("args", [torch.tensor(2.0), torch.ones(1), 2.0])
def test_args_that_are_no_tuple_are_refused(args: object):
    with pytest.raises(TypeError, match=r"`args` must be a tuple.*Write `args=\(value,\)`"):
        gd.solve(lambda t, y, k: -k * y, ONE, [0.0, 1.0], args)


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match=r"`min_step` must not be negative .*is nan"):
        gd.solve(decay, ONE, [0.0, 1.0], min_step=math.nan)
    with pytest.raises(ValueError, match=r"`rtol` must be positive.*the forward solve"):
        gd.Adjoint(rtol=-1.0)
    with pytest.raises(ValueError, match=r"`atol` must be positive"):
        gd.CheckpointAdjoint(atol=math.nan)
    with pytest.raises(ValueError, match=r"`safety` must be positive"):
        gd.StepControl(safety=-1.0)
    with pytest.raises(ValueError, match=r"`max_factor` must be at least 1, but they are 0.2 and"):
        gd.StepControl(max_factor=0.5)


def test_end_of_a_flow_that_is_no_number_is_refused():
    with pytest.raises(TypeError, match=r"`t0` and `t1` must be numbers or tensors.*and None"):
        gd.Flow(lambda t, h, graph: -h)(torch.ones(2, 1), None, t1=None)


@pytest.mark.parametrize("solver", ["euler", "rk4", "tsit5"])
def test_field_that_writes_to_the_state_is_refused(solver: str):
    num_steps = None if solver == "tsit5" else 2
    with pytest.raises(ValueError, match=r"must not change the state.*y.clone\(\)"):
        gd.solve(
            lambda t, y: y.mul_(-1), torch.ones(2), [0.0, 1.0], solver=solver, num_steps=num_steps
        )


@pytest.mark.parametrize("solver", ["euler", "rk4", "tsit5"])
def test_field_that_writes_to_what_it_has_returned_is_refused(solver: str):
    num_steps = None if solver == "tsit5" else 2
    buffer, constant = torch.empty(2), torch.ones(2)
    options = {"solver": solver, "num_steps": num_steps}
    with pytest.raises(ValueError, match=r"must return a new tensor each time.*buffer.clone"):
        gd.solve(lambda t, y: torch.neg(y, out=buffer), torch.ones(2), [0.0, 1.0], **options)
    # The same tensor again is no harm where nobody writes to it.
    solution = gd.solve(lambda t, y: constant, torch.ones(2), [0.0, 1.0], **options)
    torch.testing.assert_close(solution.states[-1], 2 * torch.ones(2))
    with torch.inference_mode():
        assert gd.solve(decay, torch.ones(2), [0.0, 1.0], **options).succeeded
