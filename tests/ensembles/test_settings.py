"""Members may differ in their settings, shown or not; those that do not are one program."""

import functools
import threading
import warnings

import pytest
import torch
from torch import nn

import graphode as gd
from graphode.ensembles.likeness import differing_settings
from graphode.ensembles.members import Members
from tests.ensembles.test_ensemble import (
    CLASSES,
    FEATURES,
    MODELS_IN_TIME,
    SEEDS,
    STATIC,
    WIDTH,
    alone,
    assert_same,
    problem,
)
from tests.fields.registry import CASES, CHANNELS, weighted_graph
from tests.hybrid.loops import random_graph

ACTIVATIONS = {3: "tanh", 11: "relu", 2**40 + 5: "sin"}


class Scaled(nn.Module):
    """A user's field, with a setting that its `repr` does not show."""

    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.linear = nn.Linear(FEATURES, FEATURES)

    def forward(self, t, h, graph):
        return self.scale * torch.tanh(self.linear(h))


def flowing(field, t1=1.0, **options):
    return gd.GDE(flow=gd.Flow(field, **options), readout=nn.Linear(FEATURES, 2), t1=t1)


def conv(**options):
    return gd.GraphConvField([FEATURES, FEATURES], **options)


def decay(t, h, graph, rate):
    return -rate * h


def decay_at(rate):
    def field(t, h, graph, rate=rate):
        return -rate * h

    return field


def share(seed):
    """Another number for each seed."""
    return 0.1 * (1 + SEEDS.index(seed))


VARIED = {
    "activation": lambda s: flowing(
        gd.GraphConvField([FEATURES, 4, FEATURES], activation=ACTIVATIONS[s])
    ),
    "final_activation": lambda s: flowing(conv(final_activation=ACTIVATIONS[s])),
    "negative_slope": lambda s: flowing(gd.AttentionField(FEATURES, negative_slope=share(s))),
    "dropout": lambda s: flowing(conv(dropout=share(s))),
    "input_dropout": lambda s: gd.GCN(FEATURES, WIDTH, CLASSES, input_dropout=share(s)),
    "alpha": lambda s: flowing(gd.PageRankField(FEATURES, share(s))),
    "how": lambda s: flowing(
        gd.Controlled(conv(), FEATURES, how="add" if s == SEEDS[1] else "source")
    ),
    "rtol of what is packed": lambda s: flowing(
        gd.Augmented(gd.GraphConvField([FEATURES + 1] * 2), 1), rtol=1e-3 * share(s)
    ),
    "width of what is packed": lambda s: flowing(
        gd.Augmented(lambda t, h, graph: h.mean(-1, keepdim=True) - h, 1 + SEEDS.index(s))
    ),
    "num_steps": lambda s: flowing(conv(), solver="heun", num_steps=1 + SEEDS.index(s)),
    "t1": lambda s: flowing(conv(), t1=share(s)),
    "t1, a tensor": lambda s: flowing(conv(), t1=torch.tensor(share(s))),
    "field that closes over it": lambda s: flowing(lambda t, h, graph: -share(s) * h),
    "default of a field": lambda s: flowing(decay_at(share(s))),
    "partial field": lambda s: flowing(functools.partial(decay, rate=share(s))),
    "readout that closes over it": lambda s: gd.GDE(
        flow=gd.Flow(conv()), readout=lambda h, graph: share(s) * h
    ),
    "attribute": lambda s: flowing(Scaled(share(s))),
    "part without parameters": lambda s: gd.GDE(
        encoder=nn.Sequential(nn.Linear(FEATURES, 2), *[nn.Tanh()] * SEEDS.index(s)),
        flow=gd.Flow(gd.GraphConvField([2, 2])),
    ),
}


@pytest.mark.parametrize("name", VARIED)
def test_members_keep_their_own_settings(name):
    x, graph = problem()
    build = VARIED[name]
    with pytest.warns(UserWarning, match="3 members differ in .*: the same results, slower"):
        ensemble = gd.Ensemble(build, SEEDS)
    assert_same(ensemble, build, lambda model: model(x, graph), tolerance=1e-11)
    for index, seed in enumerate(SEEDS):
        with gd.stochastic(seed, 7):
            taken_out, lone = ensemble.member(index)(x, graph), alone(build, seed)(x, graph)
        torch.testing.assert_close(taken_out, lone)


