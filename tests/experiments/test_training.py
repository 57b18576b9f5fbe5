"""One loop for all members: each is trained and selected as if it were alone."""

import contextlib
import dataclasses
import json

import pytest
import torch

import graphode as gd
from graphode.ensembles import Ensemble
from graphode.experiments.member_adam import MemberAdam
from graphode.experiments.node_run import NodeObjective
from graphode.experiments.run_folder import read_metrics
from graphode.experiments.selection import Selection
from graphode.experiments.trainer import TAUGHT, Trainer, Training
from tests.experiments.karate_runs import Silent, build, capture_into, objective, train_in, training


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("rates", [(0.1, 0.01, 0.003), (0.01,)], ids=["own rates", "one rate"])
@pytest.mark.parametrize("transposed", [False, True])
def test_member_adam_is_torch_adam_for_every_member(rates, weight_decay, transposed):
    start = [torch.randn(3, 2, 4).mT if transposed else torch.randn(3, 4, 2), torch.randn(3, 2)]
    gradients = [[torch.randn_like(p) for p in start] for _ in range(20)]
    together = [p.clone() for p in start]
    adam = MemberAdam(together, torch.tensor(rates) if len(rates) > 1 else rates[0], weight_decay)
    for gradient in gradients:
        adam.step(gradient)
    for member, rate in enumerate(torch.tensor(rates).expand(3).tolist()):
        lone = [p[member].clone().requires_grad_() for p in start]
        reference = torch.optim.Adam(lone, lr=rate, weight_decay=weight_decay)
        for gradient in gradients:
            for p, g in zip(lone, gradient, strict=True):
                p.grad = g[member].clone()
            reference.step()
        for p, expected in zip(together, lone, strict=True):
            torch.testing.assert_close(p[member], expected.detach(), rtol=1e-12, atol=1e-13)


def test_member_adam_takes_a_decay_for_each_parameter_and_member():
    parameters = [torch.ones(2, 3), torch.ones(2)]
    adam = MemberAdam(parameters, 0.1, [torch.tensor([0.0, 1.0]), 0.0])
    adam.step([torch.zeros(2, 3), torch.zeros(2)])
    assert parameters[0][0].equal(torch.ones(3))
    torch.testing.assert_close(parameters[0][1], torch.full((3,), 0.9))
    assert parameters[1].equal(torch.ones(2))


def test_a_rate_for_another_number_of_members_is_refused():
    with pytest.raises(ValueError, match=r"must have shape \[3\].*\[2\]"):
        MemberAdam([torch.zeros(3, 1)], torch.tensor([0.1, 0.2]))


@pytest.mark.parametrize("change", ["renamed", "reshaped"])
def test_a_checkpoint_of_another_version_is_refused_with_what_to_do(change):
    trainer = Trainer(Ensemble(build, [0, 1]), objective(), training())
    tensors = {name: tensor.clone() for name, tensor in trainer.state().items()}
    name = next(name for name in tensors if name.startswith("parameters."))
    tensor = tensors.pop(name)
    tensors[f"{name}_before" if change == "renamed" else name] = tensor[..., None]
    with pytest.raises(ValueError, match=r"written by another version\. Start anew with --fresh"):
        trainer.load(tensors)


def brute_force(losses: torch.Tensor, select_from: int, patience: int | None) -> list[int]:
    chosen = []
    for member in losses.unbind(1):
        best, epoch, waited = float("inf"), -1, 0
        for k, loss in enumerate(member.tolist()):
            if k < select_from:
                continue
            if loss < best:
                best, epoch, waited = loss, k, 0
            else:
                waited += 1
            if patience is not None and waited >= patience:
                break
        chosen.append(epoch)
    return chosen


@pytest.mark.parametrize("select_from", [0, 10])
@pytest.mark.parametrize("patience", [None, 3])
def test_selection_is_the_lowest_validation_loss_of_its_range(select_from, patience):
    losses = torch.rand(30, 8)
    losses[5, 2] = torch.nan
    losses[:, 3] = torch.nan
    tests = torch.rand(30, 8)
    selection = Selection(8, ("test_accuracy",), select_from, patience)
    for epoch in range(30):
        selection.update(torch.tensor(epoch), losses[epoch], {"test_accuracy": tests[epoch]})
    expected = brute_force(losses, select_from, patience)
    assert selection.epoch.tolist() == expected
    assert expected[3] == -1
    for member, epoch in enumerate(expected):
        kept = selection.metrics["test_accuracy"][member]
        assert kept.isnan() if epoch < 0 else kept == tests[epoch, member]


