"""`torch.func` through a solve: the derivatives of autograd, or a refusal one can read."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, vmap

import graphode as gd

SOLVERS = ["rk4", "adams", "tsit5", "dopri5"]


def end_state(solver: str) -> Callable[[Tensor, Tensor], Tensor]:
    """The end of y′ = −k sin(y), a function of y0 and k."""
    num_steps = 5 if solver in ("rk4", "adams", "trapezoid", "collocation") else None

    def end(y0: Tensor, k: Tensor) -> Tensor:
        solution = gd.solve(
            lambda t, y, k: -k * torch.sin(y), y0, [0.0, 0.3, 1.0], (k,),
            solver=solver, num_steps=num_steps,
        )  # fmt: skip
        return solution.states[-1]

    return end


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("argument", [0, 1])
def test_transforms_give_the_derivatives_of_autograd(solver: str, argument: int):
    end = end_state(solver)
    point = (torch.tensor([1.0, 2.0]), torch.tensor(0.7))
    expected = torch.autograd.functional.jacobian(end, point)[argument]
    torch.testing.assert_close(jacrev(end, argument)(*point), expected)
    torch.testing.assert_close(jacfwd(end, argument)(*point), expected)
    torch.testing.assert_close(grad(lambda *x: end(*x).sum(), argument)(*point), expected.sum(0))
    second = torch.autograd.functional.hessian(lambda *x: end(*x).sum(), point)
    found = hessian(lambda *x: end(*x).sum(), argument)(*point)
    torch.testing.assert_close(found, second[argument][argument])


@pytest.mark.parametrize("options", [{}, {"solver": "rk4", "num_steps": 3}])
def test_functional_call_of_a_flow_has_the_gradients_of_its_parameters(options: dict):
    graph = gd.Graph(torch.tensor([[0, 1], [1, 2]]), num_nodes=3).normalize("sym")
    flow = gd.Flow(gd.GraphConvField([3, 3]), **options)
    parameters, h = dict(flow.named_parameters()), torch.randn(2, 3, 3)
    expected = torch.autograd.grad(flow(h, graph).sum(), list(parameters.values()))
    found = grad(lambda p: functional_call(flow, p, (h, graph)).sum())(parameters)
    torch.testing.assert_close(tuple(found.values()), expected)


def test_times_have_derivatives_in_reverse_mode_and_none_that_are_lost():
    flow = gd.Flow(lambda t, h, graph: -h, solver="rk4", num_steps=20)

    def end(t1: Tensor) -> Tensor:
        return flow(torch.ones(1, 1), None, 0.0, t1).sum()

    t1 = torch.tensor(1.0)
    assert grad(end)(t1).item() == pytest.approx(-0.36788, abs=1e-4)
    with pytest.raises(RuntimeError, match=r"by its times in forward mode.*Use `torch.func.grad`"):
        jacfwd(end)(t1)


@pytest.mark.parametrize("solver", ["trapezoid", "collocation"])
def test_solver_that_differentiates_by_itself_refuses_transforms(solver: str):
    end, point = end_state(solver), (torch.ones(2), torch.tensor(0.7))
    with pytest.raises(RuntimeError, match=r"cannot be differentiated by `torch.func`.*autograd"):
        grad(lambda *x: end(*x).sum())(*point)


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint"])
def test_gradients_that_save_memory_refuse_transforms(gradient: str):
    flow = gd.Flow(lambda t, h, graph: -h, gradient=gradient)
    with pytest.raises(RuntimeError, match=f"gradient='{gradient}' cannot be differentiated by"):
        grad(lambda h: flow(h).sum())(torch.ones(2, 1))


@pytest.mark.parametrize("solver", ["rk4", "tsit5"])
def test_mapped_solve_is_told_of_batches(solver: str):
    end = end_state(solver)
    with pytest.raises(RuntimeError, match=r"`y0` is mapped by `torch.func.vmap`.*`batch_dims`"):
        vmap(end, in_dims=(0, None))(torch.ones(3, 2), torch.tensor(0.7))
    with pytest.raises(RuntimeError, match=r"field returned is mapped.*every dimension before"):
        vmap(end, in_dims=(None, 0))(torch.ones(2), torch.ones(3))
