"""Killed runs go on on a GPU too, where epochs are replays of a recorded program."""

import pytest
import torch

from graphode.experiments import node_run, traffic_run
from graphode.experiments.node_classification import NodeClassification
from graphode.experiments.run_folder import METRICS
from graphode.experiments.traffic import TrafficForecast
from tests.experiments.consoles import CutDisplay, plain

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")

CHECKPOINTS = {"device": "cuda", "checkpoint_seconds": 0.0}


@pytest.fixture(autouse=True)
def float32():
    """What runs are made in. In float64 products are torch's, whose order of sums may change."""
    torch.set_default_dtype(torch.float32)


def ends_with_the_same_bits(module, settings, tmp_path, monkeypatch) -> bool:
    console = plain()
    module.run(settings(out=tmp_path / "whole"), console)
    with monkeypatch.context() as cut:
        cut.setattr(module, "display", CutDisplay)
        with pytest.raises(KeyboardInterrupt):
            module.run(settings(out=tmp_path / "cut"), console)
    module.run(settings(out=tmp_path / "cut"), console)
    whole, resumed = ((tmp_path / name / METRICS).read_bytes() for name in ("whole", "cut"))
    assert whole.count(b"\n") == 9
    return whole == resumed


@pytest.mark.parametrize("model", ["gcn_star", "gcde_rk4", "gcde_dpr5", "diffusion"])
def test_interrupted_node_classification_ends_with_the_same_bits(
    model, tmp_path, monkeypatch, without_type_checks
):
    def settings(**changes):
        few = {
            "members": 3,
            "chunk": 3,
            "epochs": 9,
            "select_from": 5,
            "log_every": 3,
            **CHECKPOINTS,
        }
        return NodeClassification.of(model, "cora_linqs", **few, **changes)

    assert ends_with_the_same_bits(node_run, settings, tmp_path, monkeypatch)


@pytest.mark.parametrize("model", ["gcgru", "gcde_gru"])
def test_interrupted_traffic_ends_with_the_same_bits(
    model, tmp_path, monkeypatch, without_type_checks
):
    def settings(**changes):
        small = {"sensors": 6, "days": 4, "hidden": 8, "masks": 1, "members": 2, "chunk": 2}
        return TrafficForecast.of(model, "simulated", epochs=9, **small, **CHECKPOINTS, **changes)

    assert ends_with_the_same_bits(traffic_run, settings, tmp_path, monkeypatch)
