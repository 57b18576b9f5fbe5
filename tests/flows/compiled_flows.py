"""Flows under torch.compile; `test_compile.py` runs this in a process without type checks."""

import pytest
import torch
from torch import Tensor, nn

import graphode as gd

pytestmark = [
    pytest.mark.usefixtures("fresh_compiler"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of torch, by torch
]
# One of each kind: a step of a Runge–Kutta method differs only in its numbers.
EXPLICIT = ["euler", "rk4_38", "adams", "dopri5", "dopri8"]


class Field(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 5), nn.Linear(5, 3)

    def forward(self, t: Tensor, h: Tensor, graph: Tensor) -> Tensor:
        return self.second(torch.tanh(graph @ self.first(h))) * torch.cos(t)


class Oscillator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.rand(2))

    def forward(self, t: Tensor, h: Tensor, graph: Tensor) -> Tensor:
        x, v = h.chunk(2, -1)
        return torch.cat([v, -self.rate * (graph @ x)], -1)


def outcome(flow: nn.Module, parameters: list[Tensor], *inputs: object) -> list[Tensor]:
    """The final state, and the gradients of one scalar of it."""
    h, graph = (x.detach().clone().requires_grad_() for x in inputs[:2])
    final = flow(h, graph, *inputs[2:])
    return [final, *torch.autograd.grad(final.sin().sum(), [h, graph, *parameters])]


def assert_compiles(flow: gd.Flow, backend: str, *inputs: object) -> None:
    compiled = torch.compile(flow, fullgraph=True, backend=backend)
    parameters = list(flow.parameters())
    expected = outcome(flow, parameters, *inputs)
    found = outcome(compiled, parameters, *inputs)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("solver", EXPLICIT)
def test_fixed_step_flow_compiles_without_graph_breaks(solver: str):
    # adams has gathered its history after three steps.
    flow = gd.Flow(Field(), solver=solver, num_steps=5 if solver == "adams" else 2)
    assert_compiles(flow, "eager", torch.randn(4, 3), torch.randn(4, 4), 0.0, 1.0)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_flow_has_the_gradients_of_the_eager_one(backend: str):
    flow = gd.Flow(Field(), solver="midpoint", num_steps=1)
    assert_compiles(flow, backend, torch.randn(4, 3), torch.randn(4, 4), 0.0, 1.0)


def test_leapfrog_compiles():
    flow = gd.Flow(Oscillator(), solver="leapfrog", num_steps=4)
    assert_compiles(flow, "eager", torch.randn(3, 4), torch.randn(3, 3), 0.0, 1.0)


def test_times_of_each_sample_compile():
    flow = gd.Flow(Field(), solver="rk4", num_steps=3)
    end = torch.tensor([1.0, 0.5, -0.3])
    assert_compiles(flow, "aot_eager", torch.randn(3, 4, 3), torch.randn(4, 4), 0.0, end)


def test_half_precision_compiles():
    flow = gd.Flow(Field().bfloat16(), solver="rk4", num_steps=3)
    h, graph = torch.randn(4, 3, dtype=torch.bfloat16), torch.randn(4, 4, dtype=torch.bfloat16)
    compiled = torch.compile(flow, fullgraph=True, backend="eager")
    assert torch.equal(compiled(h, graph), flow(h, graph))


def test_non_finite_values_do_not_break_a_compiled_flow():
    """Checks that need a value on the host are left out."""
    flow = gd.Flow(lambda t, h, graph: h**2, solver="euler", num_steps=40)
    h = torch.full((2, 1), 1e300)
    with pytest.raises(gd.SolveError):
        flow(h)
    compiled = torch.compile(flow, fullgraph=True, backend="eager")
    assert not compiled(h).isfinite().any()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "An adaptive flow decides its steps as it goes"),
        ({"num_steps": 3, "gradient": "adjoint"}, "Only a flow with gradient='backprop'"),
        ({"solver": "implicit_euler", "num_steps": 3}, "'implicit_euler' differentiates the field"),
        ({"solver": "trapezoid", "num_steps": 3}, "'trapezoid' differentiates the field"),
        ({"solver": "collocation", "num_steps": 3}, "'collocation' differentiates the field"),
        ({"solver": "rk4", "step_size": 0.5}, "The number of steps must be known"),
    ],
)
def test_flow_that_cannot_be_compiled_says_why(options: dict, reason: str):
    flow = gd.Flow(Field(), **options)
    compiled = torch.compile(flow, backend="eager")
    with pytest.raises(ValueError, match=reason):
        compiled(torch.randn(4, 3), torch.randn(4, 4))


@pytest.mark.parametrize("solver", ["rk4", "adams", "dopri5"])
@pytest.mark.parametrize(
    "times",
    [[0.0, 0.3, 1.0], torch.tensor([[0.0, 0.2, 0.25, 1.0], [1.0, 0.4, 0.1, 0.0]])],
    ids=["shared", "own"],
)
def test_states_at_many_times_compile_with_their_status(solver: str, times: object):
    flow = gd.Flow(Field(), solver=solver, num_steps=5)
    h, graph = torch.randn(2, 4, 3), torch.randn(4, 4)

    def run(h: Tensor, graph: Tensor) -> tuple[Tensor, Tensor]:
        solution = flow.solve(h, graph, times)
        return solution.states, solution.status

    def outcomes(function, h: Tensor) -> tuple[Tensor, ...]:
        states, status = function(h, graph)
        pulled = torch.autograd.grad(states.sin().sum(), [*flow.parameters()])
        return states, status, *pulled

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(outcomes(compiled, h), outcomes(run, h), rtol=1e-10, atol=1e-12)
    h[1, 0, 0] = torch.nan
    assert compiled(h, graph)[1].tolist() == [gd.Status.SUCCESS, gd.Status.NON_FINITE]


def test_any_right_hand_side_compiles():
    def run(y: Tensor, k: Tensor) -> Tensor:
        solution = gd.solve(
            lambda t, y, k: -k * y, y, [0.0, 0.5, 1.0], (k,), solver="rk4", num_steps=4
        )
        return solution.states

    point = torch.ones(3), torch.tensor(0.7)
    compiled = torch.compile(run, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(*point), run(*point), rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("options", "asked", "reason"),
    [
        ({}, {}, "An adaptive solve decides its steps as it goes"),
        ({"solver": "trapezoid", "num_steps": 3}, {}, "'trapezoid' differentiates the field"),
        ({"solver": "rk4", "num_steps": 3, "gradient": "adjoint"}, {}, "gradient='backprop'"),
        (
            {"solver": "rk4", "num_steps": 3},
            {"events": [lambda t, h: h[..., 0, 0]]},
            "Events are located by looking at values",
        ),
    ],
)
def test_solve_that_cannot_be_compiled_says_why(options: dict, asked: dict, reason: str):
    flow = gd.Flow(Field(), **options)
    compiled = torch.compile(lambda h, graph: flow.solve(h, graph, **asked).states, backend="eager")
    with pytest.raises(ValueError, match=reason):
        compiled(torch.randn(4, 3), torch.randn(4, 4))


def test_compiled_solution_says_that_it_has_no_dense_output():
    flow = gd.Flow(Field(), solver="rk4", num_steps=2)
    compiled = torch.compile(flow.solve, fullgraph=True, backend="eager")
    with pytest.raises(RuntimeError, match=r"no dense output. Give the times you want"):
        compiled(torch.randn(4, 3), torch.randn(4, 4)).at(0.5)