def test_test_labels_change_test_accuracy_and_nothing_else(tmp_path):
    true = objective()
    swapped = true.labels.clone()
    swapped[true.test] = 1 - swapped[true.test]
    first = train_in(tmp_path / "true", objective=true)
    second = train_in(tmp_path / "swapped", objective=dataclasses.replace(true, labels=swapped))
    flipped = [1 - value for value in second.selected.pop("test_accuracy")]
    assert first.selected.pop("test_accuracy") == pytest.approx(flipped)
    assert first.selected == second.selected


def test_a_member_is_its_lone_run(tmp_path):
    together = train_in(tmp_path / "all")
    for place, seed in enumerate((5, 6, 7)):
        alone = train_in(tmp_path / str(seed), seeds=[seed])
        for name, values in alone.selected.items():
            assert values[0] == pytest.approx(together.selected[name][place], rel=1e-9)


def test_an_epoch_is_a_step_of_a_plain_loop():
    """The trainer against the loop one would write for a lone model."""
    task = objective()
    trainer = Trainer(Ensemble(build, [5]), task, training(epochs=5, log_every=5))
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = build(5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=5e-4)
    losses, accuracies = [], []
    for epoch in range(5):
        trainer.step()
        model.train()
        optimizer.zero_grad()
        with gd.stochastic(5, epoch):
            logits = model(task.x, task.graph)
        loss = torch.nn.functional.cross_entropy(logits[task.train], task.labels[task.train])
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            guessed = model(task.x, task.graph).argmax(-1)
        losses.append(loss.item())
        accuracies.append((guessed == task.labels)[task.test].double().mean().item())
    rows = trainer.read(0, 5)[:, 0]
    named = dict(zip(trainer.metrics, rows.unbind(-1), strict=True))
    assert named["train_loss"].tolist() == pytest.approx(losses, rel=1e-9)
    assert named["test_accuracy"].tolist() == pytest.approx(accuracies)
    assert named["evaluations"].tolist() == [2.0] * 5
    assert named["backward_evaluations"].tolist() == [0.0] * 5


def test_an_update_by_itself_is_made_in_training_mode():
    """As it is recorded where an epoch has many: after a look at the ensemble in evaluation."""
    modes = []

    class Objective:
        measures = ("validation_loss",)

        def loss(self, ensemble):
            modes.append(ensemble.training)
            return sum(p.flatten(1).square().sum(1) for p in ensemble.parameters())

        def measure(self, ensemble):
            return {"validation_loss": torch.zeros(2)}

    trainer = Trainer(
        Ensemble(lambda seed: torch.nn.Linear(2, 1), [0, 1]),
        Objective(),
        Training(epochs=1, lr=0.1),
    )
    trainer.count()
    assert not trainer.ensemble.training
    trainer.update()
    assert modes == [True, True]


def test_backward_evaluations_are_counted():
    def checkpointed(seed: int) -> torch.nn.Module:
        del seed
        return gd.GCDE(34, 4, 2, solver="rk4_38", num_steps=4, gradient="checkpoint")

    trainer = Trainer(Ensemble(checkpointed, [0, 1]), objective(), training(log_every=1))
    trainer.step()
    named = dict(zip(trainer.metrics, trainer.read(0, 1)[0].unbind(-1), strict=True))
    assert (named["evaluations"] == 16).all()
    assert (named["backward_evaluations"] > 0).all()


def test_a_model_without_a_flow_has_no_evaluations():
    def star(seed: int) -> torch.nn.Module:
        del seed
        return gd.GCN.star(34, 4, 2)

    trainer = Trainer(Ensemble(star, [0, 1]), objective(), training())
    assert trainer.count().tolist() == [[0.0] * 3] * 2


def test_the_penalty_can_be_on_the_first_layer_only():
    heavy = training(weight_decay={".encoder.": 100.0}, lr=0.01, log_every=1)
    trainer = Trainer(Ensemble(build, [0]), objective(), heavy)
    before = {name: p.detach().clone() for name, p in trainer.ensemble.named_parameters()}
    free = Trainer(Ensemble(build, [0]), objective(), training(weight_decay=0.0, lr=0.01))
    trainer.step()
    free.step()
    for (name, p), (_, q) in zip(
        trainer.ensemble.named_parameters(), free.ensemble.named_parameters(), strict=True
    ):
        if ".encoder." in name:
            shrunk = before[name] - 0.01 * before[name].sign()
            torch.testing.assert_close(p.detach(), shrunk, rtol=1e-3, atol=1e-4)
        else:
            assert p.equal(q), name


