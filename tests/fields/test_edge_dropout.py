"""Dropout of edges: every field moves as on a graph that has fewer of them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import graphode as gd
from graphode import fields as F
from graphode.flows.stochastic import SolveNoise, noise_of
from graphode.graphs import DenseGraph, Graph, scaled_laplacian
from tests.fields.registry import mlp


def pyg(name: str, **options: object) -> Callable[[], nn.Module]:
    """A layer of PyG as a field."""

    def build() -> nn.Module:
        layers = pytest.importorskip("torch_geometric.nn")
        return F.ConvField(getattr(layers, name)(4, 4, **options))

    return build


FIELDS: dict[str, Callable[[], nn.Module]] = {
    "convolution": lambda: F.GraphConvField([4, 5, 4]),
    "messages": lambda: F.MessagePassingField(mlp(8, 4)),
    "gat": lambda: F.AttentionField(4, 2),
    "gatv2": lambda: F.AttentionField(4, 2, scores="gatv2"),
    "grand": lambda: F.GRANDField(4, heads=2),
    "PyG with weights": pyg("GCNConv"),
    "PyG with weights, mean": pyg("GraphConv", aggr="mean"),
    "PyG without weights": pyg("GATConv"),
    "PyG without weights, mean": pyg("SAGEConv"),
}
every_field = pytest.mark.parametrize("build", FIELDS.values(), ids=FIELDS.keys())
MAPPED = ["convolution", "gat", "gatv2", "grand", "PyG with weights"]
BLIND = ["gat", "gatv2", "grand", "PyG without weights", "PyG without weights, mean"]
every_rate = pytest.mark.parametrize("rate", [0.1, 0.8])


def complete(nodes: int = 8) -> Graph:
    return Graph.from_dense(torch.rand(nodes, nodes) + 0.5)


def without_loops() -> Graph:
    return Graph.from_dense(complete().to_dense().fill_diagonal_(0))


def with_zeros(graph: Graph) -> Graph:
    """The same edges, of which a third weigh 0."""
    return graph.reweight(graph.edge_weight * (torch.arange(graph.num_edges) % 3 > 0))


def thinned(graph: Graph, seed: int | Tensor = 0, rate: float = 0.6) -> Graph:
    with gd.stochastic(seed):
        return gd.EdgeDropout(rate)(graph)


def with_fewer(graph: Graph) -> Graph:
    """The same graph without the edges that weigh 0, built anew."""
    kept = graph.edge_weight != 0
    return Graph(graph.edge_index[:, kept], graph.num_nodes, graph.edge_weight[kept].detach())


def mask_of(graph: Graph, seed: int, rate: float = 0.6) -> Tensor:
    """What the weights of edges are multiplied by: 0 for those that are dropped."""
    return thinned(graph.reweight(torch.ones(graph.num_edges)), seed, rate).edge_weight


def with_kept(graph: Graph, mask: Tensor) -> Graph:
    """The graph of the edges that a mask keeps, whatever they weigh, built anew."""
    kept = mask > 0
    return Graph(graph.edge_index[:, kept], graph.num_nodes, (graph.edge_weight * mask)[kept])


@every_field
def test_a_field_moves_as_on_a_graph_of_fewer_edges(build: Callable[[], nn.Module]):
    field, graph = build(), thinned(complete())
    fewer, h = with_fewer(graph), torch.randn(3, 8, 4)
    assert fewer.num_edges < graph.num_edges
    torch.testing.assert_close(field(0.0, h, graph), field(0.0, h, fewer))
    expected = field(0.0, h, fewer.normalize("sym"))
    torch.testing.assert_close(field(0.0, h, graph.normalize("sym")), expected)


@every_field
def test_what_is_made_of_such_a_graph_has_no_more_edges(build: Callable[[], nn.Module]):
    field, graph = build(), thinned(complete())
    fewer, h = with_fewer(graph), torch.randn(2, 8, 4)
    pairs: list[tuple[Graph, Graph]] = [
        (graph.reverse(), fewer.reverse()),
        (graph.subgraph(range(8)), fewer.subgraph(range(8))),
        (Graph.batch([graph, complete()]).unbatch()[0], fewer),
        (gd.EdgeDropout(0.5).eval()(graph), fewer),
        (graph.to(dtype=torch.float32), fewer.to(dtype=torch.float32)),
        (thinned(graph, seed=5), with_fewer(thinned(graph, seed=5))),
    ]
    for given, expected in pairs:
        torch.testing.assert_close(field(0.0, h, given), field(0.0, h, expected))


@every_field
@pytest.mark.parametrize("gradient", ["backprop", "adjoint"])
def test_gradients_are_those_on_a_graph_of_fewer_edges(
    build: Callable[[], nn.Module], gradient: str
):
    field, graph = build(), complete()
    weight = graph.edge_weight.clone().requires_grad_()
    flow = gd.Flow(field, solver="rk4", num_steps=2, gradient=gradient)
    h = torch.randn(8, 4, requires_grad=True)
    given = thinned(graph.reweight(weight))
    wanted = [h, *field.parameters()]
    found = torch.autograd.grad(flow(h, given).square().sum(), wanted)
    expected = torch.autograd.grad(flow(h, with_fewer(given)).square().sum(), wanted)
    torch.testing.assert_close(found, expected)


@every_field
@every_rate
def test_an_edge_that_weighs_0_is_there_until_it_is_dropped(
    build: Callable[[], nn.Module], rate: float
):
    field, graph, h = build(), with_zeros(complete()), torch.randn(3, 8, 4)
    mask, other = mask_of(graph, 0, rate), mask_of(graph, 1, rate)
    given, fewer = thinned(graph, 0, rate), with_kept(graph, mask)
    assert given.edge_weight.count_nonzero() < fewer.num_edges < graph.num_edges
    backwards = range(7, -1, -1)
    pairs: list[tuple[Graph, Graph]] = [
        (given, fewer),
        (given.normalize("sym"), fewer.normalize("sym")),
        (given.reverse(), fewer.reverse()),
        (given.subgraph(backwards), fewer.subgraph(backwards)),
        (given.to(dtype=torch.float32), fewer.to(dtype=torch.float32)),
        (thinned(given, 1, rate), with_kept(graph, mask * other)),
    ]
    for one, expected in pairs:
        torch.testing.assert_close(field(0.0, h, one), field(0.0, h, expected))


NORMALISED: dict[str, Callable[[Graph], Graph]] = {
    "no new loops": lambda graph: graph.normalize("rw", self_loops=False),
    "new loops": lambda graph: graph.normalize("rw"),
    "laplacian": lambda graph: graph.normalize("laplacian"),
    "scaled laplacian": scaled_laplacian,
}


@pytest.mark.parametrize("name", BLIND)
@pytest.mark.parametrize("kind", NORMALISED)
def test_what_was_dropped_before_a_graph_was_normalised_stays_dropped(name: str, kind: str):
    field, graph, h = FIELDS[name](), with_zeros(complete()), torch.randn(8, 4)
    graph = with_kept(graph, graph.edge_index.any(0).double())  # node 0 has no loop
    given = NORMALISED[kind](thinned(graph, 0))
    first = torch.ones(given.num_edges)
    first[: graph.num_edges] = mask_of(graph, 0).sign()
    if kind != "no new loops":  # every node has one
        first[given.edge_index[0] == given.edge_index[1]] = 1
    expected = with_kept(given, first * mask_of(given, 1))
    torch.testing.assert_close(field(0.0, h, thinned(given, 1)), field(0.0, h, expected))


@every_field
def test_a_batch_knows_of_which_graph_edges_were_dropped(build: Callable[[], nn.Module]):
    field, graph, h = build(), with_zeros(complete()), torch.randn(2, 8, 4)
    fewer = with_kept(graph, mask_of(graph, 0))
    batch = Graph.batch([thinned(graph), graph])
    alone = torch.stack([field(0.0, h[0], fewer), field(0.0, h[1], graph)])
    torch.testing.assert_close(field(0.0, h, batch), alone)
    parts = [field(0.0, *each) for each in zip(h, batch.unbatch(), strict=True)]
    torch.testing.assert_close(torch.stack(parts), alone)


@every_rate
@pytest.mark.parametrize("name", MAPPED)
def test_mapped_graphs_have_masks_of_their_own(name: str, rate: float):
    field, h, seeds = FIELDS[name](), torch.randn(8, 4), torch.arange(3)
    graph = with_zeros(without_loops())
    alone = torch.stack(
        [field(0.0, h, with_kept(graph, mask_of(graph, int(seed), rate))) for seed in seeds]
    )
    inside = torch.func.vmap(lambda seed: field(0.0, h, thinned(graph, seed, rate)))(seeds)
    torch.testing.assert_close(inside, alone)
    graphs = torch.func.vmap(lambda seed: thinned(graph, seed, rate))(seeds)
    torch.testing.assert_close(torch.func.vmap(lambda own: field(0.0, h, own))(graphs), alone)


class OnFewerEdges(nn.Module):
    """A field that loses edges."""

    def __init__(self, field: nn.Module, rate: float) -> None:
        super().__init__()
        self.field, self.edges = field, gd.EdgeDropout(rate)

    def forward(self, t: float | Tensor, h: Tensor, graph: Graph) -> Tensor:
        return self.field(t, h, self.edges(graph))


@every_rate
@pytest.mark.parametrize("name", ["gat", "gatv2", "PyG without weights"])
@pytest.mark.filterwarnings("ignore:OnFewerEdges cannot be mapped")
def test_members_of_an_ensemble_have_masks_of_their_own(name: str, rate: float):
    def build(seed: int) -> gd.Flow:
        return gd.Flow(OnFewerEdges(FIELDS[name](), rate), solver="euler", num_steps=2)

    graph, h = with_zeros(without_loops()), torch.randn(8, 4)
    ensemble = gd.Ensemble(build, range(3))
    with gd.stochastic(ensemble.seeds, 7):
        together = ensemble(h, graph)
    for index in range(3):
        lone = ensemble.member(index)
        edges = lone.get_submodule("field.edges")
        with gd.stochastic(index, 7), noise_of(SolveNoise()):
            mask = edges(graph.reweight(torch.ones(graph.num_edges))).edge_weight
        torch.testing.assert_close(together[index], lone.eval()(h, with_kept(graph, mask)))


@pytest.mark.parametrize("name", MAPPED)
def test_members_drop_the_edges_they_drop_alone(name: str):
    field, h, seeds = FIELDS[name](), torch.randn(8, 4), torch.arange(3)
    graph = without_loops()
    together = torch.func.vmap(lambda seed: field(0.0, h, thinned(graph, seed)))(seeds)
    alone = torch.stack([field(0.0, h, thinned(graph, int(seed))) for seed in seeds])
    torch.testing.assert_close(together, alone)
    assert not torch.equal(together[0], together[1])


def test_one_solve_has_one_graph():
    class Loses(F.AttentionField):
        def __init__(self) -> None:
            super().__init__(4)
            self.edges = gd.EdgeDropout(0.6)

        def forward(self, t: float | Tensor, h: Tensor, graph: Graph) -> Tensor:
            return super().forward(t, h, self.edges(graph))

    field, graph, h = Loses(), complete(), torch.randn(8, 4)
    flow = gd.Flow(field)
    with gd.stochastic(3):
        moved = flow(h, graph)
        with noise_of(SolveNoise()):
            fewer = with_fewer(field.edges(graph))
    field.eval()
    torch.testing.assert_close(moved, flow(h, fewer))
    assert not torch.allclose(moved, flow(h, graph))


def test_edges_of_a_matrix_are_dropped_too():
    graph = complete()
    dense = thinned(DenseGraph.from_graph(graph))
    torch.testing.assert_close(dense.to_dense(), thinned(graph).to_dense())


def test_what_cannot_be_dropped_is_refused():
    pytest.importorskip("torch_geometric")
    graph, h = complete(), torch.randn(8, 4)
    with (
        gd.stochastic(0, sample=torch.arange(2)),
        pytest.raises(ValueError, match=r"same edges for all samples.* Leave out `sample` of"),
    ):
        gd.EdgeDropout(0.5)(graph)
    field = FIELDS["PyG without weights"]()
    with pytest.raises(ValueError, match=r"GATConv takes no edge weights.*or use `AttentionField`"):
        torch.func.vmap(lambda seed: field(0.0, h, thinned(graph, seed)))(torch.arange(2))
