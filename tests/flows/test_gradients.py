"""Four ways to differentiate a solve: each right, and all agreeing where mathematics says so."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck

import graphode as gd
from graphode.flows.recorder import Recorder
from tests.problems import gompertz

pytestmark = pytest.mark.usefixtures("without_type_checks")

GRADIENTS = ["backprop", "checkpoint", "adjoint", "checkpoint_adjoint"]
EXACT = ["backprop", "checkpoint"]
TIGHT = {"rtol": 1e-10, "atol": 1e-11}
# Enough steps that the continuous adjoint and the gradient of the steps agree to 1e-5.
STEPS = {
    "rk4": 8,
    "adams": 12,
    "dopri5": 4,
    "heun": 10,
    "implicit_euler": 6,
    "trapezoid": 6,
    "collocation": 1,
}
# … but the adjoint of a method of low order is another method's gradient, and too far from it.
ADJOINT_SOLVERS = ["dopri8", "rk4", "adams", "collocation"]


def field(t: Tensor, y: Tensor, a: Tensor) -> Tensor:
    return torch.tanh(y @ a) + torch.cos(t) * y


def oscillating(t: Tensor, y: Tensor, a: Tensor) -> Tensor:
    """(velocity, acceleration), as leapfrog needs it."""
    x, v = y.chunk(2, -1)
    return torch.cat([v, -torch.sin(x @ a) * torch.cos(t)], -1)


def settings(solver: str, gradient: str) -> dict:
    steps = {} if solver in ("tsit5", "dopri8") else {"num_steps": STEPS.get(solver, 8)}
    if "adjoint" in gradient and solver == "rk4":
        steps = {"num_steps": 20}
    method = gd.CheckpointAdjoint(resets=2) if gradient == "checkpoint_adjoint" else gradient
    return {"solver": solver, "gradient": method, **steps, **TIGHT}


@pytest.mark.parametrize(
    ("solver", "gradient"),
    [
        *[(s, g) for s in ADJOINT_SOLVERS for g in GRADIENTS],
        *[
            (s, g)
            for s in ("tsit5", "heun", "dopri5", "implicit_euler", "trapezoid")
            for g in EXACT
        ],
    ],
)
def test_gradcheck_of_state_times_and_arguments(solver: str, gradient: str):
    options = settings(solver, gradient)
    y0 = torch.randn(2, requires_grad=True)
    a = torch.randn(2, 2, requires_grad=True)
    times = torch.tensor([0.0, 0.31, 0.8], requires_grad=True)

    def solve(y0: Tensor, times: Tensor, a: Tensor) -> Tensor:
        return gd.solve(field, y0, times, (a,), **options).states

    assert gradcheck(solve, (y0, times, a), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("gradient", EXACT)
def test_gradcheck_of_leapfrog(gradient: str):
    y0 = torch.randn(4, requires_grad=True)
    a = torch.randn(2, 2, requires_grad=True)
    times = torch.tensor([0.0, 0.31, 0.8], requires_grad=True)

    def solve(y0: Tensor, times: Tensor, a: Tensor) -> Tensor:
        options = {"solver": "leapfrog", "num_steps": 5, "gradient": gradient}
        return gd.solve(oscillating, y0, times, (a,), **options).states

    assert gradcheck(solve, (y0, times, a), atol=1e-6)


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("solver", ["dopri8", "rk4"])
def test_gradcheck_of_times_of_each_sample(solver: str, gradient: str):
    y0 = torch.randn(2, 1, requires_grad=True)
    a = torch.randn(1, 1, requires_grad=True)
    times = torch.tensor([[0.0, 0.3, 0.5], [0.4, 0.1, -0.3]], requires_grad=True)
    options = settings(solver, gradient)

    def solve(y0: Tensor, times: Tensor, a: Tensor) -> Tensor:
        return gd.solve(field, y0, times, (a,), batch_dims=1, **options).states

    assert gradcheck(solve, (y0, times, a), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("solver", ["dopri8", "rk4"])
def test_gradcheck_of_a_flow_and_its_parameters(solver: str, gradient: str):
    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, t: Tensor, h: Tensor, graph: Tensor) -> Tensor:
            return torch.tanh(graph @ self.linear(h)) * torch.cos(t)

    flow = gd.Flow(Field(), **settings(solver, gradient))
    h = torch.randn(2, 2, requires_grad=True)
    weights = torch.randn(2, 2, requires_grad=True)
    t0, t1 = torch.tensor(0.1, requires_grad=True), torch.tensor(0.7, requires_grad=True)
    # gradcheck moves its inputs in place, and the parameters are among them.
    assert gradcheck(
        lambda h, weights, t0, t1, *parameters: flow(h, weights, t0, t1),
        (h, weights, t0, t1, *flow.parameters()),
        atol=1e-5,
        rtol=1e-4,
    )


@pytest.mark.parametrize(
    "solver", ["tsit5", "rk4", "adams", "implicit_euler", "trapezoid", "collocation"]
)
def test_second_derivatives_work_in_backprop(solver: str):
    y0 = torch.randn(2, requires_grad=True)
    a = torch.randn(2, 2, requires_grad=True)
    times = torch.tensor([0.0, 0.3, 0.5], requires_grad=True)
    options = {"solver": solver, "num_steps": 1 if solver == "collocation" else 4, **TIGHT}
    assert gradgradcheck(
        lambda y0, times, a: gd.solve(field, y0, times, (a,), **options).states,
        (y0, times, a),
        atol=1e-5,
    )


def test_second_derivatives_work_through_adaptive_steps():
    y0 = torch.randn(2, requires_grad=True)
    a = torch.randn(2, 2, requires_grad=True)
    assert gradgradcheck(
        lambda y0, a: gd.solve(field, y0, [0.0, 0.5], (a,), solver="dopri8", **TIGHT).states[-1],
        (y0, a),
        atol=1e-4,
    )


@pytest.mark.parametrize(
    ("solver", "gradient", "remedy"),
    [
        ("rk4", "checkpoint", "gradient='backprop'"),
        ("rk4", "adjoint", "gradient='backprop'"),
    ],
)
def test_second_derivatives_are_refused_where_they_would_be_wrong(
    solver: str, gradient: str, remedy: str
):
    y0 = torch.randn(2, requires_grad=True)
    solution = gd.solve(
        field, y0, [0.0, 1.0], (torch.eye(2),), solver=solver, num_steps=3, gradient=gradient
    )
    total = solution.states[-1].sum()
    with pytest.raises(RuntimeError, match=rf"Second derivatives of .* Use {remedy}"):
        torch.autograd.grad(total, y0, create_graph=True)
    assert torch.autograd.grad(total, y0)[0].isfinite().all()


def all_gradients(
    gradient: object, solver: str, f: Callable[..., Tensor] = field, **options: object
) -> tuple[Tensor, ...]:
    """Gradients of one scalar of a solve, always the same, by one method."""
    torch.manual_seed(1)
    y0 = torch.randn(3, 4, requires_grad=True)
    a = torch.randn(2, 2) if f is oscillating else torch.randn(4, 4)
    a.requires_grad_()
    times = torch.tensor([[0.0, 0.2, 0.9], [1.0, 0.7, 0.1], [0.5, 1.0, 1.3]], requires_grad=True)
    solution = gd.solve(
        f, y0, times, (a,), solver=solver, gradient=gradient, batch_dims=1, **options
    )
    weights = torch.randn(solution.states.shape)
    return torch.autograd.grad((weights * solution.states).sum(), (y0, times, a))


def assert_close(found: tuple[Tensor, ...], expected: tuple[Tensor, ...], tolerance: float) -> None:
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def distance(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> float:
    return max((a - b).abs().max().item() for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("solver", gd.SOLVERS)
def test_checkpoint_gives_the_gradient_of_backprop(solver: str):
    """Also through adaptive steps: they are taken again exactly."""
    adaptive = solver in ("bosh3", "dopri5", "tsit5", "dopri8")
    options = {} if adaptive else {"num_steps": 11}
    f = oscillating if solver == "leapfrog" else field
    # Implicit equations are solved to nearly the precision of the state only.
    tolerance = 1e-9 if solver in ("implicit_euler", "trapezoid", "collocation") else 1e-12
    expected = all_gradients("backprop", solver, f, **options)
    assert_close(all_gradients("checkpoint", solver, f, **options), expected, tolerance)


@pytest.mark.parametrize("gradient", [gd.Adjoint, gd.CheckpointAdjoint])
@pytest.mark.parametrize("seminorm", [True, False])
def test_adjoint_converges_to_backprop_as_its_tolerance_tightens(gradient: type, seminorm: bool):
    expected = all_gradients("backprop", "dopri5", **TIGHT)
    errors = []
    for tolerance in (1e-3, 1e-6, 1e-9):
        method = gradient(seminorm=seminorm, rtol=tolerance, atol=tolerance)
        errors.append(distance(all_gradients(method, "dopri5", **TIGHT), expected))
        assert errors[-1] < 100 * tolerance
    assert errors[0] > 10 * errors[-1]


@pytest.mark.parametrize("solver", ["euler", "midpoint", "rk4", "adams", "trapezoid"])
def test_adjoint_with_fixed_steps_converges_to_backprop(solver: str):
    exact = all_gradients("backprop", "dopri8", **TIGHT)
    coarse, fine = (
        distance(all_gradients("adjoint", solver, num_steps=n), exact) for n in (20, 40)
    )
    order = {"euler": 1, "midpoint": 2, "trapezoid": 2}.get(solver, 4)
    assert fine < coarse / 2 ** (order - 0.5)


def test_seminorm_saves_evaluations_and_not_accuracy():
    y0 = torch.randn(4, requires_grad=True)
    a = torch.randn(4, 4, requires_grad=True)
    evaluations, gradients = [], []
    for seminorm in (True, False):
        solution = gd.solve(
            field, y0, [0.0, 3.0], (30 * a,), gradient=gd.Adjoint(seminorm=seminorm), rtol=1e-6
        )
        gradients.append(torch.autograd.grad(solution.states[-1].sum(), (y0, a)))
        evaluations.append(solution.stats.backward_evaluations)
    assert_close(gradients[0], gradients[1], 1e-3)
    assert evaluations[0] <= evaluations[1]


def test_checkpoint_adjoint_does_not_drift_where_the_adjoint_does():
    """A contracting field is unstable backwards: the recomputed state must be reset."""
    rate = torch.tensor(3.0, requires_grad=True)
    y0 = torch.tensor([1.0, 2.0], requires_grad=True)

    def solve(gradient: object) -> tuple[Tensor, ...]:
        solution = gd.solve(
            lambda t, y: -rate * (y - torch.sin(t)) ** 3 - rate * y,
            y0,
            [0.0, 8.0],
            gradient=gradient,
            rtol=1e-7,
            atol=1e-9,
            on_failure="status",
        )
        return torch.autograd.grad(solution.states[-1].sum(), (y0, rate))

    exact = solve("backprop")
    reset = distance(solve(gd.CheckpointAdjoint(resets=40)), exact)
    assert reset < 1e-5
    try:
        drifted = distance(solve("adjoint"), exact)
    except gd.SolveError:
        drifted = math.inf
    assert drifted > 100 * reset


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_time_gradient_is_the_velocity(gradient: str):
    """dy(t)/dt = f, and moving the start moves the solution by −f along the flow."""
    problem = gompertz(2.0)
    times = torch.tensor([0.0, 0.6, 2.0], requires_grad=True)
    solution = gd.solve(problem.f, problem.y0, times, gradient=gradient, **TIGHT)
    weight = torch.randn(4)
    (pulled,) = torch.autograd.grad(weight @ solution.states[-1], times)
    velocity = weight @ problem.f(times[-1], problem.exact(2.0))
    # The field does not depend on time: only the length of the span counts.
    torch.testing.assert_close(
        pulled, torch.stack([-velocity, 0 * velocity, velocity]), atol=1e-8, rtol=0
    )


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_a_field_that_differentiates_an_energy_has_gradients_of_times(gradient: str):
    """Energies are usually differentiated by the state itself if that requires a gradient."""

    def descent(t: Tensor, y: Tensor) -> Tensor:
        with torch.enable_grad():
            y = y if y.requires_grad else y.detach().requires_grad_()
            energy = (y**4).sum() / 4
            return -torch.autograd.grad(energy, y, create_graph=True)[0]

    times = torch.tensor([0.0, 0.6, 2.0], requires_grad=True)
    y0 = torch.tensor([0.5, 1.5], requires_grad=True)
    solution = gd.solve(descent, y0, times, gradient=gradient, **TIGHT)
    (pulled,) = torch.autograd.grad(solution.states[-1].sum(), times)
    end = y0.detach() / (1 + 2 * 2.0 * y0.detach() ** 2).sqrt()
    velocity = -(end**3).sum()
    torch.testing.assert_close(
        pulled, torch.stack([-velocity, 0 * velocity, velocity]), atol=1e-8, rtol=0
    )


@pytest.mark.parametrize("gradient", EXACT)
@pytest.mark.parametrize("solver", ["rk4", "adams", "dopri5", "tsit5", "dopri8", "collocation"])
def test_time_gradient_is_the_velocity_also_where_steps_meet(solver: str, gradient: str):
    problem = gompertz(2.0)
    times = torch.tensor([0.0, 0.5, 2.0], requires_grad=True)
    solution = gd.solve(
        problem.f, problem.y0, times, solver=solver, num_steps=8, gradient=gradient, **TIGHT
    )
    weight = torch.randn(4)
    (pulled,) = torch.autograd.grad(weight @ solution.states[1], times)
    velocity = weight @ problem.f(times[1], problem.exact(0.5))
    torch.testing.assert_close(pulled[1], velocity.detach(), atol=1e-4, rtol=0)


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_arguments_in_containers_receive_gradients(gradient: str):
    a, b = torch.tensor(0.3, requires_grad=True), torch.tensor(0.2, requires_grad=True)
    solution = gd.solve(
        lambda t, y, rates, pair: rates["a"] * y + pair[0][0] * y,
        torch.ones(1),
        [0.0, 1.0],
        ({"a": a}, ([b], "unused", 3)),
        gradient=gradient,
        **TIGHT,
    )
    found = torch.autograd.grad(solution.states[-1].sum(), (a, b))
    expected = torch.tensor(0.5).exp()
    assert_close(found, (expected, expected), 1e-8)


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_source_term_receives_its_gradient(gradient: str):
    """y′ = h0 − y from y(0) = h0, as in controlled fields: dy(1)/dh0 = 1 by both ways together."""
    encoder = torch.tensor([1.0, 2.0], requires_grad=True)
    h0 = encoder * 3
    solution = gd.solve(lambda t, y, s: s - y, h0, [0.0, 1.0], (h0,), gradient=gradient, **TIGHT)
    (found,) = torch.autograd.grad(solution.states[-1].sum(), encoder)
    torch.testing.assert_close(found, torch.tensor([3.0, 3.0]), rtol=0, atol=1e-8)


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_start_is_an_output_and_passes_its_gradient(gradient: str):
    y0 = torch.randn(2, requires_grad=True)
    solution = gd.solve(lambda t, y: -y, y0, [0.0, 1.0], gradient=gradient)
    (found,) = torch.autograd.grad(solution.states[0].sum(), y0)
    torch.testing.assert_close(found, torch.ones(2))


def test_step_sizes_are_constants_to_the_gradient():
    y0 = torch.randn(2, requires_grad=True)
    times = torch.tensor([0.0, 1.0], requires_grad=True)
    solution = gd.solve(lambda t, y: torch.sin(5 * y) + t, y0, times)
    sizes = [kept.step.dt for kept in solution.dense.kept]
    assert len(sizes) > 3
    assert not any(size.requires_grad for size in sizes)


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint", "checkpoint_adjoint"])
@pytest.mark.parametrize("num_steps", [None, 30])
def test_backward_evaluations_are_filled_in(gradient: str, num_steps: int | None):
    calls = 0
    y0 = torch.randn(2, requires_grad=True)

    def f(t: Tensor, y: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return torch.sin(y)

    solution = gd.solve(f, y0, [0.0, 1.0], solver="dopri5", num_steps=num_steps, gradient=gradient)
    assert solution.stats.backward_evaluations == 0
    calls = 0
    solution.states[-1].sum().backward()
    assert solution.stats.backward_evaluations == calls > 0


def test_backprop_recomputes_nothing():
    y0 = torch.randn(2, requires_grad=True)
    solution = gd.solve(lambda t, y: torch.sin(y), y0, [0.0, 1.0])
    solution.states[-1].sum().backward()
    assert solution.stats.backward_evaluations == 0


@pytest.mark.parametrize("solver", ["bosh3", "dopri5", "tsit5", "dopri8"])
@pytest.mark.parametrize("gradient", ["backprop", "checkpoint"])
# The steeper, the earlier the stage that overflows: at the end of the step, or already inside.
@pytest.mark.parametrize("steepness", [60.0, 150.0, 600.0])
def test_overflow_in_a_refused_step_leaves_no_trace_in_the_gradient(
    solver: str, gradient: str, steepness: float
):
    """Zero times infinity is not zero: what was refused must not be in the graph at all."""
    overflows = 0

    def f(t: Tensor, y: Tensor, steepness: Tensor) -> Tensor:
        """Harmless until t = 1, then so steep that a long step overflows."""
        nonlocal overflows
        value = -y * torch.exp(y**2 * steepness * torch.sigmoid(50 * (t - 1)))
        overflows += int(not bool(value.isfinite().all()))
        return value

    y0 = torch.tensor([[1.0], [1.0]], requires_grad=True)
    steepnesses = torch.tensor([[0.0], [steepness]])
    options = {"solver": solver, "gradient": gradient, "rtol": 1e-2, "atol": 1e-2}
    solution = gd.solve(f, y0, [0.0, 1.5], (steepnesses,), batch_dims=1, **options)
    assert overflows > 0, "The test misses its point."
    (found,) = torch.autograd.grad(solution.states[-1].sum(), y0)
    for i in range(2):
        alone = gd.solve(f, y0[i], [0.0, 1.5], (steepnesses[i],), **options)
        (expected,) = torch.autograd.grad(alone.states[-1].sum(), y0)
        torch.testing.assert_close(found[i], expected[i], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("length", [1, 10, 100, 1000, 5000])
def test_checkpoints_number_about_the_root_of_the_steps(length: int):
    recorder = Recorder()
    for index in range(length):
        recorder.before_step(index, torch.empty(0), (), torch.empty(0).numpy())
    kept = sorted(recorder.snapshots)
    gaps = [b - a for a, b in zip(kept, [*kept[1:], length], strict=True)]
    assert kept[0] == 0
    assert len(kept) <= 2 * math.sqrt(length) + 1
    assert max(gaps) <= 2 * math.sqrt(length) + 1


def test_checkpoint_recomputes_each_step_once():
    y0 = torch.randn(2, requires_grad=True)
    solution = gd.solve(
        lambda t, y: torch.sin(y),
        y0,
        [0.0, 1.0],
        solver="rk4",
        num_steps=100,
        gradient="checkpoint",
    )
    solution.states[-1].sum().backward()
    assert solution.stats.backward_evaluations == 400


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_without_grad_every_method_just_solves(gradient: str):
    problem = gompertz(1.0)
    with torch.no_grad():
        solution = gd.solve(problem.f, problem.y0, [0.0, 1.0], gradient=gradient, **TIGHT)
    assert not solution.states.requires_grad
    assert problem.error(solution.states[-1]) < 1e-9
    assert problem.error(solution.at(0.3), 0.3) < 1e-8


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint", "checkpoint_adjoint"])
def test_gradient_accumulates_over_two_backward_passes(gradient: str):
    y0 = torch.randn(2, requires_grad=True)
    a = torch.randn(2, 2, requires_grad=True)
    solution = gd.solve(field, y0, [0.0, 0.5, 1.0], (a,), gradient=gradient, **TIGHT)
    solution.states[1].sum().backward(retain_graph=True)
    solution.states[2].sum().backward()
    other = gd.solve(field, y0, [0.0, 0.5, 1.0], (a,), **TIGHT)
    expected = torch.autograd.grad(other.states[1:].sum(), (y0, a))
    assert_close((y0.grad, a.grad), expected, 1e-7)


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_keep_the_dtype_of_their_tensor(gradient: str, dtype: torch.dtype):
    y0 = torch.randn(2, dtype=dtype, requires_grad=True)
    a = torch.randn(2, 2, dtype=dtype, requires_grad=True)
    times = torch.tensor([0.0, 0.5, 1.0], requires_grad=True)
    solution = gd.solve(field, y0, times, (a,), solver="rk4", num_steps=20, gradient=gradient)
    found = torch.autograd.grad(solution.states.sum(), (y0, times, a))
    double = [x.detach().double().requires_grad_() for x in (y0, times, a)]
    exact = gd.solve(field, double[0], double[1], (double[2],), **TIGHT)
    expected = torch.autograd.grad(exact.states.sum(), double)
    tolerance = 1e-4 if dtype == torch.float32 else 0.1
    for ours, exactly, tensor in zip(found, expected, (y0, times, a), strict=True):
        assert ours.dtype == tensor.dtype
        torch.testing.assert_close(ours.double(), exactly, rtol=tolerance, atol=tolerance)
