"""A run of node classification from settings to result, and the command line around it."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
import torch

from graphode import cli
from graphode.data import cora_linqs
from graphode.ensembles import Ensemble
from graphode.experiments import node_run
from graphode.experiments.devices import determinism, find_device
from graphode.experiments.node_classification import NodeClassification
from graphode.experiments.node_models import builder
from graphode.experiments.node_run import NodeObjective, run
from graphode.experiments.presets import MODELS
from graphode.experiments.trainer import COSTS
from graphode.fields import DepthVarying
from tests.experiments.consoles import plain, said

SMALL = {"hidden": 4, "epochs": 4, "log_every": 2, "members": 2, "device": "cpu"}


@pytest.mark.parametrize("model", MODELS)
def test_every_model_runs_on_the_embedded_cora(tmp_path, model, without_type_checks):
    shorter = {} if model in ("gcn", "gcn_star") else {"t1": 0.5}
    config = NodeClassification.of(model, **SMALL, **shorter, out=tmp_path, trajectories=1)
    result = run(config, plain())
    assert result == json.loads((tmp_path / "result.json").read_text())
    assert result["members"] == 2
    assert result["selected"]["seed"] == [0, 1]
    assert all(config.select_from <= epoch < 4 for epoch in result["selected"]["epoch"])
    tests = result["selected"]["test_accuracy"]
    assert result["metrics"]["test_accuracy"]["mean"] == pytest.approx(np.mean(tests))
    assert result["metrics"]["test_accuracy"]["std"] == pytest.approx(np.std(tests))
    evaluations = {"gcn": 0, "gcn_star": 0, "gcde_rk2": 2, "gcde_rk4": 4}.get(model)
    assert result["evaluations"]["evaluations"] == evaluations or evaluations is None
    assert result["data"]["checksums"] == dict(cora_linqs().checksums)
    assert len(result["data"]["checksums"]["cora_linqs.npz"]) == 64
    assert (tmp_path / "arrays.npz").exists() == (model not in ("gcn", "gcn_star"))


def test_a_run_says_what_it_does_in_plain_lines(tmp_path, without_type_checks):
    console = plain()
    config = NodeClassification.of("gcn_star", **SMALL, out=tmp_path, chunk=2)
    run(config, console)
    lines = said(console).splitlines()
    assert lines[0] == "gcn_star on cora_linqs, 2 members: 4 epochs"
    assert lines[1].startswith("  epoch 2/4 | 0:0")
    assert "left | loss " in lines[1]
    assert "| validation accuracy " in lines[1]
    assert " ± " in lines[1]
    assert lines[3].startswith("gcn_star on cora_linqs (authors split): test accuracy ")
    assert "over 2 members" in lines[3]
    assert "\x1b" not in said(console)


def test_a_finished_run_is_read_and_not_run_again(tmp_path, monkeypatch, without_type_checks):
    config = NodeClassification.of("gcn_star", **SMALL, out=tmp_path)
    first = run(config, plain())
    monkeypatch.setattr(node_run, "train", None)
    console = plain()
    assert run(config, console) == first
    assert "finished before (--fresh anew)" in said(console)
    with pytest.raises(ValueError, match=r"lr is 0\.001 there, 0\.1 here"):
        run(dataclasses.replace(config, lr=0.1), plain())


def test_fresh_runs_again(tmp_path, without_type_checks):
    config = NodeClassification.of("gcn_star", **SMALL, out=tmp_path)
    first = run(config, plain())
    second = run(dataclasses.replace(config, lr=0.1, fresh=True), plain())
    assert second["config"]["lr"] == 0.1
    assert first["metrics"] != second["metrics"]


@pytest.mark.parametrize(
    ("has_checkpoint", "words"),
    [
        (True, "the same command without --fresh goes on from its last checkpoint"),
        (False, "Stopped before the first checkpoint: the same command starts anew"),
    ],
)
def test_an_interrupted_run_says_how_to_go_on(
    has_checkpoint, words, tmp_path, monkeypatch, without_type_checks
):
    def stop(*args, **kwargs):
        if has_checkpoint:
            (tmp_path / "checkpoint.safetensors").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(node_run, "train", stop)
    console = plain()
    with pytest.raises(KeyboardInterrupt):
        run(NodeClassification.of("gcn_star", **SMALL, out=tmp_path), console)
    assert words in said(console)


def test_members_that_never_had_a_finite_loss_are_left_out_and_named(tmp_path, monkeypatch):
    outcome = node_run.Outcome(
        {"seed": [0, 1], "epoch": [3, -1], "test_accuracy": [0.5, float("nan")]}, 1.0, None
    )
    monkeypatch.setattr(node_run, "read_metrics", lambda path: [{"members": 2, **costs}])
    costs = dict.fromkeys(COSTS, 1.0)
    config = NodeClassification.of("gcn_star", **SMALL)
    folder = node_run.RunFolder(tmp_path, config)
    result = node_run._result(config, cora_linqs(), outcome, folder, 10)
    assert result["members"] == 1
    assert result["failed_seeds"] == [1]
    assert result["metrics"]["test_accuracy"] == {"mean": 0.5, "std": 0.0}
    assert "1 member failed and left out" in node_run._line(result)


def test_costs_are_means_over_the_epochs_that_have_them(tmp_path, monkeypatch):
    rows = [
        {"members": 2, "evaluations": 4.0, "backward_evaluations": 0.0},
        {"members": 2, **dict.fromkeys(COSTS, 6.0)},
        {"members": 1, **dict.fromkeys(COSTS, 9.0)},
    ]
    monkeypatch.setattr(node_run, "read_metrics", lambda path: rows)
    config = NodeClassification.of("gcn_star", **SMALL)
    outcome = node_run.Outcome({"seed": [0], "epoch": [3], "test_accuracy": [0.5]}, 1.0, None)
    folder = node_run.RunFolder(tmp_path, config)
    found = node_run._result(config, cora_linqs(), outcome, folder, 10)["evaluations"]
    assert found == pytest.approx(
        {"evaluations": 5.8, "backward_evaluations": 4.2, "evaluations_without_masks": 7.0}
    )


def test_the_table_of_settings_is_the_papers():
    rk4 = NodeClassification.of("gcde_rk4", "cora")
    assert (rk4.hidden, rk4.lr, rk4.weight_decay) == (64, 1e-3, 5e-4)
    assert (rk4.epochs, rk4.select_from, rk4.redraw) == (2000, 1000, "per_eval")
    assert (rk4.input_dropout, rk4.field_dropout) == (0.6, 0.9)
    pubmed = NodeClassification.of("gcde_dpr5", "pubmed")
    assert (pubmed.lr, pubmed.weight_decay, pubmed.redraw) == (1e-2, 1e-3, "per_solve")
    authors = NodeClassification.of("gcde_dpr5", "cora_linqs", "authors")
    assert (authors.redraw, authors.force, authors.layers) == ("per_eval", True, 1)
    kipf = NodeClassification.of("gcn", "pubmed")
    assert (kipf.hidden, kipf.lr, kipf.weight_decay, kipf.decay) == (16, 1e-2, 5e-4, "first_layer")


def test_the_tuned_preset_is_one_family():
    assert NodeClassification.defaults(["--preset", "tuned"]).model == "diffusion"
    for dataset in ("cora", "citeseer", "pubmed"):
        found = NodeClassification.of(dataset=dataset, preset="tuned")
        assert found.decays == {".flow.": found.field_decay, "": found.weight_decay}
    elsewhere = NodeClassification.of(dataset="cora_linqs", preset="tuned")
    assert elsewhere.alpha == NodeClassification.of(dataset="cora", preset="tuned").alpha
    with pytest.raises(ValueError, match=r"settings of diffusion only, but the model is 'gcn'\."):
        NodeClassification.of("gcn", preset="tuned")


def test_diffusion_has_a_layer_for_each_rate_and_a_gate():
    def built(**changes):
        return builder(NodeClassification.of("diffusion", hidden=6, **changes), 5, 3)(0)

    model = built(input_dropout=0.4, readout_dropout=0.7, node_dropout=0.1)
    assert [layer.dropout.rate for layer in model.encoder.map.layers] == [0.4, 0.7]
    assert model.encoder.node_dropout.rate == 0.1
    assert model.flow.field.weight.shape == (3, 1)
    shapes = [tuple(p.shape) for p in built(layers=1).encoder.parameters()]
    assert shapes == [(5, 3), (3,)]


def test_the_weight_of_gcnii_may_change_with_depth():
    def built(**changes):
        return builder(NodeClassification.of("gcnii", hidden=4, t1=8.0, **changes), 5, 3)(0)

    one, layered, smooth = built(layers=1), built(layers=8), built(layers=1, depth_terms=2)
    counts = [sum(p.numel() for p in model.flow.parameters()) for model in (one, layered, smooth)]
    assert counts == [4 * 4, 8 * 4 * 4, 3 * 4 * 4]
    assert layered.flow.field.t1 == 8.0
    assert isinstance(smooth.flow.field, DepthVarying)
    assert smooth.flow.field.t1 == 8.0


def test_models_differ_by_one_matrix_as_in_the_papers_source():
    """Which counts 184, 188 and 192 thousand parameters on Cora: 64 · 64 more each time."""
    counts = []
    for model in ("gcn_star", "gcde_dpr5", "cgcde_dpr5"):
        build = builder(NodeClassification.of(model, "cora"), 1433, 7)
        counts.append(sum(p.numel() for p in build(0).parameters() if p.ndim == 2))
    assert counts[0] == 1433 * 64 + 64 * 7
    assert [b - a for a, b in itertools.pairwise(counts)] == [64 * 64] * 2


def test_other_epochs_move_the_selection_along():
    assert NodeClassification.of("gcde_rk4", epochs=30).select_from == 15
    assert NodeClassification.defaults(["--epochs", "30"]).select_from == 15
    with pytest.raises(ValueError, match=r"`select_from` must be one of the epochs, 0 to 29"):
        NodeClassification.of("gcde_rk4", epochs=30, select_from=30)


def test_the_objective_is_cross_entropy_and_accuracy_by_hand():
    data = cora_linqs()
    task = NodeObjective.of(data, torch.device("cpu"))
    ensemble = Ensemble(builder(NodeClassification.of("gcn_star", hidden=3), 1433, 7), [0, 1])
    ensemble.eval()
    logits = ensemble(task.x, task.graph)
    for member in range(2):
        right = logits[member].log_softmax(-1)[data.train, data.labels[data.train]]
        torch.testing.assert_close(task.loss(ensemble)[member], -right.mean())
        hits = logits[member].argmax(-1)[data.test] == data.labels[data.test]
        torch.testing.assert_close(
            task.measure(ensemble)["test_accuracy"][member], hits.double().mean()
        )


def test_a_device_that_is_not_here_is_named():
    with pytest.raises(ValueError, match="Unknown device 'gpu'"):
        find_device("gpu")
    with pytest.raises(ValueError, match=r"no device 'cuda:99' here.*--device cpu"):
        find_device("cuda:99")


def test_determinism_ends_with_its_context():
    with determinism(True):
        assert torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_command_line_runs_and_prints_a_result(tmp_path, capsys, without_type_checks):
    settings = {"model": "gcn_star", "epochs": 4, "hidden": 4, "members": 2, "chunk": 2}
    flags = [f"--{name}={value}" for name, value in settings.items()]
    cli.main(["run", "node-classification", *flags, "--device=cpu", f"--out={tmp_path}"])
    assert "gcn_star on cora_linqs (authors split): test accuracy" in capsys.readouterr().out
    assert json.loads((tmp_path / "config.json").read_text())["select_from"] == 2


def test_help_shows_the_preset_that_is_asked_for(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["run", "node-classification", "--dataset", "pubmed", "--help"])
    assert stop.value.code == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "Adam's learning rate. (default: 0.01)" in shown
    assert "--checkpoint-seconds" in shown


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--model", "gat9"], "Unknown model 'gat9'. Choose one of: gcn, gcn_star"),
        (["--preset", "mine"], "Unknown preset 'mine'. Choose one of: printed, authors"),
        (["--dataset", "reddit"], "Unknown data set 'reddit'"),
        (["--members", "0"], "`members` must be 1 or more"),
        (["--device", "tpu!"], "Unknown device 'tpu!'"),
    ],
)
def test_mistakes_on_the_command_line_are_explained(
    tmp_path, capsys, flags, message, without_type_checks
):
    with pytest.raises(SystemExit) as stop:
        cli.main(["run", "node-classification", "--out", str(tmp_path), *flags])
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert message in " ".join((captured.err + captured.out).split())


def test_interrupting_the_command_line_is_no_traceback(monkeypatch):
    def stop(config):
        raise KeyboardInterrupt

    monkeypatch.setattr(node_run, "run", stop)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["run", "node-classification"])
    assert stopped.value.code == 130


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weight_decay", float("nan")),
        ("weight_decay", -0.1),
        ("field_decay", float("inf")),
        ("checkpoint_seconds", float("nan")),
        ("trajectories", -3),
        ("rtol", 0.0),
        ("t1", 0.0),
        ("t1", float("nan")),
        ("seed", 2**63),
    ],
)
def test_numbers_that_mean_nothing_are_refused_before_training(name, value):
    with pytest.raises(ValueError, match=f"`{name}`"):
        NodeClassification.of("gcde_dpr5", "cora_linqs", **{name: value})


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("gcn", {"solver": "rk4"}),
        ("gcn_star", {"t1": 2.0}),
        ("gcde_rk4", {"alpha": 0.3}),
        ("diffusion", {"mixing": 3.0}),
        ("gcnii", {"node_dropout": 0.2}),
        ("gcde_rk4", {"decay": "first_layer", "field_decay": 0.1}),
    ],
)
def test_settings_without_an_effect_are_refused(model, settings):
    *_, name = settings
    with pytest.raises(ValueError, match=f"`{name}` .*has no effect"):
        NodeClassification.of(model, "cora_linqs", **settings)


@pytest.mark.parametrize("chunk", [1, 3])
def test_a_member_that_diverges_last_keeps_no_run_from_its_result(tmp_path, monkeypatch, chunk):
    """Its parameters are no numbers: the paths of its embeddings are left out."""
    loss = NodeObjective.loss

    def exploding(objective, ensemble):
        of_last = torch.as_tensor(ensemble.seeds) == 2
        return torch.where(of_last, torch.nan, loss(objective, ensemble))

    monkeypatch.setattr(NodeObjective, "loss", exploding)
    settings = {**SMALL, "members": 3}
    config = NodeClassification.of("gcde_rk2", **settings, out=tmp_path, chunk=chunk)
    result = run(config, plain())
    assert result["failed_seeds"] == [2]
    assert result["diverged"] == {"2": 0}
    assert result["members"] == 2
    assert (tmp_path / "arrays.npz").exists() == (chunk == 3)
