"""Our layers equal PyG's, and PyG's layers are fields."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

import graphode as gd
from graphode import fields as F
from graphode.fields import gatv2_scores
from graphode.graphs import Graph
from tests.fields.registry import mlp, weighted_graph

pyg = pytest.importorskip("torch_geometric.nn")


class WithEdges(nn.Module):
    """A layer that takes edge attributes, as PyG users write them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = pyg.GATv2Conv(4, 4, edge_dim=2)

    def forward(self, x, edge_index, edge_attr):
        return self.layer(x, edge_index, edge_attr)


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "AGNNConv": lambda: pyg.AGNNConv(),
    "APPNP": lambda: pyg.APPNP(K=3, alpha=0.1),
    "ARMAConv": lambda: pyg.ARMAConv(4, 4),
    "AntiSymmetricConv": lambda: pyg.AntiSymmetricConv(4),
    "CGConv": lambda: pyg.CGConv(4),
    "ChebConv": lambda: pyg.ChebConv(4, 4, K=3),
    "ClusterGCNConv": lambda: pyg.ClusterGCNConv(4, 4),
    "EGConv": lambda: pyg.EGConv(4, 4, num_heads=2),
    "EdgeConv": lambda: pyg.EdgeConv(mlp(8, 4)),
    "FAConv": lambda: pyg.FAConv(4),
    "FeaStConv": lambda: pyg.FeaStConv(4, 4, heads=2),
    "FiLMConv": lambda: pyg.FiLMConv(4, 4),
    "GATConv": lambda: pyg.GATConv(4, 2, heads=2),
    "GATv2Conv": lambda: pyg.GATv2Conv(4, 4),
    "GCN2Conv": lambda: pyg.GCN2Conv(4, alpha=0.1),
    "GCNConv": lambda: pyg.GCNConv(4, 4),
    "GENConv": lambda: pyg.GENConv(4, 4, norm="layer"),
    "GINConv": lambda: pyg.GINConv(mlp(4, 5, 4)),
    "GatedGraphConv": lambda: pyg.GatedGraphConv(4, num_layers=2),
    "GraphConv": lambda: pyg.GraphConv(4, 4),
    "LEConv": lambda: pyg.LEConv(4, 4),
    "LGConv": lambda: pyg.LGConv(),
    "MFConv": lambda: pyg.MFConv(4, 4),
    "MixHopConv": lambda: pyg.MixHopConv(4, 2, powers=[0, 1]),
    "ResGatedGraphConv": lambda: pyg.ResGatedGraphConv(4, 4),
    "SAGEConv": lambda: pyg.SAGEConv(4, 4),
    "SGConv": lambda: pyg.SGConv(4, 4, K=2),
    "SSGConv": lambda: pyg.SSGConv(4, 4, alpha=0.2, K=2),
    "SuperGATConv": lambda: pyg.SuperGATConv(4, 4, is_undirected=True),
    "TAGConv": lambda: pyg.TAGConv(4, 4),
    "TransformerConv": lambda: pyg.TransformerConv(4, 4),
}


@pytest.mark.parametrize("build", LAYERS.values(), ids=LAYERS.keys())
def test_any_convolution_flows(build: Callable[[], nn.Module]):
    layer = build()
    # Which refuses weights if it normalises.
    field = F.ConvField(layer, edge_weight=False if isinstance(layer, pyg.FAConv) else None).eval()
    graph = weighted_graph().normalize("sym")
    h = torch.randn(2, 6, 4, requires_grad=True)
    z = F.pack(field, h)
    velocity = field(0.0, z, graph)
    for sample in range(2):
        torch.testing.assert_close(velocity[sample], field(0.0, z[sample], graph))
    flow = gd.Flow(field, solver="rk4", num_steps=1)
    flow(z, graph, t1=0.1).square().sum().backward()
    assert h.grad is not None
    assert h.grad.isfinite().all()


