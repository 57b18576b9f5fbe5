"""Checkpoints and adjoints find every tensor that a field depends on, however it is held."""

import functools
import math
import tempfile
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

import graphode as gd
from graphode.flows.dependencies import _reached_from

pytestmark = pytest.mark.usefixtures("without_type_checks")

GRADIENTS = ["backprop", "checkpoint", "adjoint", "checkpoint_adjoint"]
TIGHT = {"rtol": 1e-10, "atol": 1e-11}


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("num_steps", [None, 40])
def test_argument_that_shares_a_parameter_with_the_field_is_counted_once(
    gradient: str, num_steps: int | None
):
    """y′ = (p² + p) y with p² passed as an argument and p closed over: dy/dp = (2p + 1) t y."""
    p = torch.tensor(0.4, requires_grad=True)
    solution = gd.solve(
        lambda t, y, a: a * y + p * y,
        torch.ones(2),
        [0.0, 1.5],
        (p**2,),
        solver="dopri5",
        num_steps=num_steps,
        gradient=gradient,
        **TIGHT,
    )
    (found,) = torch.autograd.grad(solution.states[-1].sum(), p)
    expected = 2 * (2 * p + 1) * 1.5 * torch.exp((p**2 + p) * 1.5)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-7, atol=1e-7)


class Calling:
    """A field that is neither a function nor a module."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def __call__(self, t: Tensor, y: Tensor) -> Tensor:
        return torch.tanh(y @ self.weight)


GLOBAL: dict[str, Tensor] = {}


class ReadsGlobal(nn.Module):
    """A field that uses a tensor it does not hold."""

    def __init__(self, start: float = -1.0) -> None:
        super().__init__()
        self.start = start

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        return torch.tanh(y @ GLOBAL["weight"]) if t > self.start else -y


class Applies(nn.Module):
    """A field made of something that can be called."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        return self.function(t, y)


