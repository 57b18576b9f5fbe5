"""A recorded program of epochs does what epochs do, and is recorded anew where it falls short."""

import dataclasses

import pytest
import torch

import graphode as gd
from graphode.ensembles import Ensemble
from graphode.experiments import recording as recording_module
from graphode.experiments.node_run import NodeObjective
from graphode.experiments.recording import Recording
from graphode.experiments.trainer import Trainer
from graphode.flows import flow
from tests.experiments.karate_runs import build, capture_into, objective, train_in, training


def test_a_captured_program_is_told_what_solves_cost(tmp_path):
    calls = []
    plain = train_in(tmp_path / "plain")
    captured = train_in(tmp_path / "captured", capture=capture_into(calls))
    assert captured.selected == plain.selected
    assert calls[:12] == ["teach", "evaluate", "evaluate_and_teach"] * 4  # to record them
    beside = calls[12:].count("evaluate_and_teach")
    taught, evaluated = (calls[12:].count(name) + beside for name in ("teach", "evaluate"))
    assert (taught, evaluated) == (12, 9)
    assert beside > 0
    names = ("plain", "captured")
    first, second = ((tmp_path / name / "metrics.jsonl").read_bytes() for name in names)
    assert first == second


def test_where_an_epoch_has_many_updates_only_these_are_recorded():
    class InHalves(NodeObjective):
        num_batches = 2

        def turn(self, epoch, batch):
            self.train = torch.arange(34)[(epoch + batch) % 2 :: 6]

    def trained(run_epochs_of):
        task = objective()
        task = InHalves(task.x, task.graph, task.labels, task.train, task.val, task.test)
        trainer = Trainer(Ensemble(build, [5, 6]), task, training(select_from=7, log_every=12))
        run_epochs_of(trainer)(12)
        return trainer

    calls = []
    plain = trained(lambda trainer: trainer.run)
    recorded = trained(lambda trainer: Recording(trainer, capture_into(calls)))
    assert calls == ["update"] * (4 + 12 * 2)
    for name, tensor in plain.state().items():
        assert tensor.equal(recorded.state()[name]), name
    torch.testing.assert_close(plain.block, recorded.block, rtol=0, atol=0, equal_nan=True)
    is_measured = ~plain.read(0, 12).isnan().any(-1).any(-1)
    assert is_measured.nonzero().flatten().tolist() == [7, 8, 9, 10, 11]


def test_members_that_need_more_attempts_than_were_recorded_get_them(monkeypatch):
    """As on a GPU: a solver makes the recorded number of attempts, and never asks the host."""

    def trained(run_epochs_of):
        ensemble = Ensemble(lambda seed: gd.GCDE.dpr5(34, 8, 2), range(3))
        trainer = Trainer(ensemble, objective(), dataclasses.replace(training(), lr=0.3))
        run_epochs_of(trainer)(6)
        return trainer

    plain = trained(lambda trainer: trainer.run)
    recorded = []

    class TooFewAtFirst(Recording):
        def _record(self, attempts):
            monkeypatch.setattr(flow, "_traced", lambda h: True)
            recorded.append(attempts if recorded else 1)
            super()._record(recorded[-1])

    traced = trained(lambda trainer: TooFewAtFirst(trainer, lambda program, **_: program))
    assert len(recorded) > 1
    for name, tensor in plain.state().items():
        assert tensor.equal(traced.state()[name]), name
    # Evaluations are counted as they happen; of six epochs three were evaluated.
    torch.testing.assert_close(plain.block, traced.block, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("rate", "records"), [(1e308, [2, 2]), (1e4, [2, 4, 6, 2])])
def test_a_member_that_fails_while_recorded_holds_up_nobody(tmp_path, monkeypatch, rate, records):
    """Its parameters are no numbers, or it needs more attempts than may be recorded."""
    monkeypatch.setattr(recording_module, "MOST_ATTEMPTS", 6)
    is_traced = flow._traced
    attempts = []

    class Watched(Recording):
        def __init__(self, *given):
            monkeypatch.setattr(flow, "_traced", is_traced)  # to count, it solves as ever
            super().__init__(*given)

        def _record(self, attempted):
            monkeypatch.setattr(flow, "_traced", lambda h: True)
            attempts.append(attempted)
            super()._record(attempted)

    monkeypatch.setattr(recording_module, "Recording", Watched)

    def trained(name, seeds, lr):
        return train_in(
            tmp_path / name,
            make_ensemble=lambda seeds: Ensemble(lambda seed: gd.GCDE.dpr5(34, 8, 2), seeds),
            seeds=seeds,
            lr=torch.tensor(lr),
            capture=lambda program, **_: program,
        )

    among = trained("among", [5, 6, 7], [0.05, rate, 0.05])
    assert list(among.diverged) == [6]
    assert attempts == records  # more of them, and then for those that are left
    without = trained("without", [5, 7], [0.05, 0.05])
    for name, parameter in without.ensemble.named_parameters():
        others = among.ensemble.get_parameter(name)[[0, 2]]
        torch.testing.assert_close(others, parameter, rtol=1e-9, atol=1e-12)
