"""Implicit solvers: stiff fields, samples that do not notice each other, failures one can read."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

import graphode as gd
from graphode.flows.krylov import gmres
from graphode.flows.layout import Layout, SegmentedLayout
from tests.problems import logistic, riccati, stiff

IMPLICIT = ["implicit_euler", "trapezoid"]


@pytest.mark.parametrize("solver", IMPLICIT)
def test_stiff_field_is_followed_where_explicit_euler_explodes(solver: str):
    problem = stiff(rate=1000.0)
    span = [problem.t0, problem.t1]
    exploded = gd.solve(problem.f, problem.y0, span, solver="euler", num_steps=40)
    assert problem.error(exploded.states[-1]) > 1e10
    # The trapezoidal rule is not L-stable: it takes its time to forget the transient.
    num_steps = 40 if solver == "implicit_euler" else 400
    followed = gd.solve(problem.f, problem.y0, span, solver=solver, num_steps=num_steps)
    assert problem.error(followed.states[-1]) < 1e-4


def test_implicit_euler_damps_what_no_step_resolves():
    solution = gd.solve(
        lambda t, y: -1e8 * y, torch.ones(3), [0.0, 1.0], solver="implicit_euler", num_steps=2
    )
    assert solution.states[-1].abs().max() < 1e-14


@pytest.mark.parametrize("solver", IMPLICIT)
def test_step_solves_its_equation(solver: str):
    """For y′ = λ y one step is a known rational function of λ dt."""
    rate = torch.tensor([-3.0, 0.5, 30.0])
    z = rate * 0.1
    expected = 1 / (1 - z) if solver == "implicit_euler" else (1 + z / 2) / (1 - z / 2)
    solution = gd.solve(
        lambda t, y: rate * y, torch.ones(3), [0.0, 0.1], solver=solver, num_steps=1
    )
    torch.testing.assert_close(solution.states[-1], expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("solver", IMPLICIT)
def test_equation_without_a_solution_is_not_taken_for_solved(solver: str):
    """Of y⁺ = y + dt (…) with a singular matrix Newton's method has no update, not a small one."""
    gain = 1.0 if solver == "implicit_euler" else 2.0
    with pytest.raises(gd.SolveError, match=r"implicit equation was not solved.*`num_steps`"):
        gd.solve(lambda t, y: gain * y, torch.ones(1), [0.0, 4.0], solver=solver, num_steps=4)
    rate = torch.tensor([[gain], [-1.0]])
    solution = gd.solve(
        lambda t, y: rate * y, torch.ones(2, 1), [0.0, 1.0],
        solver=solver, num_steps=1, batch_dims=1, on_failure="status",
    )  # fmt: skip
    assert solution.status.tolist() == [gd.Status.NOT_CONVERGED, gd.Status.SUCCESS]
    # At a state that solves the equation by itself there is nothing to update.
    rest = gd.solve(lambda t, y: gain * y, torch.zeros(1), [0.0, 1.0], solver=solver, num_steps=1)
    assert rest.states[-1] == 0


@pytest.mark.parametrize("solver", [*IMPLICIT, "collocation"])
def test_states_want_a_gradient_only_where_something_does(solver: str):
    solution = gd.solve(lambda t, y: -y, torch.ones(2), [0.0, 1.0], solver=solver, num_steps=3)
    assert not solution.states.requires_grad
    assert not solution.at(0.4).requires_grad
    rate = torch.tensor(1.0, requires_grad=True)
    late = gd.solve(
        lambda t, y: -y * (rate if t > 0.5 else 1.0), torch.ones(2), [0.0, 0.4, 1.0],
        solver=solver, num_steps=3,
    )  # fmt: skip
    assert torch.autograd.grad(late.states[-1].sum(), rate)[0] < -0.1