def test_a_layer_sees_the_source_and_its_weights():
    graph = weighted_graph()
    layer, h = pyg.GCNConv(4, 4), torch.randn(6, 4)
    expected = layer(h, graph.edge_index, graph.edge_weight)
    for given in (graph, graph.normalize("sym"), graph.normalize("rw")):
        torch.testing.assert_close(F.ConvField(layer)(0.0, h, given), expected)


def test_a_layer_sees_edge_attributes():
    graph, layer = weighted_graph(), WithEdges()
    attributes, h = torch.randn(graph.num_edges, 2), torch.randn(2, 6, 4)
    velocity = F.ConvField(layer)(0.0, h, F.AttributedGraph(graph, attributes))
    torch.testing.assert_close(velocity[1], layer(h[1], graph.edge_index, attributes))
    with pytest.raises(ValueError, match="needs edge attributes"):
        F.ConvField(layer)(0.0, h, graph)


def test_attention_to_all_nodes_stays_within_a_sample_and_within_a_graph():
    field = F.ConvField(pyg.GPSConv(4, pyg.GCNConv(4, 4), heads=2, norm=None)).eval()
    graph, h = weighted_graph(), torch.randn(2, 6, 4)
    other = graph.subgraph([0, 1, 2, 3])
    alone = [field(0.0, h[0], graph), field(0.0, h[1, :4], other)]
    torch.testing.assert_close(field(0.0, h, graph)[0], alone[0])
    ragged = torch.cat([h[0], h[1, :4]])
    torch.testing.assert_close(field(0.0, ragged, Graph.batch([graph, other])), torch.cat(alone))


def test_graph_convolution_equals_pyg():
    graph, layer = weighted_graph(), pyg.GCNConv(4, 4)
    field = F.GraphConvField([4, 4])
    with torch.no_grad():
        field.layers[0].weight.copy_(layer.lin.weight.t())
        field.layers[0].bias.copy_(layer.bias)
    h = torch.randn(6, 4)
    expected = layer(h, graph.edge_index, graph.edge_weight)
    torch.testing.assert_close(field(0.0, h, graph.normalize("sym")), expected)


