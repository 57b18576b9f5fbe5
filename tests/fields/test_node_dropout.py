"""Dropout of whole nodes."""

import pytest
import torch

import graphode as gd
from graphode.fields.fused_convolution import mix


def test_a_node_is_dropped_with_all_its_channels_or_scaled():
    with gd.stochastic(0, 0):
        kept = gd.NodeDropout(0.25)(torch.ones(2, 500, 3))
    assert torch.equal(kept, kept[..., :1].expand_as(kept))
    assert torch.equal(kept[0], kept[1])  # samples share a mask unless they are named
    torch.testing.assert_close(kept.unique(), torch.tensor([0.0, 4 / 3]))
    assert 0.65 < (kept[0, :, 0] > 0).double().mean() < 0.85


def test_a_member_has_the_mask_it_has_alone():
    h = torch.rand(2, 40, 3)
    dropout = gd.NodeDropout(0.5)

    def dropped(seed):
        with gd.stochastic(seed, 3):
            return dropout(h[0])

    together = torch.func.vmap(dropped)(torch.tensor([5, 6]))
    assert torch.equal(together, torch.stack([dropped(5), dropped(6)]))
    assert not torch.equal(together[0], together[1])


@pytest.mark.parametrize("rate", [0.5, 0.9])
def test_where_entries_are_dropped_in_a_fused_product_nodes_are_dropped_as_nodes(rate):
    h, weight = torch.rand(3000, 64), torch.rand(64, 8)
    dropout = gd.NodeDropout(rate)
    with gd.stochastic(0, 0):
        torch.testing.assert_close(mix(h, weight, dropout), dropout(h) @ weight)


def test_nothing_is_dropped_in_evaluation_and_rates_are_checked():
    h = torch.rand(4, 2)
    assert gd.NodeDropout(0.5).eval()(h) is h
    with pytest.raises(ValueError, match="at least 0 and below 1, but is 1"):
        gd.NodeDropout(1.0)
