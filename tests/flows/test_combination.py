"""Sums of stages that hand their terms on have the gradients of the plain formula."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import graphode as gd
from graphode.flows import kernels
from graphode.flows.combination import combined
from graphode.flows.evaluation import Evaluation
from graphode.flows.layout import Layout
from graphode.flows.runge_kutta import RungeKutta
from graphode.flows.tableaus import DOPRI5, MIDPOINT, RK4_38
from tests.kernels import DEVICE, needs_triton

pytestmark = [needs_triton, pytest.mark.usefixtures("without_type_checks")]
on_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="no GPU here")

SHAPE = (3, 35, 11)  # 385 entries a sample, 1155 in all: blocks of the kernel are not full
TABLEAUS = {"dopri5": DOPRI5, "rk4_38": RK4_38, "midpoint": MIDPOINT}


@pytest.fixture(autouse=True)
def float32():
    """What the kernel serves."""
    torch.set_default_dtype(torch.float32)


def plainly(y, weights, terms, scale):
    """The formula, by operations that autograd knows."""
    total = sum(weight * term for weight, term in zip(weights, terms, strict=True))
    return y + (total if scale is None else scale * total), y, *terms


def tensors(count: int) -> list[Tensor]:
    return [torch.randn(SHAPE, device=DEVICE, requires_grad=True) for _ in range(count)]


def sizes(per_sample: bool) -> Tensor | None:
    return torch.tensor([0.5, 0.0, -2.0], device=DEVICE)[:, None, None] if per_sample else None


def chain(combine, y: Tensor, terms: list[Tensor], scale: Tensor | None) -> list[Tensor]:
    """Three sums, each of what the one before has handed on; then all that is left over."""
    a, b, c, d = terms
    first, y, a, b = combine(y, [0.3, -1.2], [a, b], scale)
    second, y, a, c = combine(y, [2.0, 0.7], [a, c], scale)
    third, y, a, b, d = combine(y, [-0.4, 0.9, 1.1], [a, b, d], scale)
    return [first, second, third, y, a, b, c, d]


def value(found: list[Tensor], used: tuple[int, ...]) -> Tensor:
    return torch.stack([(found[i] * (i + 1)).sin().sum() for i in used]).sum()


def assert_near(found, expected, tolerance=1e-5):
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert (a.cpu() - b.cpu()).norm() <= tolerance * b.norm() + 1e-6


USES = {
    "all": tuple(range(8)),
    "sums only": (0, 1, 2),
    "last sum only": (2,),
    "first sum only": (0,),
    "a sum that nobody needs": (0, 2, 3, 6),
    "no sum": (3, 4, 5, 6, 7),
    "one term": (4,),
    "some of each": (1, 3, 5),
}


@pytest.mark.parametrize("per_sample", [False, True])
@pytest.mark.parametrize("use", USES)
def test_a_chain_of_sums_has_the_gradients_of_its_formula(use, per_sample):
    inputs, scale = tensors(5), sizes(per_sample)
    results = []
    for combine in (combined, plainly):
        found = chain(combine, inputs[0], inputs[1:], scale)
        loss = value(found, USES[use])
        gradients = torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)
        results.append([*found, *gradients])
    assert_near(*results)


@pytest.mark.parametrize("per_sample", [False, True])
@pytest.mark.parametrize("use", ["all", "sums only", "a sum that nobody needs"])
def test_second_derivatives_are_those_of_the_formula(use, per_sample):
    inputs, scale = tensors(5), sizes(per_sample)
    results = []
    for combine in (combined, plainly):
        loss = value(chain(combine, inputs[0], inputs[1:], scale), USES[use])
        first = torch.autograd.grad(loss, inputs, create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), inputs)
        results.append([*first, *second])
    assert_near(*results)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7])
def test_sums_of_any_length_are_served(count):
    y, *terms = tensors(1 + count)
    weights = [0.5 - j for j in range(count)]
    results = []
    for combine in (combined, plainly):
        total, *handed_on = combine(y, weights, terms, None)
        loss = value([total, *handed_on], tuple(range(2 + count)))
        results.append([total, *torch.autograd.grad(loss, [y, *terms])])
    assert_near(*results)


def test_what_is_handed_on_is_the_tensor_itself():
    y, *terms = tensors(3)
    for x, handed in zip((y, *terms), combined(y, [1.0, 2.0], terms, None)[1:], strict=True):
        assert handed.data_ptr() == x.data_ptr()
        assert handed.requires_grad
    with torch.no_grad():
        total, *handed_on = combined(y, [1.0, 2.0], terms, None)
    assert not total.requires_grad
    assert all(a is b for a, b in zip(handed_on, (y, *terms), strict=True))


def test_what_wants_no_gradient_still_wants_none():
    y, a, b = tensors(3)
    y, b = y.detach(), b.detach()
    total, handed_y, handed_a, handed_b = combined(y, [1.0, 2.0], [a, b], None)
    assert (handed_y.requires_grad, handed_b.requires_grad) == (False, False)
    total = combined(handed_y, [3.0, 1.0, 1.0], [handed_a, handed_b, total], None)[0]
    assert_near(torch.autograd.grad(total.sum(), [a]), [torch.full_like(a, 4.0)])


def test_a_term_may_be_the_state_itself():
    """As with dy/dt = y, written `lambda t, y: y`."""
    (y,) = tensors(1)
    total, handed_y, term = combined(y, [0.5], [y], None)
    total = combined(handed_y, [2.0, 1.0], [term, total], None)[0]
    assert_near(torch.autograd.grad(total.sum(), [y]), [torch.full_like(y, 4.5)])


def test_gradients_in_any_layout_are_taken_and_left_as_they_are():
    inputs = tensors(3)
    found = combined(inputs[0], [0.5, -1.0], inputs[1:], None)
    wide = torch.randn(*SHAPE[:2], 2 * SHAPE[2], device=DEVICE)
    given = [wide[..., ::2], torch.ones((), device=DEVICE).expand(SHAPE), wide[..., 1::2], None]
    before = [None if g is None else g.clone() for g in given]
    outputs = [x for x, g in zip(found, given, strict=True) if g is not None]
    some = [g for g in given if g is not None]
    gradients = torch.autograd.grad(outputs, inputs, some, retain_graph=True)
    expected = [before[0] + before[1], 0.5 * before[0] + before[2], -before[0]]
    assert_near(gradients, expected)
    gradients[0].add_(1.0)
    assert_near(torch.autograd.grad(outputs, inputs, some), expected)
    assert_near(given, before, tolerance=0)


class Additions(TorchDispatchMode):
    """Counts additions of whole states."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        self.count += name in ("add", "add_") and args[0].shape == SHAPE
        return func(*args, **(kwargs or {}))


