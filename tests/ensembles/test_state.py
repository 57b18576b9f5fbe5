"""What a module keeps from call to call is each member's own if it is a buffer."""

import pytest
import torch
from torch import nn

import graphode as gd
from graphode.ensembles import members
from tests.ensembles.test_ensemble import FEATURES, SEEDS, alone, problem
from tests.ensembles.test_ties import assert_trained_as_alone


class Average(nn.Module):
    """Keeps a running mean by assignment, and a count that begins with the first call."""

    def __init__(self, scale=1.0):
        super().__init__()
        self.scale = scale
        self.linear = nn.Linear(FEATURES, 2)
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("calls", None)

    def forward(self, x, graph):
        y = self.scale * self.linear(x)
        out = y - y * self.mean  # whose gradient needs the mean as it is now
        self.mean = 0.9 * self.mean + 0.1 * y.detach().mean(0)
        self.calls = torch.ones(()) if self.calls is None else self.calls + 1
        return out


class Normalised(nn.Module):
    """Moves running statistics, then does what cannot be mapped."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(FEATURES)
        self.linear = nn.Linear(FEATURES, 2)

    def forward(self, x, graph):
        y = self.linear(self.norm(x))
        return y if y.sum() > 0 else -y


def test_buffers_that_are_assigned_are_kept():
    ensemble = assert_trained_as_alone(lambda seed: Average())
    assert ensemble.member(0).calls == 5


def test_buffers_that_are_assigned_are_kept_one_by_one(monkeypatch):
    monkeypatch.setattr(members, "LARGE_MEMBER", 1)
    assert_trained_as_alone(lambda seed: Average())


def test_buffers_that_are_assigned_are_kept_where_settings_differ():
    with pytest.warns(UserWarning, match="differ in 'scale'"):
        assert_trained_as_alone(lambda seed: Average(scale=1.0 + SEEDS.index(seed)))


class Projected(nn.Module):
    """Keeps its weights within a ball, as layers with a constraint do."""

    def __init__(self, in_place: bool):
        super().__init__()
        self.in_place = in_place
        self.weight = nn.Parameter(torch.randn(FEATURES, 2))

    def forward(self, x, graph):
        if self.in_place:
            with torch.no_grad():
                self.weight.renorm_(2, 1, 0.5)
        else:
            self.weight.data = self.weight.data.renorm(2, 1, 0.5)
        return torch.tanh(x @ self.weight)


@pytest.mark.parametrize("in_place", [False, True], ids=["assigned", "in place"])
def test_weights_that_members_write_to_are_kept_one_by_one(in_place: bool, monkeypatch):
    monkeypatch.setattr(members, "LARGE_MEMBER", 1)
    assert_trained_as_alone(lambda seed: Projected(in_place))


def test_statistics_move_once_where_mapping_fails_half_way():
    with pytest.warns(UserWarning, match="Normalised cannot be mapped"):
        ensemble = assert_trained_as_alone(lambda seed: Normalised())
    assert ensemble.member(0).norm.num_batches_tracked == 5


def test_statistics_move_once_where_only_training_cannot_be_mapped():
    class Checked(Normalised):
        def forward(self, x, graph):
            return super().forward(x, graph) if self.training else self.linear(self.norm(x))

    x, graph = problem()
    ensemble = gd.Ensemble(lambda seed: Checked(), SEEDS).eval()
    ensemble(x, graph)
    with pytest.warns(UserWarning, match="Checked cannot be mapped"):
        ensemble.train()(x, graph)
    assert ensemble.member(0).norm.num_batches_tracked == 1


class Rated(nn.Module):
    """With a part that is in eval mode by itself."""

    def __init__(self, rate):
        super().__init__()
        self.rate = rate
        self.norm = nn.BatchNorm1d(FEATURES).eval()
        self.linear = nn.Linear(FEATURES, 2)

    def forward(self, x, graph):
        return self.rate * self.linear(self.norm(x))


def test_parts_in_eval_mode_stay_so():
    ensemble = assert_trained_as_alone(lambda seed: Rated(1.0))
    assert ensemble.member(1).training
    assert not ensemble.member(1).norm.training
    assert ensemble.train().member(1).norm.training
    assert not ensemble.eval().member(1).training


def test_parts_in_eval_mode_stay_so_where_settings_differ():
    with pytest.warns(UserWarning, match="differ in 'rate'"):
        ensemble = assert_trained_as_alone(lambda seed: Rated(1.0 + SEEDS.index(seed)))
    assert ensemble.member(1).norm.num_batches_tracked == 0


def test_members_differing_in_mode_or_gradients_are_refused():
    def modes(seed):
        return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2).train(seed != SEEDS[1]))

    def gradients(seed):
        model = nn.Linear(2, 2)
        model.weight.requires_grad_(seed != SEEDS[1])
        return model

    with pytest.raises(ValueError, match=r"'1.training' is missing for seed 3 and False for"):
        gd.Ensemble(modes, SEEDS)
    with pytest.raises(ValueError, match=r"'weight' is .* with gradient .* without gradient for"):
        gd.Ensemble(gradients, SEEDS)


def test_a_member_requires_gradients_where_its_ensemble_does():
    ensemble = gd.Ensemble(lambda seed: nn.Linear(2, 2), SEEDS)
    ensemble.lone_tensors()["bias"].requires_grad_(False)
    member = ensemble.member(0)
    assert member.weight.requires_grad
    assert not member.bias.requires_grad
    assert not any(p.requires_grad for p in ensemble.requires_grad_(False).member(1).parameters())


class Counting(nn.Linear):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


class Remembering(nn.Linear):
    before = None

    def forward(self, x):
        self.before = super().forward(x)
        return self.before


@pytest.mark.parametrize(("kind", "name"), [(Counting, "calls"), (Remembering, "before")])
def test_state_outside_buffers_is_told(kind, name):
    x, _ = problem()
    ensemble = gd.Ensemble(lambda seed: nn.Sequential(kind(FEATURES, 2)), SEEDS)
    with pytest.warns(UserWarning, match=f"{kind.__name__} changes its attribute '{name}'.*buffer"):
        ensemble(x)


class Listing(nn.Linear):
    def __init__(self):
        super().__init__(FEATURES, 2)
        self.listed = {"all": [self.weight]}


def test_parameters_that_are_also_held_without_a_name_are_told():
    with (
        pytest.warns(UserWarning, match=r"'0.weight' in its attribute '0.listed' too.*by its name"),
        pytest.warns(UserWarning, match="differ in '0.listed'"),
    ):
        gd.Ensemble(lambda seed: nn.Sequential(Listing()), SEEDS)


def test_a_lone_run_knows_what_its_member_has_counted():
    x, graph = problem()
    ensemble, lone = gd.Ensemble(lambda seed: Average(), SEEDS), alone(lambda s: Average(), 3)
    for model in (ensemble, lone):
        model(x, graph)
    member = ensemble.member(0)
    torch.testing.assert_close(member(x, graph), lone(x, graph))
    assert member.calls == lone.calls == 2