@pytest.mark.parametrize("solver", [*IMPLICIT, "collocation"])
def test_batch_equals_samples_alone(solver: str):
    rates = torch.tensor([0.1, 1.0, 300.0])

    def f(t: Tensor, y: Tensor, rates: Tensor) -> Tensor:
        return -rates[..., None] * (y**3 - torch.cos(t))

    y0 = torch.rand(3, 2)
    times = torch.tensor([[0.0, 0.3, 1.0], [1.0, 0.2, 0.0], [0.0, 0.01, 0.04]])
    batch = gd.solve(f, y0, times, (rates,), solver=solver, num_steps=8, batch_dims=1)
    for i in range(3):
        alone = gd.solve(f, y0[i], times[i], (rates[i],), solver=solver, num_steps=8)
        torch.testing.assert_close(batch.states[:, i], alone.states, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("solver", IMPLICIT)
def test_zero_span_rests_beside_moving_samples(solver: str):
    flow = gd.Flow(lambda t, h, graph: -(h**2), solver=solver, num_steps=3)
    h = torch.rand(2, 3, 1, requires_grad=True)
    moved = flow(h, None, 0.0, torch.tensor([1.0, 0.0]))
    assert torch.equal(moved[1], h[1])
    torch.testing.assert_close(moved[0], flow(h[0], None, 0.0, 1.0))
    (gradient,) = torch.autograd.grad(moved[1].sum(), h)
    torch.testing.assert_close(gradient[1], torch.ones(3, 1))


@pytest.mark.parametrize("solver", [*IMPLICIT, "collocation"])
def test_unsolvable_equation_is_reported(solver: str):
    """y = 1 + dt y² has no real solution for dt = 4."""
    with pytest.raises(
        gd.SolveError, match=r"implicit equation was not solved.* t = 0 .*step size 4.*`num_steps`"
    ):
        gd.solve(lambda t, y: y**2 + 1, torch.ones(1), [0.0, 4.0], solver=solver, num_steps=1)


@pytest.mark.parametrize("solver", [*IMPLICIT, "collocation"])
def test_overflow_in_one_sample_leaves_the_others_alone(solver: str):
    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.exp(y)

    y0 = torch.tensor([[-3.0], [600.0], [-2.0]])
    solution = gd.solve(
        f, y0, [0.0, 1.0], solver=solver, num_steps=4, batch_dims=1, on_failure="status"
    )
    failed = [gd.Status.NON_FINITE, gd.Status.NOT_CONVERGED]
    assert solution.status[0] == solution.status[2] == gd.Status.SUCCESS
    assert int(solution.status[1]) in failed
    for i in (0, 2):
        alone = gd.solve(f, y0[i], [0.0, 1.0], solver=solver, num_steps=4)
        torch.testing.assert_close(solution.states[:, i], alone.states, rtol=1e-6, atol=1e-8)


def test_tolerance_of_the_state_limits_newton_not_the_tolerances():
    problem = riccati()
    loose, tight = (
        gd.solve(problem.f, problem.y0, [0.0, 1.0], solver="trapezoid", num_steps=5, rtol=rtol)
        for rtol in (1e-2, 1e-12)
    )
    assert torch.equal(loose.states, tight.states)


@pytest.mark.parametrize("solver", IMPLICIT)
def test_float32_states_are_solved_to_their_precision(solver: str):
    problem = logistic()
    single = gd.solve(problem.f, problem.y0.float(), [0.0, 1.0], solver=solver, num_steps=10)
    double = gd.solve(problem.f, problem.y0, [0.0, 1.0], solver=solver, num_steps=10)
    assert single.states.dtype == torch.float32
    torch.testing.assert_close(single.states.double(), double.states, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e4])
