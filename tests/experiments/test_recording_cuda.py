"""A GPU evaluates an epoch beside the teaching of the next, with the same results."""

import functools

import pytest
import torch

import graphode as gd
from graphode.data import load_node_data
from graphode.experiments.node_run import NodeObjective
from graphode.experiments.recording import Recording
from graphode.experiments.trainer import Trainer, Training

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")

EPOCHS = 12


@pytest.mark.parametrize("make", [gd.GCN.star, gd.GCDE.rk4, gd.GCDE.dpr5])
def test_a_block_of_epochs_is_the_epochs_one_by_one(make, without_type_checks):
    torch.set_default_dtype(torch.float32)
    device = torch.device("cuda")
    objective = NodeObjective.of(load_node_data("cora_linqs"), device)
    features, classes = objective.x.shape[1], int(objective.labels.max()) + 1

    def trained(block: int) -> Trainer:
        ensemble = gd.Ensemble(lambda seed: make(features, 64, classes), range(3)).to(device)
        training = Training(
            epochs=EPOCHS, lr=0.01, weight_decay=5e-4, select_from=0, log_every=EPOCHS
        )
        trainer = Trainer(ensemble, objective, training)
        recording = Recording(trainer, functools.partial(gd.capture, device=device))
        for _ in range(EPOCHS // block):
            recording(block)
        return trainer

    together, one_by_one = trained(EPOCHS), trained(1)
    for name, tensor in one_by_one.state().items():
        assert tensor.equal(together.state()[name]), name
    rows = together.read(0, EPOCHS)
    assert not rows.isnan().any()
    assert rows.equal(one_by_one.read(0, EPOCHS))