def closures(weight: Tensor) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """Many ways for a field to hold a parameter that nobody declares."""
    doubled = 2 * weight
    holder = {"weights": [weight]}
    module = nn.Linear(2, 2, bias=False)
    module.weight = nn.Parameter(weight.detach().clone())
    calling = Calling(weight)
    GLOBAL["weight"] = weight

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, t: Tensor, y: Tensor) -> Tensor:
            return torch.tanh(self.inner(y))

        def another(self, t: Tensor, y: Tensor) -> Tensor:
            return torch.sin(self.inner(y))

    class Holder(nn.Module):
        """Tensors that are no parameters, such as those a hypernetwork makes."""

        def __init__(self, tensor: Tensor) -> None:
            super().__init__()
            self.tensors = [tensor]

        def forward(self, t: Tensor, y: Tensor) -> Tensor:
            return torch.tanh(y @ self.tensors[0])

    def late(t: Tensor, y: Tensor) -> Tensor:
        return torch.tanh(y @ weight) if t > 0.5 else -y

    def late_derived(t: Tensor, y: Tensor) -> Tensor:
        return torch.tanh(y @ doubled) if t > 0.5 else -y

    def late_in_container(t: Tensor, y: Tensor) -> Tensor:
        return torch.tanh(y @ holder["weights"][0]) if t > 0.5 else -y

    def late_module(t: Tensor, y: Tensor) -> Tensor:
        return torch.tanh(module(y)) if t > 0.5 else -y

    def late_object(t: Tensor, y: Tensor) -> Tensor:
        return calling(t, y) if t > 0.5 else -y

    def with_keyword(t: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return torch.tanh(y @ w)

    return {
        "leaf": lambda t, y: torch.tanh(y @ weight),
        "derived": lambda t, y: torch.tanh(y @ doubled),
        "container": lambda t, y: torch.tanh(y @ holder["weights"][0]),
        "late": late,
        "late_derived": late_derived,
        "late_in_container": late_in_container,
        "late_module": late_module,
        "module": Module(),
        "method": Module().another,
        "module_in_closure": lambda t, y: module(y),
        "partial": functools.partial(with_keyword, w=weight),
        "object": Calling(weight),
        "holder": Holder(weight),
        "holder_derived": Holder(doubled),
        "late_object": late_object,
        "global": ReadsGlobal(),
        "late_global": ReadsGlobal(start=0.5),
        "applied_function": Applies(lambda t, y: torch.tanh(y @ weight)),
        "applied_late_function": Applies(late),
        "applied_object": Applies(calling),
    }


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint", "checkpoint_adjoint"])
@pytest.mark.parametrize("name", list(closures(torch.zeros(2, 2))))
def test_field_keeps_its_parameters_however_it_holds_them(name: str, gradient: str):
    weight = torch.randn(2, 2, requires_grad=True)
    f = closures(weight)[name]
    leaves = [weight]
    if "module" in name or name == "method":
        inner = f.__self__ if name == "method" else f
        leaves = (
            list(inner.parameters())
            if isinstance(inner, nn.Module)
            else [
                next(
                    cell.cell_contents
                    for cell in f.__closure__
                    if isinstance(cell.cell_contents, nn.Module)
                ).weight
            ]
        )
    y0 = torch.randn(2, requires_grad=True)
    pulled = []
    for method in ("backprop", gradient):
        # A jump of the field in time is met at the end of a step.
        solution = gd.solve(f, y0, [0.0, 1.0], solver="rk4", num_steps=40, gradient=method)
        loss = solution.states[-1].sum()
        pulled.append(torch.autograd.grad(loss, (y0, *leaves), retain_graph=True))
    assert pulled[0][1].abs().max() > 1e-3
    tolerance = 1e-12 if gradient == "checkpoint" else 0.05
    torch.testing.assert_close(pulled[1], pulled[0], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint", "checkpoint_adjoint"])
@pytest.mark.parametrize("name", ["SecondOrder", "Augmented"])
def test_function_inside_a_field_of_ours_keeps_its_gradients(name: str, gradient: str):
    weight = torch.tensor(1.3, requires_grad=True)
    if name == "SecondOrder":
        field = gd.SecondOrder(lambda t, h, graph: -weight * h[..., :1])
    else:
        field = gd.Augmented(lambda t, h, graph: -weight * h, extra_channels=1)
    pulled = []
    for method in ("backprop", gradient):
        flow = gd.Flow(field, solver="rk4", num_steps=20, gradient=method)
        pulled.append(torch.autograd.grad(flow(torch.ones(3, 2)).square().sum(), weight))
    tolerance = 1e-12 if gradient == "checkpoint" else 1e-4
    torch.testing.assert_close(pulled[1], pulled[0], rtol=tolerance, atol=tolerance)


class Asks(nn.Module):
    """A field of which a library is a part."""

    def forward(self, t: Tensor, h: Tensor, graph: object = None) -> Tensor:
        return -h if t == pytest.approx(0.0) or tempfile.gettempdir() else h


@pytest.mark.parametrize("name", ["named", "PyG's"])
def test_search_for_tensors_does_not_wander_through_libraries(name: str):
    """It is made before every solve, and what is in their sources is no part of a field."""
    field = Asks() if name == "named" else gd.ConvField(GCNConv(2, 2))
    assert len(_reached_from(field)) < 30


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint"])
def test_evaluation_that_looks_for_tensors_is_not_counted(gradient: str):
    weight = torch.tensor(1.0, requires_grad=True)
    solution = gd.solve(
        Applies(lambda t, y: -weight * y), torch.ones(1), [0.0, 1.0],
        solver="rk4", num_steps=3, gradient=gradient,
    )  # fmt: skip
    assert solution.stats.field_calls == int(solution.stats.evaluations) == 12


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint", "checkpoint_adjoint"])
def test_frozen_field_is_solved_for_a_head_that_learns(gradient: str):
    """Where nothing in front of the head wants a gradient, there is none to compute."""
    field, head = nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 1)
    states = []
    for method in ("backprop", gradient):
        flow = gd.Flow(lambda t, h, graph: field(h), gradient=method)
        states.append(flow(torch.ones(3, 2)))
    torch.testing.assert_close(*states, rtol=1e-12, atol=0)
    assert not states[1].requires_grad
    head(states[1]).sum().backward()
    assert head.weight.grad is not None


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_parameter_passed_as_an_argument_to_its_own_module_is_counted_once(gradient: str):
    """y′ = (w + w) y: dy/dw = 2 t y."""

    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor(0.3))

        def forward(self, t: Tensor, y: Tensor, weight: Tensor) -> Tensor:
            return (self.weight + weight) * y

    module = Field()
    solution = gd.solve(
        module, torch.ones(1), [0.0, 1.0], (module.weight,), gradient=gradient, **TIGHT
    )
    (found,) = torch.autograd.grad(solution.states[-1].sum(), module.weight)
    assert found.item() == pytest.approx(2 * math.exp(0.6), abs=1e-7)


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("order", ["argument first", "closure first"])
def test_argument_and_field_may_be_computed_from_each_other(order: str, gradient: str):
    """y′ = −a b y with b = eᵃ and a = 2 w, one of them an argument: dy/dw = −2 (b + a b) y."""
    w = torch.tensor(0.3, requires_grad=True)
    a = 2 * w
    b = a.exp()
    if order == "argument first":
        solution = gd.solve(
            lambda t, y, a: -a * b * y, torch.ones(1), [0.0, 1.0], (a,), gradient=gradient, **TIGHT
        )
    else:
        solution = gd.solve(
            lambda t, y, b: -a * b * y, torch.ones(1), [0.0, 1.0], (b,), gradient=gradient, **TIGHT
        )
    (found,) = torch.autograd.grad(solution.states[-1].sum(), w)
    expected = -2 * (b + a * b) * torch.exp(-a * b)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_tensors_lent_to_a_field_for_one_call_receive_their_gradients(gradient: str):
    """The backward pass, which evaluates the field again, comes when they have been taken back."""
    flow = gd.Flow(gd.GraphConvField([2, 2]), gradient=gradient, **TIGHT)
    graph = gd.Graph([[0, 1, 2], [1, 2, 0]], num_nodes=3).normalize("sym")
    lent = {name: torch.randn_like(p).requires_grad_() for name, p in flow.named_parameters()}
    h = torch.randn(3, 2)
    found = torch.func.functional_call(flow, lent, (h, graph)).square().sum()
    held = [parameter.detach().clone() for parameter in flow.parameters()]
    pulled = torch.autograd.grad(found, list(lent.values()))
    torch.testing.assert_close([p.detach() for p in flow.parameters()], held, rtol=0, atol=0)
    flow.load_state_dict(lent)
    by_hand = gd.Flow(flow.field, **TIGHT)(h, graph).square().sum()
    expected = torch.autograd.grad(by_hand, list(flow.parameters()))
    torch.testing.assert_close(pulled, expected, rtol=1e-6, atol=1e-8)