def test_of_penalties_by_name_the_first_that_fits_counts():
    trainer = Trainer(
        Ensemble(build, [0]), objective(), training(weight_decay={".flow.": 3.0, ".w": 2.0})
    )
    names = [name for name, _ in trainer.ensemble.named_parameters()]
    expected = [3.0 if ".flow." in name else 2.0 if ".w" in name else 0.0 for name in names]
    assert trainer.optimizer.weight_decay == expected
    assert set(expected) == {0.0, 2.0, 3.0}


def test_a_run_ends_when_every_member_has_stopped(tmp_path):
    display = Silent()
    seen = []
    display.at_epoch = seen.append
    outcome = train_in(tmp_path, display, epochs=300, patience=2, select_from=0, lr=0.5)
    assert seen[-1] < 300
    assert max(outcome.selected["epoch"]) < seen[-1]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"select_from": 0}, list(range(12))),
        ({"select_from": 7}, [2, 5, 7, 8, 9, 10, 11]),
        ({"select_from": 7, "log_every": 1}, list(range(12))),
        ({"select_from": 11, "epochs": 11}, [2, 5, 8, 10]),
        ({"select_from": 12, "log_every": 20}, [11]),
    ],
    ids=["all can be selected", "half of them", "blocks of one", "none", "none, one block"],
)
def test_before_the_selection_an_epoch_is_evaluated_at_the_end_of_a_block(
    tmp_path, changes, expected
):
    task, measured = objective(), []
    measure = task.measure

    def watched(ensemble):
        measured.append(1)
        return measure(ensemble)

    task.measure = watched
    train_in(tmp_path, objective=task, **changes)
    assert len(measured) == len(expected)
    rows = read_metrics(tmp_path)
    assert [row["epoch"] for row in rows] == list(range(changes.get("epochs", 12)))
    assert [row["epoch"] for row in rows if "validation_loss" in row] == expected


def test_the_line_of_an_epoch_that_was_not_evaluated_has_no_measures(tmp_path):
    train_in(tmp_path, select_from=7)

    def refuse(constant: str):
        raise AssertionError(f"{constant} is no JSON")

    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    for epoch, line in enumerate(lines):
        row = json.loads(line, parse_constant=refuse)
        names = TAUGHT
        if epoch in (2, 5) or epoch >= 7:
            names += (*objective().measures, "evaluations_without_masks")
        endings = ("", "_std")
        known = {name + ending for name in names for ending in endings}
        assert row.keys() == {"epoch", "chunk", "members", *known}
        assert None not in row.values()


def test_a_measure_that_is_no_number_is_null_and_not_left_out(tmp_path):
    task = objective()
    measure = task.measure
    task.measure = lambda ensemble: {
        **measure(ensemble),
        "test_accuracy": torch.full((3,), torch.nan),
    }
    train_in(tmp_path, objective=task, select_from=7)
    found = {
        row["epoch"]: row["test_accuracy"]
        for row in read_metrics(tmp_path)
        if "test_accuracy" in row
    }
    assert found == dict.fromkeys([2, 5, 7, 8, 9, 10, 11])


@pytest.mark.parametrize("recorded", [False, True])
def test_evaluating_less_often_changes_neither_members_nor_selection(
    tmp_path, monkeypatch, recorded
):
    def trained(name):
        capture = capture_into([]) if recorded else None
        return train_in(tmp_path / name, select_from=7, keep_selected=True, capture=capture)

    seldom = trained("seldom")
    monkeypatch.setattr(Training, "evaluates", lambda training, epoch: True)
    always = trained("always")
    assert seldom.selected == always.selected
    for name, parameter in always.ensemble.named_parameters():
        assert parameter.equal(seldom.ensemble.get_parameter(name)), name
        assert always.parameters[name].equal(seldom.parameters[name]), name
    for short, whole in zip(
        read_metrics(tmp_path / "seldom"), read_metrics(tmp_path / "always"), strict=True
    ):
        assert short.items() <= whole.items()
        assert "test_accuracy" in whole