def test_autograd_has_nothing_to_add_along_a_chain():
    inputs, counts = tensors(5), []
    for combine in (combined, plainly):
        found = chain(combine, inputs[0], inputs[1:], None)[:3]
        gradients = [torch.ones_like(x) for x in found]
        with Additions() as additions:
            torch.autograd.grad(found, inputs, gradients)
        counts.append(additions.count)
    # Plainly, y and the first term have three gradients each, the second has two.
    assert counts == [0, 5]


class Field(nn.Module):
    """tanh((1 + t) y W), the stages of which all differ."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(SHAPE[-1], SHAPE[-1]) / 3)

    def forward(self, t, y, graph=None):
        return torch.tanh((1 + t) * y @ self.weight)


@pytest.mark.parametrize("per_sample", [False, True])
@pytest.mark.parametrize("solver", TABLEAUS)
def test_two_steps_have_the_gradients_of_plain_ones(solver, per_sample, monkeypatch):
    """With what a solve takes from a step: its end, its inside, and the next step's start."""
    method, field = RungeKutta(TABLEAUS[solver]), Field().to(DEVICE)
    y = torch.randn(SHAPE, device=DEVICE, requires_grad=True)
    dt = torch.tensor([0.3, 0.0, 0.5], device=DEVICE, dtype=torch.float64) if per_sample else 0.4
    theta = torch.tensor([[0.2, 0.5, 0.9], [1.0, 1.0, 1.0]], device=DEVICE, dtype=torch.float64)
    calls = []

    def counted(*args):
        calls.append(args)
        return combined(*args)

    def run() -> list[Tensor]:
        f = Evaluation(field, (), Layout.of(y, 1))
        first = method.step(f, 0.0, y, dt, method.start(f, 0.0, y))
        second = method.step(f, 0.4, first.y1, dt, first.carry)
        loss = second.y1.sin().sum()
        for step in (first, second):
            loss = loss + method.interpolate(f, step, theta).square().sum()
        first_order = torch.autograd.grad(loss, [y, *field.parameters()], create_graph=True)
        total = sum(g.square().sum() for g in first_order)
        kept = torch.autograd.grad(loss, [y, *field.parameters()], retain_graph=True)
        return [second.y1, *kept, *torch.autograd.grad(total, [y, *field.parameters()])]

    monkeypatch.setattr(kernels, "DEVICES", set())
    plain = run()
    monkeypatch.setattr(kernels, "DEVICES", {DEVICE})
    monkeypatch.setattr("graphode.flows.evaluation.combined", counted)
    # What the solver asks before it looks for a kernel; the interpreter's tensors say no.
    monkeypatch.setattr(Tensor, "is_cuda", True, raising=False)
    fused = run()
    assert len(calls) == 2 * (len(method.tableau.c) - method.tableau.first_same_as_last)
    assert_near(fused, plain, tolerance=1e-4)


