"""What a member holds under two names is one thing in its ensemble too."""

import copy

import pytest
import torch
from torch import nn

import graphode as gd
from graphode.ensembles import members
from tests.ensembles.test_ensemble import FEATURES, SEEDS, alone, problem
from tests.ensembles.test_settings import assert_one_program
from tests.ensembles.test_training_together import trained


def flow():
    return gd.Flow(gd.GraphConvField([FEATURES, FEATURES]), solver="heun", num_steps=2)


class Layers(nn.Module):
    """Two layers with one weight."""

    def __init__(self, scale=1.0):
        super().__init__()
        self.scale = scale
        self.first, self.second = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, FEATURES)
        self.second.weight = self.first.weight

    def forward(self, x, graph):
        return self.scale * self.second(torch.tanh(self.first(x)))


class Composed(nn.Module):
    """A flow and a layer under two names each, once also within another part."""

    members_first = True

    def __init__(self):
        super().__init__()
        self.flow, self.inner = flow(), nn.Linear(FEATURES, FEATURES)
        self.again, self.outer = self.flow, nn.Sequential(nn.Tanh(), self.inner)

    def forward(self, x, graph):
        return self.outer(self.again(self.flow(self.inner(x), graph), graph))


def tied_layers(seed):
    encoder, readout = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, FEATURES)
    readout.weight = encoder.weight
    return gd.GDE(encoder=encoder, flow=flow(), readout=readout)


def one_layer(seed):
    layer = gd.GraphConvEncoder(FEATURES, FEATURES)
    return gd.GDE(encoder=layer, flow=flow(), readout=layer)


TIED = {
    "weight of two layers": lambda seed: Layers(),
    "weight of encoder and readout": tied_layers,
    "encoder and readout": one_layer,
    "flow and layer of one's own module": lambda seed: Composed(),
}


def assert_trained_as_alone(build, tolerance=1e-9):
    """A few steps leave every member where its lone run is: parameters, buffers, ties."""
    x, graph = problem()

    def loss_of(model):
        return model(x, graph).square().mean((-2, -1))

    ensemble = gd.Ensemble(build, SEEDS)
    trained(ensemble, loss_of, ensemble.seeds, epochs=5)
    for index, seed in enumerate(SEEDS):
        lone, member = alone(build, seed), ensemble.member(index)
        trained(lone, loss_of, seed, epochs=5)
        assert [*dict(member.named_parameters())] == [*dict(lone.named_parameters())]
        assert member.state_dict().keys() == lone.state_dict().keys()
        for name, expected in lone.state_dict().items():
            found = member.state_dict()[name]
            assert (found - expected).double().norm() <= tolerance * expected.double().norm(), name
    return ensemble


@pytest.mark.parametrize("name", TIED)
def test_ties_survive_training(name):
    assert_trained_as_alone(TIED[name])


class Penalised(Layers):
    """A tied weight is one parameter, which counts once."""

    def forward(self, x, graph):
        return super().forward(x, graph) + 0.1 * sum(p.square().sum() for p in self.parameters())


@pytest.mark.parametrize("large", [False, True], ids=["mapped", "one by one"])
def test_a_tied_weight_is_met_once_among_a_members_parameters(large: bool, monkeypatch):
    if large:
        monkeypatch.setattr(members, "LARGE_MEMBER", 1)
    assert_trained_as_alone(lambda seed: Penalised())


def test_fields_with_ties_may_vary_with_depth():
    class TiedField(Layers):
        def forward(self, t, h, graph):
            return super().forward(h, graph)

    assert_trained_as_alone(
        lambda seed: gd.GDE(
            encoder=nn.Linear(FEATURES, FEATURES),
            flow=gd.Flow(gd.DepthVarying(TiedField()), solver="rk4", num_steps=2),
            readout=nn.Linear(FEATURES, 2),
        )
    )


def test_ties_survive_where_settings_differ():
    with pytest.warns(UserWarning, match="differ in 'scale'"):
        assert_trained_as_alone(lambda seed: Layers(scale=1.0 + SEEDS.index(seed)))


@pytest.mark.parametrize("name", TIED)
def test_members_with_ties_are_one_program(name, monkeypatch):
    x, graph = problem()
    assert_one_program(TIED[name], lambda model: model(x, graph), monkeypatch)


@pytest.mark.parametrize("name", TIED)
def test_ties_survive_copies_and_state(name):
    x, graph = problem()
    ensemble = gd.Ensemble(TIED[name], SEEDS).eval()
    twin = copy.deepcopy(ensemble)
    other = gd.Ensemble(TIED[name], [seed + 1 for seed in SEEDS]).eval()
    assert not torch.allclose(other(x, graph), ensemble(x, graph))
    other.load_state_dict(ensemble.state_dict())
    count = len(list(alone(TIED[name], 0).parameters()))
    for model in (ensemble, twin, other):
        assert len(list(model.parameters())) == count
        torch.testing.assert_close(model(x, graph), ensemble(x, graph))


def test_ties_of_some_members_only_are_refused():
    def build(seed):
        model = Layers()
        if seed == SEEDS[1]:
            model.second = nn.Linear(FEATURES, FEATURES)
        return model

    with pytest.raises(ValueError, match=r"'second.weight' is .*, the same as 'first.weight' for"):
        gd.Ensemble(build, SEEDS)