@pytest.mark.parametrize("chunk", [None, 1])
@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        ("parameters became NaN.", {"lr": 1e308}),
        ("a solve failed. Too many steps: sample 0 (of ", {"max_steps": 2}),
    ],
)
def test_training_that_diverges_says_when_and_names_the_rate(tmp_path, chunk, reason, changes):
    if "max_steps" in changes:
        options = {**changes, "rtol": 1e-9, "atol": 1e-9}
        made = lambda seeds: Ensemble(lambda seed: gd.GCDE.dpr5(34, 8, 2, **options), seeds)  # noqa: E731
        changes = {"make_ensemble": made}
    with pytest.raises(gd.SolveError) as found:
        train_in(tmp_path, chunk=chunk, **changes)
    said = str(found.value)
    assert said.startswith(f"Training ended in epochs 0 to 2, where {reason}")
    assert said.endswith(f"{tmp_path / 'metrics.jsonl'} grew before, lower --lr.")


RATES = {5: 0.05, 6: 1e150, 7: 0.05}


@pytest.mark.parametrize("killed", [False, True], ids=["in one go", "killed and resumed"])
def test_a_member_that_diverges_is_set_aside_and_holds_up_nobody(tmp_path, killed):
    def trained(name, seeds, display=None):
        rates = torch.tensor([RATES[seed] for seed in seeds])
        return train_in(tmp_path / name, display, seeds=seeds, lr=rates, keep_selected=True)

    def cut(epoch):
        if killed and epoch == 6:
            raise KeyboardInterrupt

    silent = Silent(cut)
    with contextlib.suppress(KeyboardInterrupt):
        among = trained("among", [5, 6, 7], silent)
    if killed:
        among = trained("among", [5, 6, 7])
    assert silent.notes == ["The member of seed 6 diverged in epoch 1: set aside."]
    assert among.diverged == {6: 1}
    assert among.selected["epoch"][1] == -1
    without = trained("without", [5, 7])
    assert without.diverged == {}
    for name, values in without.selected.items():
        torch.testing.assert_close([among.selected[name][k] for k in (0, 2)], values)
    for name, parameter in without.parameters.items():
        torch.testing.assert_close(among.parameters[name][[0, 2]], parameter)
    for parameter in among.ensemble.parameters():
        assert parameter.isfinite().flatten(1).all(1).tolist() == [True, False, True]
    rows = [read_metrics(tmp_path / name) for name in ("among", "without")]
    for ours, theirs in zip(*rows, strict=True):
        assert ours.keys() == theirs.keys()
        torch.testing.assert_close(list(ours.values()), list(theirs.values()))


def test_of_members_that_are_trained_one_by_one_the_others_go_on(tmp_path):
    class OneRate(NodeObjective):
        def for_members(self, seeds):
            return Exploding(*fields) if seeds == [5] else self

    class Exploding(NodeObjective):
        def loss(self, ensemble):
            return super().loss(ensemble) * torch.nan

    task = objective()
    fields = [getattr(task, field.name) for field in dataclasses.fields(task)]
    outcome = train_in(tmp_path, objective=OneRate(*fields), chunk=1)
    assert outcome.diverged == {5: 0}
    assert [epoch >= 0 for epoch in outcome.selected["epoch"]] == [False, True, True]
    assert {row["chunk"] for row in read_metrics(tmp_path)} == {1, 2}


def test_what_was_selected_after_a_member_diverged_counts_for_nothing(tmp_path):
    """Its solve may fail once and its next epochs look well until the block is read."""

    class FailsOnce(NodeObjective):
        calls = 0

        def loss(self, ensemble):
            FailsOnce.calls += 1
            losses = super().loss(ensemble)
            return torch.where(ensemble.seeds == 6, torch.nan, 0.0 * losses) + losses.detach()

        def measure(self, ensemble):
            found = super().measure(ensemble)
            return {name: values.nan_to_num(0.5) for name, values in found.items()}

    task = objective()
    fields = [getattr(task, field.name) for field in dataclasses.fields(task)]
    outcome = train_in(tmp_path, objective=FailsOnce(*fields), select_from=0)
    assert outcome.diverged == {6: 0}
    assert [epoch >= 0 for epoch in outcome.selected["epoch"]] == [True, False, True]
    assert outcome.selected["test_accuracy"][1] != outcome.selected["test_accuracy"][1]
