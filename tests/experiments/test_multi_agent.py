"""The multi-agent experiment: forecasts, metrics, members, baselines, bad input."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from torch import nn

import graphode as gd
from graphode.data import Particles, simulate
from graphode.experiments import multi_agent_run
from graphode.experiments.multi_agent import MultiAgent, settings
from graphode.experiments.multi_agent_run import advance_of, halves, run, simulated
from graphode.experiments.one_step import OneStep
from graphode.experiments.particle_metrics import METRICS, metrics
from graphode.experiments.particle_models import BASELINES, ParticleField, baseline, builder
from graphode.experiments.particle_rollouts import errors, forecasts
from graphode.experiments.run_folder import CHECKPOINT, read_metrics
from tests.experiments.consoles import CutDisplay, plain, said

SECOND_ORDER = ("gde_ii", "gde_ii_self_loops", "gde_ii_latent", "gde_ii_literal", "gmde_ii")
LEARNED = ("static", "neural_ode", "gde", *SECOND_ORDER)
SMALL = {
    "n": 4,
    "duration": 0.5,
    "dt": 1 / 64,
    "members": 2,
    "horizons": (1, 3, 7),
    "stride": 2,
    "epochs": 6,
    "hidden": 4,
    "device": "cpu",
    "log_every": 3,
}


def small(model="gde_ii", **changes) -> MultiAgent:
    if model in BASELINES:
        changes = {"epochs": 0, **changes}
    return MultiAgent.of(model, **{**SMALL, **changes})


def states(config: MultiAgent):
    return simulated(config.system, config.system_seeds).states


def ensemble_of(config: MultiAgent) -> gd.Ensemble:
    return gd.Ensemble(builder(config), config.seeds)


# Forecasts


@pytest.mark.parametrize("oracle", [False, True])
def test_forecasts_of_all_horizons_are_those_of_a_plain_loop(oracle):
    config = small("gde_ii")
    ensemble = ensemble_of(config)
    _, true = halves(states(config))
    found = forecasts(advance_of(ensemble), true, config.horizons, oracle=oracle)
    for member in range(config.members):
        model = ensemble.member(member)
        for K in config.horizons:
            expected, state = [], true[member, 0]
            for step in range(true.shape[1] - 1):
                if step % K == 0:
                    state = true[member, step]
                given = torch.cat([state, true[member, step, :, :2]], -1) if oracle else state
                with torch.no_grad():
                    state = model(given, None)
                expected.append(state)
            torch.testing.assert_close(found[K][member], torch.stack(expected))


def test_a_horizon_of_the_whole_half_never_restarts():
    true = torch.arange(1.0, 12.0).reshape(1, 11, 1, 1)
    found = forecasts(lambda h: 2 * h, true, (10,))
    torch.testing.assert_close(found[10].flatten(), 2.0 ** torch.arange(1, 11))


def test_the_oracle_sees_true_positions_and_the_default_predicted_ones():
    seen = []

    def field(t, h, graph):
        seen.append(graph.matrix.sum().item())
        return torch.zeros_like(h)

    model = ParticleField(field, 0.5, normalize=None)
    apart = torch.tensor([[0.0, 0, 0, 0], [5, 0, 0, 0]])
    together = torch.tensor([[0.0, 0], [0.1, 0]])
    assert model(0.0, apart).shape == (2, 4)
    velocity = model(0.0, torch.cat([apart, together], -1))
    assert seen == [0, 2]
    assert not velocity[:, 4:].any()
    assert model.unpack(model.pack(torch.cat([apart, together], -1))).equal(apart)


def test_a_model_of_true_forces_forecasts_the_simulation():
    system = Particles(n=6, duration=0.5, dt=1 / 256)
    true = simulate(system, [3]).states
    config = small("pair_force", n=6, dt=system.dt, members=1, num_steps=4)
    model = builder(config)(0)
    inside = model.flow.field.inside.field.field
    inside.force = TrueForce(system)
    with torch.no_grad():
        inside.own.weight.zero_()[:, :2] = -torch.eye(2)
        inside.own.bias.zero_()
    found = forecasts(lambda h: model(h, None), true, (8,))[8]
    # Steps run over the jumps of the force, each of which costs up to h r/2.
    assert (found - true[:, 1:]).abs().max() < 2e-3
    harmonic = forecasts(baseline("harmonic", system.dt), true, (8,))[8]
    assert (found - true[:, 1:]).square().mean() < 1e-2 * (harmonic - true[:, 1:]).square().mean()


class TrueForce(nn.Module):
    def __init__(self, system: Particles) -> None:
        super().__init__()
        self.system = system

    def forward(self, pair):
        return self.system.spring(pair[..., :1], pair[..., 1:])


# Metrics


def test_metrics_by_hand():
    true = torch.tensor([1.0, 2.0, 4.0, -2.0]).reshape(1, 2, 1, 2)
    predicted = torch.tensor([1.5, 2.0, 2.0, -1.0]).reshape(1, 2, 1, 2)
    found = {name: value.item() for name, value in metrics(predicted, true).items()}
    assert found == pytest.approx(
        {
            "mape": (50 + 0 + 50 + 50) / 4,
            # Over time: (+50 − 50) of the first component, (0 − 50) of the second.
            "printed_mape": (0 + 25) / 2,
            "median_ape": 50.0,
            "mae": (0.5 + 0 + 2 + 1) / 4,
            "rmse": math.sqrt((0.25 + 4 + 1) / 4),
        }
    )


def test_the_median_of_an_even_number_is_between_two():
    true = torch.ones(1, 2, 1, 2)
    predicted = torch.tensor([1.1, 1.2, 1.4, 2.0]).reshape(1, 2, 1, 2)
    assert metrics(predicted, true)["median_ape"].item() == pytest.approx(30)


def test_perfect_forecasts_have_no_error():
    true = torch.randn(2, 9, 3, 4)
    found = errors({4: true[:, 1:]}, true)
    assert set(found) == set(METRICS)
    assert all(not value.any() for value in found.values())


# Baselines


def test_harmonic_motion_is_exact_where_nobody_meets():
    dt, k = 0.01, torch.arange(201)
    x0, v0 = torch.randn(3, 2), torch.randn(3, 2)
    t = (dt * k)[:, None, None]
    x = x0 * t.cos() + v0 * t.sin()
    v = v0 * t.cos() - x0 * t.sin()
    true = torch.cat([x, v], -1)[None]
    found = forecasts(baseline("harmonic", dt), true, (200,))[200]
    torch.testing.assert_close(found, true[:, 1:], rtol=0, atol=1e-12)


def test_persistence_stays():
    true = torch.randn(2, 7, 3, 4)
    found = forecasts(baseline("persistence", 0.1), true, (3,))[3]
    torch.testing.assert_close(found, true[:, [0, 0, 0, 3, 3, 3]])


# Second order


def test_gde_ii_moves_a_particle_alone_by_its_linear_part():
    field = builder(small("gde_ii", hidden=16))(0).flow.field
    h = torch.tensor([[0.0, 0, 1, 2], [0.2, 0, -1, 0], [5, 6, 7, 8]])  # two near, one alone
    difference = field(0.0, h)[..., 2:] - field.inside.field.field.own(h)
    assert (difference[:2].abs() > 1e-3).all()
    torch.testing.assert_close(difference[2], torch.zeros(2))


def test_gde_ii_tells_two_apart_where_self_loops_cannot():
    near = torch.tensor([[0.0, 0, 1, 0], [0.2, 0, -1, 0]])
    for name, apart in (("gde_ii", True), ("gde_ii_self_loops", False)):
        field = builder(small(name, hidden=16))(0).flow.field
        with torch.no_grad():
            if apart:
                field.inside.field.field.own.weight.zero_()
            one, other = field(0.0, near)[..., 2:]
        assert torch.allclose(one, other) is not apart


def test_gde_ii_with_self_loops_is_trained_as_gde_is():
    gde, self_loops, ours = (MultiAgent.of(m) for m in ("gde", "gde_ii_self_loops", "gde_ii"))
    for name in ("activation", "lr", "schedule", "loss", "epochs", "stride", "hidden"):
        assert getattr(self_loops, name) == getattr(gde, name)
    assert (ours.loss, ours.schedule) == ("absolute", "cosine")


# Members


@pytest.mark.parametrize("model", [*LEARNED, "pair_force"])
def test_a_member_is_its_lone_run(tmp_path, model):
    together = small(model, out=tmp_path / "both")
    alone = small(model, members=1, seed=1, system_seed=1, out=tmp_path / "one")
    both, one = (run(config, plain()) for config in (together, alone))
    with (
        np.load(tmp_path / "both/arrays.npz") as many,
        np.load(tmp_path / "one/arrays.npz") as lone,
    ):
        for name in METRICS:
            np.testing.assert_allclose(many[name][1:], lone[name], rtol=1e-6)
    assert both["system_seeds"] == [0, 1]
    assert one["system_seeds"] == [1]


class Moves(nn.Module):
    def __init__(self, move) -> None:
        super().__init__()
        self.move = move

    def forward(self, h, graph, per_member):
        return self.move(h)


def test_every_state_but_those_held_out_is_seen_once_in_a_stride():
    config = small(duration=2.0)
    train, _ = halves(states(config))
    objective = OneStep(train, config.dt, 4)
    seen = []
    model = Moves(lambda h: seen.append(h) or h)
    for epoch in range(4):
        objective.follow(torch.tensor(epoch))
        objective.loss(model)
    steps = [k for k in range(train.shape[1] - 1) if k % 20 != 19]
    whole = len(steps) // 4 * 4
    expected = train[:, steps[:whole]]
    together = torch.stack(seen, 2).flatten(1, 2)
    torch.testing.assert_close(together, expected)


def test_the_loss_is_the_error_of_the_mean_velocity():
    config = small()
    train, _ = halves(states(config))
    objective = OneStep(train, config.dt, 1)
    loss = objective.loss(Moves(lambda h: h + 0.5 * config.dt))
    rates = objective.moves / config.dt
    torch.testing.assert_close(loss, (0.5 - rates).square().mean((1, 2, 3)))


@pytest.mark.parametrize(("model", "epochs"), [("gde_ii", 300), ("gde_ii_self_loops", 60)])
def test_training_learns(tmp_path, model, epochs):
    before = run(small(model, epochs=1, out=tmp_path / "a"), plain())
    after = run(small(model, epochs=epochs, hidden=16, out=tmp_path / "b"), plain())
    assert after["metrics"]["rmse"][-1]["mean"] < 0.5 * before["metrics"]["rmse"][-1]["mean"]


def test_an_interrupted_run_ends_as_if_it_had_not_been(tmp_path, monkeypatch):
    whole = run(small("gde", out=tmp_path / "whole"), plain())
    cut = small("gde", out=tmp_path / "cut", checkpoint_seconds=0.0)

    with monkeypatch.context() as patch:
        patch.setattr(multi_agent_run, "display", CutDisplay)
        with pytest.raises(KeyboardInterrupt):
            run(cut, plain())
    assert (tmp_path / "cut" / CHECKPOINT).exists()
    assert not (tmp_path / "cut/result.json").exists()
    resumed = run(cut, plain())
    assert resumed["metrics"] == whole["metrics"]
    assert [row["epoch"] for row in read_metrics(tmp_path / "cut")] == list(range(6))


def test_a_finished_run_is_read_and_another_refused(tmp_path):
    config = small("harmonic", out=tmp_path / "run")
    first = run(config, plain())
    assert run(config, plain()) == json.loads(json.dumps(first))
    with pytest.raises(ValueError, match="n is 4 there, 5 here"):
        run(dataclasses.replace(config, n=5), plain())


def test_a_run_that_diverged_says_so_and_is_read_again(tmp_path, without_type_checks):
    config = small("static", lr=1e200, epochs=1, out=tmp_path)
    first, again = plain(), plain()
    made = run(config, first)
    assert made["metrics"]["rmse"][0] == {"mean": None, "std": None}
    assert run(config, again) == made
    for console in (first, again):
        assert "K = 1: errors are not finite; K = 7: " in said(console)


def test_the_cosine_falls_to_nothing(tmp_path):
    result = run(small("gmde_ii", out=tmp_path), plain())
    assert result["config"]["schedule"] == "cosine"


# What is learned


def test_a_learned_law_is_tried_on_other_systems(tmp_path):
    config = small("pair_force", transfer=True, out=tmp_path, duration=0.25)
    result = run(config, plain())
    assert list(result["transfer"]) == [
        "4 particles, other starts",
        "8 particles, equally dense",
        "8 particles, denser",
        "20 particles, equally dense",
        "20 particles, denser",
    ]
    for found in result["transfer"].values():
        assert found["horizons"] == [1]
        assert found["model"]["rmse"][0]["mean"] > 0
        assert found["harmonic"]["rmse"][0]["mean"] > 0
    with np.load(tmp_path / "arrays.npz") as arrays:
        assert arrays["force_learned"].shape == (2, 3, 121)
        np.testing.assert_allclose(arrays["force_true"][1], 1 - arrays["force_distances"])


@pytest.mark.parametrize("model", ["static", "neural_ode"])
def test_adjacency_reaches_the_mlp(model):
    config = small(model, adjacency=True)
    lone = builder(config)(0)
    part = lone if model == "static" else lone.flow.field.map
    assert part.map.layers[0].weight.shape[0] == 4 * 4 + 6
    near = torch.zeros(4, 4)
    near[:, 0] = torch.tensor([0.0, 0.4, 3.0, 6.0])
    far = near.clone()
    far[1, 0] += 0.2
    with torch.no_grad():
        part.map.layers[0].weight[:16] = 0  # only edges are seen
    different = (part(near) - part(far)).abs().max()
    assert different > 1e-3


# Bad input


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 1}, "`n` must be a whole number of particles, 2 or more, but is 1"),
        ({"dt": 0.0}, "`dt` must be positive and finite, but is 0.0"),
        ({"duration": -1.0}, "`duration` must be positive and finite, but is -1.0"),
        ({"horizons": (1, 17)}, "asks for 17 steps, but the test half has 16. Choose smaller"),
        ({"horizons": (0,)}, "must be numbers of steps, 1 or more"),
        ({"horizons": ()}, "must be numbers of steps, 1 or more"),
        ({"members": 0}, "`members` must be 1 or more"),
        ({"epochs": 0}, "`epochs` must be 1 or more"),
        ({"stride": 9}, "`stride` must leave two states of the training half or more"),
        ({"adjacency": True}, "is fed to static and neural_ode, but the model is gde_ii"),
        ({"model": "static", "oracle": True}, "gives the true graph to forecasts, but static"),
        ({"model": "static", "transfer": True}, "sees 4 particles as one vector of 16 numbers"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        small(**changes)


@pytest.mark.parametrize(
    ("preset", "model", "message"),
    [
        ("printed", "gcn", "Unknown model 'gcn'. Choose one of: static"),
        ("authors", "gde", "Unknown preset 'authors'. Choose one of: printed, tuned"),
    ],
)
def test_unknown_names_are_answered_with_known_ones(preset, model, message):
    with pytest.raises(ValueError, match=message):
        settings(preset, model)


def test_a_model_of_another_state_size_says_so(without_type_checks):
    flat = builder(small("static"))(0)
    with pytest.raises(ValueError, match=r"sees all nodes at once, \[\.\.\., 4, 4\].*nodes=6"):
        flat(torch.zeros(6, 4), None)
    ensemble = ensemble_of(small("neural_ode"))
    with pytest.raises(ValueError, match="sees all nodes at once"):
        ensemble(torch.zeros(2, 6, 4), None, per_member=True)
    graph = builder(small("gde"))(0)
    with pytest.raises(ValueError, match="5"):
        graph(torch.zeros(4, 5), None)
