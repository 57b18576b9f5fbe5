"""Products of many samples: as columns of one product or as they are, the same numbers."""

import pytest
import torch

from graphode.graphs import Graph, kernels

SHAPES = [(3,), (2, 3), (1,), (0,)]


@pytest.fixture(params=["joined", "apart"], autouse=True)
def way(request, monkeypatch):
    """Both ways, whatever the size."""
    monkeypatch.setattr(kernels, "LARGE_PRODUCT", 0 if request.param == "apart" else 1 << 60)


def matrix(nodes=7):
    return torch.rand(nodes, nodes) * (torch.rand(nodes, nodes) < 0.4)


@pytest.mark.parametrize("lead", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_sample_is_multiplied(lead, dtype):
    a = matrix().to(dtype)
    h = torch.randn(*lead, 7, 4, dtype=dtype)
    torch.testing.assert_close(Graph.from_dense(a).propagate(h), a @ h)


def test_gradients_of_every_order_reach_states_and_weights():
    dense = matrix()
    graph = Graph.from_dense(dense)

    def product(h, weight):
        return graph.reweight(weight).propagate(h)

    inputs = (torch.randn(2, 7, 3, requires_grad=True), graph.edge_weight.clone().requires_grad_())
    assert torch.autograd.gradcheck(product, inputs)
    assert torch.autograd.gradgradcheck(product, inputs)


def test_constant_weights_pass_the_gradient_back():
    a = matrix()
    h = torch.randn(3, 7, 2, requires_grad=True)
    assert torch.autograd.gradcheck(Graph.from_dense(a).propagate, (h,))


@pytest.mark.parametrize("lead", [(), (3,)])
def test_vmap_over_states_gives_what_a_loop_gives(lead):
    a = matrix()
    graph = Graph.from_dense(a)
    h = torch.randn(5, *lead, 7, 2)
    torch.testing.assert_close(torch.func.vmap(graph.propagate)(h), a @ h)
    last = torch.func.vmap(graph.propagate, in_dims=-1)(h.movedim(0, -1))
    torch.testing.assert_close(last, a @ h)


def test_vmap_of_gradients_gives_what_a_loop_gives():
    a = matrix()
    graph = Graph.from_dense(a)
    h = torch.randn(4, 2, 7, 3)
    pulled = torch.func.vmap(torch.func.grad(lambda x: graph.propagate(x).square().sum()))(h)
    torch.testing.assert_close(pulled, 2 * a.T @ (a @ h))