SOLVES = {
    "dopri5": {"solver": "dopri5", "rtol": 1e-4, "atol": 1e-5},
    "dopri5 with fixed steps": {"solver": "dopri5", "num_steps": 3},
    "rk4_38": {"solver": "rk4_38", "num_steps": 3},
    "midpoint": {"solver": "midpoint", "num_steps": 3},
}


def solved(field, y, t1, options, order: int) -> list[Tensor]:
    times = torch.tensor([0.0, 0.3, 1.0], dtype=torch.float64)
    times = times if t1 is None else times * t1[:, None]
    batch_dims = 0 if t1 is None else 1
    states = gd.solve(field, y, times.to(y.device), batch_dims=batch_dims, **options).states
    gradients = torch.autograd.grad(
        states.sin().sum(), [y, *field.parameters()], create_graph=order == 2
    )
    if order == 1:
        return [states, *gradients]
    total = sum(g.square().sum() for g in gradients)
    return [states, *torch.autograd.grad(total, [y, *field.parameters()])]


@on_gpu
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("per_sample", [False, True])
@pytest.mark.parametrize("name", SOLVES)
def test_a_solve_on_a_gpu_has_the_gradients_of_a_cpu(name, per_sample, order):
    field = Field()
    y = torch.randn(SHAPE, requires_grad=True)
    t1 = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64) if per_sample else None
    expected = solved(field, y, t1, SOLVES[name], order)
    field, y = field.to(DEVICE), y.detach().to(DEVICE).requires_grad_()
    found = solved(field, y, t1, SOLVES[name], order)
    assert_near(found, expected, tolerance=1e-4)


@on_gpu
@pytest.mark.parametrize("name", SOLVES)
def test_a_captured_flow_has_the_same_gradients(name):
    field = Field().to(DEVICE)
    flow = gd.Flow(field, **SOLVES[name])
    flow.recorded_attempts = 20
    y = torch.randn(SHAPE, device=DEVICE, requires_grad=True)
    inputs = [y, *field.parameters()]
    found = [torch.zeros_like(x) for x in inputs]

    def step() -> None:
        gradients = torch.autograd.grad(flow(y, t1=1.0).sin().sum(), inputs)
        for kept, gradient in zip(found, gradients, strict=True):
            kept.copy_(gradient)

    step()
    expected = [x.clone() for x in found]
    program = gd.capture(step, DEVICE)
    for _ in range(5):  # recorded at the fourth
        for x in found:
            x.zero_()
        program()
        assert_near(found, expected)
