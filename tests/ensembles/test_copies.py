"""Members share nothing, whatever leads to their parts."""

import collections
import functools

import pytest
import torch
from torch import nn

import graphode as gd
from graphode.data import karate_club
from tests.ensembles.test_ensemble import SEEDS, assert_same


class Nested(nn.Module):
    """tanh(W h) − h, whose field leads to W in one of many ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.net = nn.Linear(4, 4)
        self.flow = gd.Flow(getattr(self, way)(), solver="rk4", num_steps=2)

    def forward(self, h, graph):
        return self.flow(h, graph)

    def inner_function(self):
        def velocity(h):
            return torch.tanh(self.net(h)) - h

        return lambda t, h, graph: velocity(h)

    def function_in_a_list(self):
        functions = [lambda h: torch.tanh(self.net(h)) - h]
        return lambda t, h, graph: functions[0](h)

    def function_in_an_attribute(self):
        self.functions = {"velocity": lambda h: torch.tanh(self.net(h)) - h}
        return lambda t, h, graph: self.functions["velocity"](h)

    def default(self):
        return lambda t, h, graph, net=self.net: torch.tanh(net(h)) - h

    def partial(self):
        return functools.partial(lambda net, t, h, graph: torch.tanh(net(h)) - h, self.net)

    def parts_in_a_tuple(self):
        parts = (self.net, torch.tanh)
        return lambda t, h, graph: parts[1](parts[0](h)) - h

    def recursion(self):
        def deeper(h, times):
            return torch.tanh(self.net(h)) - h if times == 0 else deeper(h, times - 1)

        return lambda t, h, graph: deeper(h, 2)


WAYS = [name for name, way in vars(Nested).items() if callable(way) and name[0] != "_"]


@pytest.mark.filterwarnings("ignore:The 3 members differ")
@pytest.mark.parametrize("way", [way for way in WAYS if way != "forward"])
def test_members_are_their_own_through_whatever_functions_lead_to_them(way):
    h, graph = torch.randn(34, 4), karate_club()
    build = lambda seed: Nested(way)  # noqa: E731
    ensemble = gd.Ensemble(build, SEEDS)
    assert_same(ensemble, build, lambda model: model(h, graph))
    gradients = torch.autograd.grad(ensemble(h, graph).sum(), list(ensemble.parameters()))
    assert all(bool((g != 0).flatten(1).any(1).all()) for g in gradients)


@pytest.mark.filterwarnings("ignore:The 3 members differ")
def test_a_parameter_that_a_function_closes_over_is_warned_of():
    class Closes(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = weight = nn.Parameter(torch.randn(4, 4))
            self.velocity = lambda h: h @ weight

        def forward(self, h):
            return self.velocity(h)

    with pytest.warns(UserWarning, match="'weight' in its attribute 'velocity' too"):
        gd.Ensemble(lambda seed: Closes(), SEEDS)


def test_arguments_in_dictionaries_and_named_tuples_are_each_members_own():
    class Sums(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, both):
            first, second = both.values() if isinstance(both, dict) else both
            return self.scale * (first + second)

    Both = collections.namedtuple("Both", ["first", "second"])
    first, second = torch.randn(2, 3, 4)
    ensemble = gd.Ensemble(lambda seed: Sums(), SEEDS)
    for both in (
        {"first": first, "second": second},
        collections.OrderedDict(first=first, second=second),
        Both(first, second),
        [first, second],
    ):
        torch.testing.assert_close(ensemble(both, per_member=True), first + second)