@pytest.mark.parametrize("differs", [False, True])
def test_what_is_set_on_an_ensemble_is_set_for_every_member(differs: bool):
    """… such as a rate of dropout that falls as training goes on."""
    x, _ = problem()

    def build(seed):
        rate = share(seed) if differs else 1.0
        return nn.Sequential(nn.Linear(FEATURES, 4), gd.Dropout(0.8), nn.Softplus(1 + rate))

    def annealed(model, rate):
        for part in model.modules():
            if isinstance(part, gd.Dropout):
                part.rate = rate
        return model

    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if differs else "error")
        ensemble = gd.Ensemble(build, SEEDS)
    for rate in (0.8, 0.3, 0.8):
        for index, seed in enumerate(SEEDS):
            with gd.stochastic(ensemble.seeds, 7):
                together = annealed(ensemble, rate)(x)
            with gd.stochastic(seed, 7):
                lone = annealed(alone(build, seed), rate)(x)
            torch.testing.assert_close(together[index], lone)


@pytest.mark.parametrize("setting", ["activation", "causal"])
def test_members_of_a_hybrid_system_keep_their_own_settings(setting):
    times = (0.1 + torch.rand(2, 4)).cumsum(-1)
    x, queries = torch.randn(2, 4, 5, 3), times[:, -1:] + 0.5
    graphs = [random_graph(5, seed=step) for step in range(4)]

    def build(seed):
        options = {"activation": {"activation": ACTIVATIONS[seed]}, "causal": {}}[setting]
        causal = setting != "causal" or seed == SEEDS[0]
        jump = gd.GraphRNNCell(3, 4, **options)
        return gd.HybridSystem(flow=gd.Flow(gd.GraphConvField([4, 4])), jump=jump, causal=causal)

    with pytest.warns(UserWarning, match=f"members differ in '(jump.)?{setting}'"):
        ensemble = gd.Ensemble(build, SEEDS)
    assert_same(ensemble, build, lambda model: model(x, times, graphs, queries), tolerance=1e-11)
    last = ensemble.member(2)(x, times, graphs, queries)
    torch.testing.assert_close(last, alone(build, SEEDS[2])(x, times, graphs, queries))


def assert_one_program(build, call, monkeypatch):
    """Neither at construction nor at a call is anything said or evaluated one by one."""

    def refuse(*_):
        raise AssertionError("members were evaluated one by one")

    monkeypatch.setattr(Members, "_one_by_one", refuse)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        ensemble = gd.Ensemble(build, SEEDS)
        call(ensemble)
    assert any(isinstance(part, Members) for part in ensemble.modules())


@pytest.mark.parametrize("name", STATIC)
def test_models_of_equal_settings_are_one_program(name, monkeypatch):
    x, graph = problem()
    assert_one_program(STATIC[name], lambda model: model(x, graph), monkeypatch)


# Which neighbours are best differs between members of the sparse adaptive field.
@pytest.mark.parametrize("name", sorted(CASES.keys() - {"Adaptive-sparse"}))
def test_fields_of_equal_settings_are_one_program(name, monkeypatch):
    case = CASES[name]
    graph = case.prepare(weighted_graph())
    h = torch.randn(graph.num_nodes, CHANNELS)

    def build(seed):
        return gd.GDE(flow=gd.Flow(case.build(), solver="euler", num_steps=1))

    assert_one_program(build, lambda model: model(h, graph), monkeypatch)


@pytest.mark.parametrize("name", [*MODELS_IN_TIME, "GCDE-RNN", "FlatGRU"])
def test_models_in_time_of_equal_settings_are_one_program(name, monkeypatch):
    times = (0.1 + torch.rand(2, 4)).cumsum(-1)
    x, queries, graph = torch.randn(2, 4, 5, 3), times[:, -1:] + 0.5, random_graph(5)
    make = {
        **MODELS_IN_TIME,
        "GCDE-RNN": gd.GCDERNN,
        "FlatGRU": lambda *widths: gd.FlatGRU(5, *widths),
    }[name]
    assert_one_program(
        lambda seed: make(3, 6), lambda model: model(x, times, graph, queries), monkeypatch
    )


