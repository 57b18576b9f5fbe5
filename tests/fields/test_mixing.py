"""Mixing channels is a matrix product, however a state lies in memory."""

import pytest
import torch
from torch.autograd import gradcheck

from graphode.fields.fused_convolution import mix


def by_node(*shape: int) -> torch.Tensor:
    """A state whose nodes come first in memory, as a sparse product of samples leaves it."""
    *lead, nodes, channels = shape
    return torch.randn(nodes, *lead, channels).movedim(0, -2)


@pytest.mark.parametrize("shape", [(6, 3), (4, 6, 3), (2, 4, 6, 3)])
@pytest.mark.parametrize("state", [by_node, torch.randn])
def test_a_state_is_mixed_where_it_lies(state, shape):
    h, weight = state(*shape).requires_grad_(), torch.randn(3, 5, requires_grad=True)
    u = mix(h, weight)
    torch.testing.assert_close(u, torch.einsum("...c,cd->...d", h, weight))
    strides = h.stride()
    order = sorted(range(h.ndim), key=lambda dim: -strides[dim])
    assert u.permute(order).is_contiguous()
    assert gradcheck(mix, (h, weight))


def test_states_are_mapped_wherever_their_nodes_lie():
    h, weight = by_node(4, 6, 3), torch.randn(2, 3, 5)
    each = torch.func.vmap(lambda w: mix(h, w))(weight)
    torch.testing.assert_close(each, torch.stack([mix(h, w) for w in weight]))
    lone = torch.func.vmap(lambda sample: mix(sample, weight[0]))(h)
    torch.testing.assert_close(lone, mix(h, weight[0]))