@pytest.mark.parametrize("concat", [True, False])
@pytest.mark.parametrize("heads", [1, 2])
def test_attention_equals_gat(heads: int, concat: bool):
    graph = weighted_graph()
    layer = pyg.GATConv(4, 4 // heads if concat else 4, heads, concat=concat)
    nn.init.normal_(layer.bias)
    field = F.AttentionField(4, heads, activation=None, concat=concat)
    with torch.no_grad():
        field.source.weight.copy_(layer.lin.weight)
        field.source_attention.copy_(layer.att_src[0])
        field.target_attention.copy_(layer.att_dst[0])
        field.bias.copy_(layer.bias)
    h = torch.randn(6, 4)
    for given in (graph, graph.normalize("sym"), graph.normalize("rw")):
        torch.testing.assert_close(field(0.0, h, given), layer(h, graph.edge_index))


@pytest.mark.parametrize("concat", [True, False])
@pytest.mark.parametrize("heads", [1, 2])
def test_attention_equals_gatv2(heads: int, concat: bool, monkeypatch):
    # Chunks of two edges, so that they matter.
    monkeypatch.setitem(gatv2_scores.CHUNK_ELEMENTS, "cpu", 8)
    # Loops that are already there count once, as in PyG.
    dense = weighted_graph().to_dense()
    dense[1, 1] = 2.0
    graph = Graph.from_dense(dense)
    layer = pyg.GATv2Conv(4, 4 // heads if concat else 4, heads, concat=concat)
    nn.init.normal_(layer.bias)
    field = F.AttentionField(4, heads, scores="gatv2", activation=None, concat=concat)
    with torch.no_grad():
        for ours, theirs in ((field.source, layer.lin_l), (field.target, layer.lin_r)):
            ours.weight.copy_(theirs.weight)
            ours.bias.copy_(theirs.bias)
        field.source_attention.copy_(layer.att[0])
        field.bias.copy_(layer.bias)
    h = torch.randn(6, 4, requires_grad=True)
    ours, theirs = field(0.0, h, graph), layer(h, graph.edge_index)
    torch.testing.assert_close(ours, theirs)
    for mine, other in zip(
        torch.autograd.grad(ours.square().sum(), [h, field.source_attention, field.target.weight]),
        torch.autograd.grad(theirs.square().sum(), [h, layer.att, layer.lin_r.weight]),
        strict=True,
    ):
        torch.testing.assert_close(mine, other.reshape(mine.shape))


def test_a_layer_that_changes_the_width_is_refused():
    field = F.ConvField(pyg.GCNConv(4, 5))
    with pytest.raises(ValueError, match=r"GCNConv must keep the shape .*\[6, 5\].* 4 go in"):
        field(0.0, torch.randn(6, 4), weighted_graph())


def test_a_layer_that_keeps_a_graph_is_refused():
    with pytest.raises(ValueError, match="cached=False"):
        F.ConvField(pyg.GCNConv(4, 4, cached=True))


def test_a_layer_with_other_arguments_is_refused():
    with pytest.raises(TypeError, match="also needs: pos"):
        F.ConvField(pyg.PointNetConv())
    with pytest.raises(TypeError, match="takes: input"):
        F.ConvField(nn.Linear(4, 4))


def test_attributes_of_a_normalised_graph_are_refused():
    graph = weighted_graph().normalize("sym")
    given = F.AttributedGraph(graph, torch.randn(graph.num_edges, 2))
    with pytest.raises(ValueError, match=r"AttributedGraph\(graph.source"):
        F.ConvField(WithEdges())(0.0, torch.randn(6, 4), given)


BLIND: dict[str, Callable[[], nn.Module]] = {
    "GCNConv": lambda: pyg.GCNConv(4, 4),
    "GATConv": lambda: pyg.GATConv(4, 4),  # which would ignore them
    "TransformerConv": lambda: pyg.TransformerConv(4, 4),
}


@pytest.mark.parametrize("name", BLIND)
def test_attributes_that_a_layer_does_not_look_at_are_refused(name: str):
    given = F.AttributedGraph(weighted_graph(), torch.randn(16, 2))
    with pytest.raises(ValueError, match=rf"{name} as it was built .* `GATConv\(…, edge_dim=2\)`"):
        F.ConvField(BLIND[name]())(0.0, torch.randn(6, 4), given)


SEEING: dict[str, Callable[[], nn.Module]] = {
    "GINEConv": lambda: pyg.GINEConv(nn.Linear(4, 4), edge_dim=2),
    "GMMConv": lambda: pyg.GMMConv(4, 4, dim=2, kernel_size=2),
    "NNConv": lambda: pyg.NNConv(4, 4, nn.Linear(2, 16)),
    "TransformerConv": lambda: pyg.TransformerConv(4, 4, edge_dim=2),
}


@pytest.mark.parametrize("name", SEEING)
@pytest.mark.usefixtures("without_type_checks")
def test_a_layer_that_needs_attributes_says_so(name: str):
    field, graph, h = F.ConvField(SEEING[name]()), weighted_graph(), torch.randn(2, 6, 4)
    given = F.AttributedGraph(graph, torch.randn(16, 2))
    torch.testing.assert_close(field(0.0, h, given)[1], field(0.0, h[1], given))
    with pytest.raises(
        ValueError, match=rf"{name} failed on a graph without .* `AttributedGraph\("
    ):
        field(0.0, h, graph)
    for rows in (torch.randn(3, 2), torch.randn(16)):
        with pytest.raises(
            ValueError, match=r"must have shape \[16, attributes\], one row for each"
        ):
            field(0.0, h, given._replace(edge_attributes=rows))


def test_layers_that_can_do_without_attributes_do():
    graph, h = weighted_graph(), torch.randn(6, 4)
    given = F.AttributedGraph(graph, torch.randn(16, 2))
    for layer in (
        pyg.GATConv(4, 4, edge_dim=2),
        pyg.GPSConv(4, pyg.GATConv(4, 4, edge_dim=2), heads=2, norm=None),
    ):
        field = F.ConvField(layer).eval()
        assert not torch.equal(field(0.0, h, graph), field(0.0, h, given))
