"""A shortened program does less, and what it does is the same bit for bit."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from graphode.experiments.shortened import shorten


def calls(program):
    return [node for node in program.graph.nodes if node.op.startswith("call")]


def shortened(function, *inputs):
    """The program of a function, having said what the function says."""
    program = shorten(make_fx(function)(*inputs))
    others = [torch.randn_like(x) if x.is_floating_point() else x + 1 for x in inputs]
    assert torch.equal(program(*others), function(*others))
    return program


def test_constants_are_made_once():
    program = shortened(lambda x: x + (1 + torch.eye(3)).sqrt(), torch.zeros(3, 3))
    assert len(calls(program)) == 1


def test_views_of_views_are_one_view():
    def function(x):
        return x.view(6).view(3, 2).unsqueeze(0).detach().view(2, 3).view(6) * 2

    assert len(calls(shortened(function, torch.zeros(2, 3)))) == 2


def test_a_view_that_comes_back_to_the_shape_is_none():
    program = shortened(lambda x: x.view(6).view(2, 3).expand(2, 3) * 2, torch.zeros(2, 3))
    assert len(calls(program)) == 1


def test_what_goes_number_by_number_is_done_before_a_view():
    def function(x, bias):
        flat = x.view(2, 1, 6) + bias.view(2, 1, 1)
        return torch.tanh(flat).view(2, 6) * 2

    program = shortened(function, torch.zeros(2, 6), torch.zeros(2))
    assert [node.name.split("_")[0] for node in calls(program)] == ["view", "add", "tanh", "mul"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, row: x.view(2, 3, 4) * row.view(2, 1, 4),
        lambda x, row: x.view(3, 8) + row,
        lambda x, row: row.view(1, 8) - x.view(3, 1, 8),
        lambda x, row: (x.view(24) * row.double().sum()).view(4, 6),
        lambda x, row: x.mT.reshape(24) * row[:1],
        lambda x, row: torch.where(x.view(3, 8) > row, x.view(3, 8), row.view(1, 8)).view(6, 4),
    ],
    ids=["inside", "rows", "before", "number", "copied", "chosen"],
)
def test_operands_of_other_shapes_meet_the_same_numbers(function):
    shortened(function, torch.zeros(3, 8), torch.zeros(8))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.mT.unsqueeze(0).squeeze(0) + 1,
        lambda x: x[:, ::2].unsqueeze(1).expand(4, 3, 2).sum(1),
        lambda x: x.mT.detach().reshape(-1).view(2, 8),
        lambda x: x[:, :1].expand(4, 4).unsqueeze(0).sum((0, 1)),
    ],
    ids=["transposed", "expanded", "copied", "repeated"],
)
def test_tensors_with_gaps_keep_their_numbers(function):
    shortened(function, torch.zeros(4, 4))


def test_what_is_done_twice_is_done_once():
    program = shortened(lambda x: torch.cat([x.exp() + 1, x.exp() + 1]), torch.zeros(3))
    assert len(calls(program)) == 3


def test_numbers_that_are_equal_but_not_alike_are_told_apart():
    def function(x):
        return torch.cat([(x * 2).float() / 3, (x * 2.0) / 3 + 1])

    shortened(function, torch.arange(3))


def test_what_nobody_reads_is_not_computed():
    def function(x):
        x.exp()
        return x + 1

    assert len(calls(shortened(function, torch.zeros(3)))) == 1


def test_a_program_that_works_in_place_stays_as_it_is():
    def function(x):
        total = torch.zeros(3)
        total.add_(x)
        first = total + 1
        total.add_(x)
        return first + (total + 1)

    shortened(function, torch.zeros(3))


def test_every_draw_is_drawn():
    program = shorten(make_fx(lambda: torch.rand(3) - torch.rand(3))())
    assert (program() != 0).all()
    assert not torch.equal(program(), program())