class Helpers(nn.Module):
    """Holds much that is each member's own and makes no difference."""

    def __init__(self):
        super().__init__()
        slope = 0.5
        self.linear = nn.Linear(FEATURES, 2)
        self.bend = lambda h: torch.where(h > 0, h, slope * h)
        self.own = self.bent
        self.parts = [self.linear, {"nested": (1.0, float("nan"))}]
        self.parts.append(self.parts)
        self.dropout = gd.Dropout(0.5)
        self.handle = self.linear.register_forward_hook(lambda module, args, out: slope * out)

    def bent(self, h):
        return self.bend(self.parts[0](h))

    def forward(self, x):
        return self.own(self.dropout(x))


def class_of_its_own(seed):
    class Local(nn.Linear):
        def forward(self, x):
            return torch.tanh(super().forward(x))

    return Local(FEATURES, 2)


@pytest.mark.parametrize(
    "build",
    [
        lambda seed: Helpers(),
        class_of_its_own,
        lambda seed: nn.utils.parametrizations.orthogonal(nn.Linear(FEATURES, 2)),
    ],
    ids=["helpers", "local class", "parametrised"],
)
def test_what_each_member_has_of_its_own_need_not_tell_them_apart(build, monkeypatch):
    x, _ = problem()
    with monkeypatch.context() as patched:
        assert_one_program(build, lambda model: model(x), patched)
    assert_same(gd.Ensemble(build, SEEDS), build, lambda model: model(x), tolerance=1e-9)


def test_what_cannot_be_compared_is_taken_to_differ():
    class Guarded(nn.Linear):
        def __init__(self):
            super().__init__(2, 2)
            self.lock = threading.Lock()

    one, two = nn.Sequential(Guarded()), nn.Sequential(Guarded())
    assert differing_settings(one, two) == {"0": "lock"}
    two[0].lock = one[0].lock
    assert differing_settings(one, two) == {}


class BoundToItself(nn.Module):
    """A user's module that composes its parts, by a method that it holds."""

    members_first = True

    def __init__(self):
        super().__init__()
        self.flow = gd.Flow(conv())
        self.compose = self.composed

    def composed(self, x, graph):
        return self.flow(x, graph)

    def forward(self, x, graph):
        return self.compose(x, graph)


def test_methods_that_a_joined_module_holds_are_each_members_own():
    x, graph = problem()
    with pytest.warns(UserWarning, match="members differ in 'compose'"):
        ensemble = gd.Ensemble(lambda seed: BoundToItself(), SEEDS)
    assert_same(ensemble, lambda seed: BoundToItself(), lambda model: model(x, graph))


class ClosesOverItself(nn.Module):
    """A user's field that is a function of the module it belongs to."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(FEATURES, FEATURES)
        self.flow = gd.Flow(lambda t, h, graph: torch.tanh(self.net(h)), num_steps=2, solver="rk4")

    def forward(self, x):
        return self.flow(x)


@pytest.mark.parametrize("seeds", [SEEDS, SEEDS[:1]], ids=["many", "one"])
def test_functions_may_close_over_the_member_that_they_belong_to(seeds):
    x, _ = problem()
    with pytest.warns(UserWarning, match="one"):
        ensemble = gd.Ensemble(lambda seed: ClosesOverItself(), seeds)
    ensemble(x).sum().backward()
    with torch.no_grad():
        for parameter in ensemble.parameters():
            parameter -= 0.1 * parameter.grad
    for index, seed in enumerate(seeds):
        lone = alone(lambda seed: ClosesOverItself(), seed)
        lone(x).sum().backward()
        with torch.no_grad():
            for parameter in lone.parameters():
                parameter -= 0.1 * parameter.grad
        torch.testing.assert_close(ensemble(x)[index], lone(x))
        torch.testing.assert_close(ensemble.member(index)(x), lone(x))