@pytest.mark.parametrize("stiffness", [1e4, 1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("solver", IMPLICIT)
def test_stiff_steps_are_solved_as_far_as_rounding_allows(
    solver: str, dtype: torch.dtype, stiffness: float, size: float
):
    """Newton's updates end at the rounding of stiff terms, not at that of the state."""
    nodes = torch.arange(20)
    ring = torch.stack([nodes, (nodes + 1) % 20])
    graph = gd.Graph(torch.cat([ring, ring.flip(0)], 1), num_nodes=20).normalize("laplacian")
    graph = graph.to(dtype=dtype)
    h = size * torch.randn(20, 2, dtype=dtype)
    flow = gd.Flow(lambda t, h, graph: -stiffness * graph.propagate(h), solver=solver, num_steps=4)
    one, a = torch.eye(20), stiffness / 4 * graph.propagate(torch.eye(20, dtype=dtype)).double()
    step = torch.linalg.inv(one + a)
    if solver == "trapezoid":
        step = torch.linalg.solve(one + a / 2, one - a / 2)
    expected = torch.linalg.matrix_power(step, 4) @ h.double()
    error = (flow(h, graph, 0.0, 1.0).double() - expected).norm() / expected.norm()
    assert error < stiffness * torch.finfo(dtype).eps


@pytest.mark.parametrize("batch_dims", [0, 1, 2])
def test_gmres_solves_each_sample_of_a_batch(batch_dims: int):
    shape = (*(2, 3)[:batch_dims], 5, 2)
    size = math.prod(shape[batch_dims:])
    matrices = torch.randn(*shape[:batch_dims], size, size) + 3 * torch.eye(size)

    def operator(x: Tensor) -> Tensor:
        return (matrices @ x.reshape(*shape[:batch_dims], size, 1)).reshape(shape)

    expected = torch.randn(shape)
    layout = Layout.of(expected, batch_dims)
    found, *_ = gmres(operator, operator(expected), layout, tolerance=1e-12)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-9)


def test_gmres_gives_up_a_broken_sample_and_solves_the_other():
    scale = torch.tensor([[2.0], [torch.nan]])
    right = torch.ones(2, 3)
    found, *_ = gmres(lambda x: scale * x, right, Layout.of(right, 1), tolerance=1e-10)
    torch.testing.assert_close(found[0], torch.full((3,), 0.5))


@pytest.mark.parametrize("solver", IMPLICIT)
def test_inference_mode_is_refused_with_the_remedy(solver: str):
    problem = logistic()
    with (
        torch.inference_mode(),
        pytest.raises(
            RuntimeError, match=r"`torch.inference_mode\(\)` forbids.*`torch.no_grad\(\)`"
        ),
    ):
        gd.solve(problem.f, problem.y0, [0.0, 1.0], solver=solver, num_steps=2)


@pytest.mark.parametrize("solver", ["trapezoid", "collocation"])
def test_a_gradient_does_not_remember_the_one_before(solver: str):
    y0, a = torch.randn(2, requires_grad=True), torch.randn(2, 2)
    solution = gd.solve(lambda t, y: torch.tanh(y @ a), y0, [0.0, 1.0], solver=solver, num_steps=2)
    end = solution.states[-1, 0]
    (first,) = torch.autograd.grad(end, y0, retain_graph=True)
    torch.autograd.grad(1e12 * end, y0, retain_graph=True)
    (again,) = torch.autograd.grad(end, y0)
    torch.testing.assert_close(again, first, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("solver", [*IMPLICIT, "collocation"])
def test_a_step_walks_no_graph_of_the_steps_before(solver: str, monkeypatch: pytest.MonkeyPatch):
    """Neither forwards nor backwards, where every product with a matrix is a gradient."""
    grad = torch.autograd.grad

    def longest(num_steps: int) -> int:
        sizes = []

        def counted(outputs: Tensor, *rest: object, **options: bool) -> tuple[Tensor, ...]:
            stack, seen = [outputs.grad_fn], set()
            while stack:
                node = stack.pop()
                if node is not None and node not in seen:
                    seen.add(node)
                    stack.extend(parent for parent, _ in node.next_functions)
            sizes.append(len(seen))
            return grad(outputs, *rest, **options)

        monkeypatch.setattr(torch.autograd, "grad", counted)
        y0, rate = torch.ones(2, requires_grad=True), torch.tensor(1.0, requires_grad=True)
        end = gd.solve(
            lambda t, y: -rate * y**2, y0, [0.0, 1.0], solver=solver, num_steps=num_steps
        ).states[-1]
        grad(end.sum(), (y0, rate))
        return max(sizes)

    assert longest(num_steps=2) == longest(num_steps=6)


def test_collocation_with_nodes_of_its_own_is_saved_and_shown(tmp_path: Path):
    flow = gd.Flow(gd.GraphConvField([2, 2]), solver=gd.Collocation(nodes=8), num_steps=1)
    assert "Collocation(rtol=1e-08, atol=1e-10, nodes=8)" in repr(flow)
    gd.save(flow, tmp_path / "flow.safetensors")
    loaded = gd.load(tmp_path / "flow.safetensors")
    graph, h = gd.Graph(torch.tensor([[0], [1]]), num_nodes=2).normalize("sym"), torch.ones(2, 2)
    assert torch.equal(loaded(h, graph), flow(h, graph))


def path_laplacian(nodes: int) -> Tensor:
    """Of nodes in a line."""
    ones = torch.ones(nodes - 1)
    adjacency = torch.diag(ones, 1) + torch.diag(ones, -1)
    return torch.diag(adjacency.sum(1)) - adjacency


@pytest.mark.parametrize("solver", IMPLICIT)
def test_gradients_through_stiff_steps_are_those_of_the_exact_solve(solver: str):
    """Heat on a long line: its eigenvalues spread over more than a few Krylov vectors can tell."""
    laplacian = 1e4 * path_laplacian(120)
    y0 = torch.randn(120, requires_grad=True)
    rate = torch.tensor(1.0, requires_grad=True)
    weight = torch.linspace(0, 1, 120)
    end = gd.solve(
        lambda t, y, rate: -rate * (laplacian @ y), y0, [0.0, 1.0], (rate,),
        solver=solver, num_steps=1,
    ).states[-1]  # fmt: skip
    own = torch.eye(120)
    if solver == "implicit_euler":
        exact = torch.linalg.solve(own + rate * laplacian, y0)
    else:
        exact = torch.linalg.solve(own + rate * laplacian / 2, y0 - rate / 2 * (laplacian @ y0))
    torch.testing.assert_close(end, exact, rtol=1e-8, atol=1e-8)
    found = torch.autograd.grad(weight @ end, (y0, rate))
    expected = torch.autograd.grad(weight @ exact, (y0, rate))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


def test_a_gradient_that_could_not_be_solved_for_is_warned_of():
    """In float32, of a matrix whose eigenvalues lie more than 1e9 apart."""
    laplacian = (1e10 * path_laplacian(40)).float()
    y0 = torch.zeros(40, dtype=torch.float32, requires_grad=True)
    solution = gd.solve(
        lambda t, y: -(laplacian @ y), y0, [0.0, 1.0], solver="implicit_euler", num_steps=1
    )
    with pytest.warns(UserWarning, match=r"residual of .* only.*shorter steps, or float64"):
        torch.autograd.grad(solution.states[-1][0], y0)


@pytest.mark.parametrize("solver", IMPLICIT)
def test_small_states_are_solved_to_their_own_size(solver: str):
    """y′ = −s (y/s)³ from s y0 is s times the solution with s = 1."""

    def scaled(size: float) -> Tensor:
        y0 = size * torch.tensor([1.0, 2.0])
        field = lambda t, y: -size * (y / size) ** 3  # noqa: E731
        return gd.solve(field, y0, [0.0, 1.0], solver=solver, num_steps=3).states[-1] / size

    torch.testing.assert_close(scaled(1e-16), scaled(1.0), rtol=1e-10, atol=0)


def test_gmres_solves_a_sample_as_if_alone():
    """One that needs one vector, beside one that needs all."""
    matrices = torch.stack([2 * torch.eye(6), torch.diag(torch.arange(1.0, 7.0))])
    right = torch.randn(2, 6)
    layout = Layout.of(right, 1)
    together, *_ = gmres(
        lambda x: (matrices @ x[..., None])[..., 0], right, layout, tolerance=1e-10
    )
    alone, *_ = gmres(lambda x: 2 * x, right[:1], Layout.of(right[:1], 1), tolerance=1e-10)
    torch.testing.assert_close(together[:1], alone, rtol=1e-15, atol=0)
    torch.testing.assert_close(together[1], right[1] / torch.arange(1.0, 7.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("solver", IMPLICIT)
def test_states_decay_until_their_squares_vanish(solver: str, dtype: torch.dtype):
    """y′ = −k y of single components, each a sample: one that stays beside one that dies."""
    rates = torch.tensor([[0.0], [3.0]], dtype=dtype)
    y0, count = torch.ones(2, 1, dtype=dtype), 45 if dtype == torch.float32 else 280
    y0.requires_grad_()
    solution = gd.solve(
        lambda t, y: -rates * y, y0, [0.0, count], solver=solver, num_steps=count, batch_dims=1
    )
    factor = 1 / 4 if solver == "implicit_euler" else -1 / 5
    expected = torch.tensor([[1.0], [factor**count]], dtype=dtype)
    assert 0 < expected[1].abs() < torch.finfo(dtype).tiny ** 0.5
    torch.testing.assert_close(solution.states[-1], expected, rtol=1e-3, atol=0)
    (found,) = torch.autograd.grad(solution.states[-1].sum(), y0)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=0)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_gmres_solves_for_sides_whose_squares_vanish_or_overflow(size: float):
    matrices = torch.randn(4, 4) + 4 * torch.eye(4)
    owner = torch.tensor([0, 0, 1, 1, 1])
    expected = torch.randn(5, 4) * torch.tensor([size, 1.0])[owner, None]
    layout = SegmentedLayout(expected.shape, 1, expected.dtype, expected.device, owner, (2, 3))
    found, left, _ = gmres(lambda x: x @ matrices, expected @ matrices, layout, tolerance=1e-12)
    torch.testing.assert_close(found / expected, torch.ones(5, 4), rtol=1e-9, atol=0)
    assert left.max() < 1e-12
