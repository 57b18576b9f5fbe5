"""When to stop is decided by halves of the validation nodes: one chooses, the other measures."""

import sys
from pathlib import Path

import pytest
import torch

from graphode.data import cora_linqs
from graphode.experiments.node_classification import NodeClassification

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import early_stopping


@pytest.mark.parametrize(
    ("patience", "epoch"), [(1, 0), (2, 2), (3, 2), (4, 6), (None, 6)], ids=str
)
def test_a_patience_ends_the_search_for_the_lowest_loss(patience, epoch):
    losses = [3.0, 4.0, 2.0, 2.5, 2.5, 2.5, 1.0]
    assert early_stopping.chosen_epoch(losses, patience) == epoch


def test_halves_share_no_node_and_take_turns():
    nodes = torch.arange(100, 131)
    pairs = early_stopping.halves_of(nodes)
    assert len(pairs) == 2 * early_stopping.SPLITS
    for (first, second), (swapped_first, swapped_second) in zip(
        pairs[::2], pairs[1::2], strict=True
    ):
        assert torch.cat([first, second]).sort().values.equal(nodes)
        assert first.equal(swapped_second)
        assert second.equal(swapped_first)
    assert len({tuple(first.tolist()) for first, _ in pairs}) == len(pairs)


def test_the_half_that_measures_does_not_choose():
    member = {"losses": [[2.0, 1.0], [1.0, 2.0]], "accuracies": [[0.9, 0.1], [0.2, 0.8]]}
    assert early_stopping.accuracies(member, None) == [0.1, 0.2]


def test_a_member_is_measured_at_every_epoch_without_test_labels(without_type_checks):
    changes = {"epochs": 3, "patience": None, "hidden": 4}
    config = NodeClassification.of("diffusion", "cora_linqs", **changes)
    found = []
    for shift in (0, 1):
        data = cora_linqs()
        data.labels[data.test] = (data.labels[data.test] + shift) % data.num_classes
        found.append(early_stopping.trained(config, data, 1000, torch.device("cpu")))
    assert found[0] == found[1]
    assert {len(losses) for losses in found[0]["losses"]} == {3}
    assert all(0 <= accuracy <= 1 for row in found[0]["accuracies"] for accuracy in row)
