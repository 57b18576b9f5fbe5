"""Readouts of whole graphs: a batch is its graphs."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

import graphode as gd
from graphode import models as M
from graphode.graphs import Graph
from tests.models.registry import random_graph

POOLS: dict[str, Callable[[], nn.Module]] = {
    "sum": lambda: M.GlobalPool("sum"),
    "mean": lambda: M.GlobalPool("mean"),
    "max": lambda: M.GlobalPool("max"),
    "attention": lambda: M.AttentionPool(3),
    "attention-deep": lambda: M.AttentionPool(
        3, nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), nn.Linear(3, 3)
    ),
    "readout": lambda: M.PooledReadout("sum", nn.Linear(3, 2)),
    "readout-attention": lambda: M.PooledReadout(M.AttentionPool(3), nn.Linear(3, 2)),
}
every_pool = pytest.mark.parametrize("build", POOLS.values(), ids=POOLS.keys())


def by_hand(how: str, h: torch.Tensor) -> torch.Tensor:
    return {"sum": h.sum(-2), "mean": h.mean(-2), "max": h.amax(-2)}[how]


@pytest.mark.parametrize("how", ["sum", "mean", "max"])
def test_pooling_is_what_its_name_says(how: str):
    h = torch.randn(2, 6, 3)
    torch.testing.assert_close(M.GlobalPool(how)(h, random_graph()), by_hand(how, h))


def test_attention_is_a_softmax_over_the_nodes_of_each_graph():
    pool, h = M.AttentionPool(3), torch.randn(6, 3)
    weights = torch.softmax(h @ pool.score.weight, 0)
    torch.testing.assert_close(pool(h, random_graph()), (weights * h).sum(0))
    torch.testing.assert_close(pool(h + 1000, random_graph()), pool(h, random_graph()) + 1000)


@every_pool
def test_batched_equals_one_by_one(build):
    pool = build()
    ragged = [random_graph(n, n) for n in (3, 1, 6)]
    parts = [torch.randn(2, graph.num_nodes, 3) for graph in ragged]
    separately = [pool(h, graph) for h, graph in zip(parts, ragged, strict=True)]
    together = pool(torch.cat(parts, 1), Graph.batch(ragged))
    torch.testing.assert_close(together, torch.stack(separately, 1))

    equal = Graph.batch([random_graph(4, seed) for seed in range(3)])
    h = torch.randn(2, 3, 4, 3)
    separately = [pool(h[:, k], graph) for k, graph in enumerate(equal.unbatch())]
    torch.testing.assert_close(pool(h, equal), torch.stack(separately, 1))
    torch.testing.assert_close(pool(h.flatten(1, 2), equal), torch.stack(separately, 1))


@every_pool
def test_a_batch_of_one_keeps_its_dimension(build):
    pool, graph, h = build(), random_graph(), torch.randn(6, 3)
    alone, batch = pool(h, graph), Graph.batch([graph])
    assert alone.ndim == 1
    torch.testing.assert_close(pool(h, batch), alone[None])
    torch.testing.assert_close(pool(h[None], batch), alone[None])


@every_pool
def test_the_order_of_nodes_makes_no_difference(build):
    pool, graph, h = build(), random_graph(), torch.randn(6, 3)
    torch.testing.assert_close(pool(h[torch.randperm(6)], graph), pool(h, graph))


@pytest.mark.parametrize("name", ["sum", "mean", "max", "attention"])
def test_graphs_without_nodes_read_as_zeros(name: str):
    pool, empty = POOLS[name](), Graph(torch.empty(2, 0, dtype=torch.int64), 0)
    h = torch.randn(6, 3, requires_grad=True)
    pooled = pool(h, Graph.batch([empty, random_graph(), empty]))
    assert torch.equal(pooled[[0, 2]], torch.zeros(2, 3))
    torch.testing.assert_close(pooled[1], pool(h, random_graph()))
    pooled.sum().backward()
    assert h.grad is not None
    assert h.grad.isfinite().all()
    assert torch.equal(pool(torch.empty(0, 3), empty), torch.zeros(3))
    assert torch.equal(pool(torch.empty(2, 0, 3), Graph.batch([empty, empty])), torch.zeros(2, 3))


@every_pool
def test_gradients_are_right(build):
    pool = build()
    batch = Graph.batch([random_graph(n, n) for n in (3, 4)])
    torch.autograd.gradcheck(lambda h: pool(h, batch), (torch.randn(7, 3, requires_grad=True),))
    pool(torch.randn(7, 3, requires_grad=True), batch).square().sum().backward()
    for name, parameter in pool.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_a_model_of_graphs_equals_one_by_one():
    flow = gd.Flow(gd.GraphConvField([3, 5, 3]), solver="rk4", num_steps=2)
    readout = M.PooledReadout(M.AttentionPool(3), nn.Linear(3, 2))
    model = M.GDE(encoder=M.GraphConvEncoder(4, 3), flow=flow, readout=readout).eval()
    graphs = [random_graph(n, n).normalize("sym") for n in (5, 2, 4)]
    parts = [torch.randn(graph.num_nodes, 4) for graph in graphs]
    separately = [model(x, graph) for x, graph in zip(parts, graphs, strict=True)]
    together = model(torch.cat(parts), Graph.batch(graphs))
    assert together.shape == (3, 2)
    torch.testing.assert_close(together, torch.stack(separately))


def test_a_graph_with_edge_attributes_is_pooled_as_the_graph_inside():
    batch = Graph.batch([random_graph(3), random_graph(5)])
    h, attributes = torch.randn(8, 4), torch.randn(batch.num_edges, 2)
    for pool in ("sum", "mean", "max", M.AttentionPool(4)):
        readout = M.PooledReadout(pool)
        assert torch.equal(readout(h, gd.AttributedGraph(batch, attributes)), readout(h, batch))


def test_errors_name_the_remedy(without_type_checks: None):
    with pytest.raises(ValueError, match=r"Unknown pooling 'median'. Choose one of: max, mean, s"):
        M.PooledReadout("median")
    with pytest.raises(ValueError, match=r"graph's 6 nodes \(1 graphs\), but .* \[5, 3\]. Pool wi"):
        M.GlobalPool()(torch.randn(5, 3), random_graph())
    with pytest.raises(ValueError, match=r"one number a node, shape \[6, 1\], but gave \[6, 2\]"):
        M.AttentionPool(3, nn.Linear(3, 2))(torch.randn(6, 3), random_graph())
