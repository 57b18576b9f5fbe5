"""Time in float64, states in their own dtype, half precision summed in single."""

import math

import pytest
import torch
from torch import Tensor, nn

import graphode as gd
from tests.problems import gompertz

ADAPTIVE = ["bosh3", "dopri5", "tsit5", "dopri8"]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def field(t: Tensor, y: Tensor) -> Tensor:
    x, v = y.chunk(2, -1)
    return torch.cat([v, torch.cos(t) - x], -1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("solver", gd.SOLVERS)
def test_states_keep_their_dtype(solver: str, dtype: torch.dtype):
    """… and everything the field sees is of that dtype too."""
    seen = set()

    def f(t: Tensor, y: Tensor) -> Tensor:
        seen.update((t.dtype, y.dtype))
        return field(t, y)

    y0 = torch.tensor([1.0, -0.5, 0.2, 0.3], dtype=dtype)
    options = {"rtol": 1e-2, "atol": 1e-2} if solver in ADAPTIVE else {"num_steps": 10}
    solution = gd.solve(f, y0, [0.0, 0.4, 1.0], solver=solver, **options)
    assert solution.states.dtype == dtype
    assert solution.at(0.7).dtype == dtype
    assert solution.times.dtype == solution.end_times.dtype == torch.float64
    assert seen == {dtype}
    exact = gd.solve(field, y0.double(), [0.0, 1.0], solver=solver, **options)
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-4}.get(dtype, 0.05)
    torch.testing.assert_close(
        solution.states[-1].double(), exact.states[-1], rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize(
    "times", [[0, 1], [0.0, 1.0], torch.tensor([0, 1]), torch.tensor([0.0, 1.0]).float()]
)
def test_times_of_any_number_type_are_read_in_float64(times: object):
    solution = gd.solve(lambda t, y: -y, torch.ones(1), times, **{"rtol": 1e-9, "atol": 1e-9})
    assert solution.times.dtype == torch.float64
    assert solution.states[-1].item() == pytest.approx(math.exp(-1), abs=1e-8)


@pytest.mark.parametrize("solver", ["tsit5", "rk4", "adams"])
@pytest.mark.parametrize("per_sample", [False, True])
def test_time_is_kept_in_float64_beside_float32_states(solver: str, per_sample: bool):
    """At t = 1e6 single precision resolves 0.06: a span of 1e-3 would be lost in it."""
    start, span = 1.0e6, 1.0e-3
    times = torch.tensor([[start, start + span / 3, start + span]])
    y0 = torch.ones(1, 2, dtype=torch.float32)
    solution = gd.solve(
        lambda t, y: -1000 * y,
        y0,
        times if per_sample else times[0],
        solver=solver,
        num_steps=None if solver == "tsit5" else 50,
        batch_dims=1,
        rtol=1e-5,
        atol=1e-6,
    )
    assert solution.states.dtype == torch.float32
    exact = torch.tensor([1.0, math.exp(-1 / 3), math.exp(-1)])
    torch.testing.assert_close(solution.states[:, 0, 0].double(), exact, rtol=1e-4, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("solver", ["euler", "rk4", "leapfrog"])
def test_many_tiny_steps_do_not_stall_in_half_precision(solver: str, dtype: torch.dtype):
    """1 + 1/2000 is 1 in bfloat16: summed there, nothing would ever move."""
    y0 = torch.tensor([1.0, 1.0], dtype=dtype)

    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.stack([y[1], torch.zeros_like(y[1])])

    with torch.no_grad():
        solution = gd.solve(f, y0, [0.0, 1.0], solver=solver, num_steps=2000)
    assert solution.states.dtype == dtype
    torch.testing.assert_close(
        solution.states[-1].double(), torch.tensor([2.0, 1.0]), rtol=0, atol=0.02
    )


def test_adaptive_steps_do_not_stall_in_half_precision():
    solution = gd.solve(
        lambda t, y: torch.cos(100 * t) * torch.ones_like(y),
        torch.tensor([1.0], dtype=torch.bfloat16),
        [0.0, 1.0],
        rtol=1e-3,
        atol=1e-3,
        solver="bosh3",
    )
    assert solution.states[-1].item() == pytest.approx(1 + math.sin(100) / 100, abs=0.02)


@pytest.mark.parametrize("gradient", ["backprop", "checkpoint", "adjoint"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_float64_leaks_into_the_graph_of_lower_precision_states(
    gradient: str, dtype: torch.dtype
):
    """Backward, too, the field works in the dtype of its states."""
    seen = set()

    class Watch(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, y: Tensor) -> Tensor:
            seen.add(y.dtype)
            return -y

        @staticmethod
        def backward(ctx: object, gradient: Tensor) -> Tensor:
            seen.add(gradient.dtype)
            return -gradient

    y0 = torch.randn(2, 3, dtype=dtype, requires_grad=True)
    times = torch.tensor([[0.0, 1.0], [0.0, 0.5]], requires_grad=True)
    solution = gd.solve(
        lambda t, y: Watch.apply(y),
        y0,
        times,
        batch_dims=1,
        gradient=gradient,
        rtol=1e-2,
        atol=1e-2,
    )
    solution.states[-1].sum().backward()
    assert seen == {dtype}
    assert y0.grad is not None
    assert y0.grad.dtype == dtype
    expected = torch.exp(-times.detach()[:, 1:]).expand(2, 3)
    torch.testing.assert_close(y0.grad.double(), expected, rtol=0.05, atol=0.02)


def test_float32_reaches_its_precision():
    problem = gompertz(2.0)
    solution = gd.solve(
        lambda t, y: problem.f(t.double(), y.double()).float(),
        problem.y0.float(),
        [0.0, 2.0],
        rtol=1e-6,
        atol=1e-6,
    )
    assert problem.error(solution.states[-1].double()) < 1e-5


@pytest.mark.parametrize("solver", ["rk4", "dopri5"])
def test_autocast_may_round_what_a_field_returns(solver: str):
    linear = nn.Linear(4, 4).float()
    flow = gd.Flow(lambda t, h, graph: linear(h), solver=solver, num_steps=4)
    h = torch.randn(3, 4, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = flow(h)
        encoded = flow(linear(h))
    torch.testing.assert_close(rounded, flow(h), rtol=0.02, atol=0.02)
    assert encoded.dtype == torch.bfloat16
    torch.testing.assert_close(encoded.float(), flow(linear(h)), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint", "checkpoint_adjoint"])
def test_the_backward_pass_evaluates_a_field_under_the_autocast_of_its_solve(gradient: str):
    linear = nn.Linear(4, 4).float()
    dtypes = []

    def rounded(t: Tensor, h: Tensor, graph: object) -> Tensor:
        dh = linear(h)
        dtypes.append(dh.dtype)
        return dh

    flow = gd.Flow(rounded, solver="rk4", num_steps=4, gradient=gradient)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        end = flow(linear(torch.randn(3, 4, dtype=torch.float32)))
    seen = len(dtypes)
    end.float().sum().backward()
    assert len(dtypes) > seen
    assert set(dtypes) == {torch.bfloat16}


@pytest.mark.parametrize("shape", [(3, 4), (1, 3, 4), (2, 3, 4)])
def test_autocast_leaves_the_dtype_of_a_flow(shape: tuple[int, ...]):
    graph = gd.Graph(torch.tensor([[0, 1], [1, 2]]), 3).normalize("sym").to(dtype=torch.float32)
    field = gd.GraphConvField([4, 4], "tanh").float()
    flow = gd.Flow(field, solver="rk4", num_steps=2)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        assert flow(torch.randn(shape, dtype=torch.float32), graph).dtype == torch.float32
