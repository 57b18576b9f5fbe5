"""Results take the memory of what nobody reads again, and the numbers are the same bit for bit."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from graphode.experiments.direct_calls import call_directly
from graphode.experiments.reused_memory import reuse_memory
from graphode.experiments.shortened import shorten


def writes(program):
    """How many operations write into memory they are given."""
    return sum("out" in n.kwargs or "grad_input" in n.kwargs for n in program.graph.nodes)


def reused(function, *inputs):
    """The program of a function, having said twice what the function says, inputs untouched."""
    program = call_directly(reuse_memory(shorten(make_fx(function)(*inputs))))
    others = [torch.randn_like(x) for x in inputs]
    kept = [x.clone() for x in others]
    for _ in range(2):
        found, expected = program(*others), function(*others)
        pairs = (
            zip(found, expected, strict=True) if isinstance(found, list) else [(found, expected)]
        )
        assert all(torch.equal(a, b) for a, b in pairs)
    assert all(torch.equal(a, b) for a, b in zip(others, kept, strict=True))
    return program


def test_a_chain_of_results_is_one_tensor():
    program = reused(lambda x, w, b: ((x @ w + b).exp() * 2).neg(), *matrices(3))
    assert writes(program) == 4


def test_either_operand_gives_its_memory():
    assert writes(reused(lambda x, w: torch.add(x, x @ w, alpha=0.5), *matrices(2))) == 1


def test_backward_operations_write_too():
    def function(x, w):
        return torch.ops.aten.sigmoid_backward(x @ w, x)

    assert writes(reused(function, *matrices(2))) == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: x + 1,
        lambda x, w: [product := x @ w, product + 1],
        lambda x, w: [(product := x @ w).view(9), product + 1],
        lambda x, w: ((product := x @ w) + 1) @ product,
        lambda x, w: ((product := x @ w) + 1) @ product.mT,
        lambda x, w: (product := x @ w) + product.mT,
        lambda x, w: (x @ w)[:1] + x,
        lambda x, w: (x @ w) > 0,
        lambda x, w: (x @ w).mT + 1.0,
    ],
    ids=[
        "an input",
        "returned",
        "returned by a view",
        "read later",
        "read later by a view",
        "read by two views",
        "broadcast",
        "another type",
        "transposed",
    ],
)
def test_what_is_read_again_or_does_not_fit_stays(function):
    assert writes(reused(function, *matrices(2))) == 0


def test_constants_stay():
    program = reused(lambda x: (torch.eye(3) * 2) + x, torch.zeros(3, 3))
    assert writes(program) == 0


def test_memory_given_on_is_watched_to_the_end():
    def function(x, w):
        first = (x @ w) + 1
        second = first.view(9) * 2  # takes the memory of `first`
        third = second.view(3, 3)
        return third.neg() @ third

    assert writes(reused(function, *matrices(2))) == 2


def test_a_program_that_works_in_place_stays_as_it_is():
    def function(x):
        total = torch.zeros(3)
        total.add_(x)
        return (total + 1) * 2

    program = reuse_memory(make_fx(function)(torch.zeros(3)))
    assert writes(program) == 0


def matrices(count):
    return [torch.zeros(3, 3) for _ in range(count)]
