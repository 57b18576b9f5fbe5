"""What a model cannot take is refused with the same words everywhere."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

import graphode as gd
from graphode import models as M
from graphode.graphs import Graph
from tests.models.registry import CHANNELS, IN, MODELS, OUT, random_graph

pytestmark = pytest.mark.usefixtures("without_type_checks")  # which would anticipate some

LINEAR = ("GAT", "MLP", "NeuralODE", "diffusion")  # those whose first layer sees no neighbours
ON_NODES = [name for name in MODELS if name not in ("MLP", "NeuralODE")]  # those that use edges
# The width of the state when the graph first sees it: of the field's first layer, for the user's
# own; else of the first layer's output, all heads of GAT together.
SEEN = {"GDE": 6, "diffusion": OUT}
# That of what the flow moves: with the input or the start, and an integral, which it carries along.
MOVED = {"GDE": 2 * CHANNELS, "diffusion": 3 * OUT}


def refused(model: nn.Module, x: torch.Tensor, graph: Graph) -> str:
    """The text of the ValueError that the model must raise."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        model(x, graph)
    return str(caught.value)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "GDE"])
def test_features_of_another_width_are_refused(name: str):
    layer = "LinearEncoder" if name in LINEAR else "GraphConvEncoder"
    assert refused(MODELS[name](), torch.randn(6, 7), random_graph().normalize("sym")) == (
        f"{layer} takes {IN} channels a node, but 7 came (shape [6, 7]). Build it with "
        f"in_channels=7, or check that features come last."
    )


def test_a_linear_layer_of_the_users_own_speaks_for_itself():
    with pytest.raises(RuntimeError, match=r"shapes cannot be multiplied \(6x7 and 5x4\)"):
        MODELS["GDE"]()(torch.randn(6, 7), random_graph().normalize("sym"))


@pytest.mark.parametrize("name", ON_NODES)
def test_a_graph_of_another_size_is_refused(name: str):
    width = SEEN.get(name, CHANNELS)
    assert refused(MODELS[name]().eval(), torch.randn(6, IN), random_graph(4).normalize("sym")) == (
        f"The state must have shape [..., nodes, channels] with 4 nodes, as the graph has, but its "
        f"shape is [6, {width}]. Put nodes second to last, or use the graph that the state lives "
        f"on."
    )


@pytest.mark.parametrize("name", MODELS)
def test_a_graph_without_nodes_has_no_prediction_or_is_refused(name: str):
    graph = Graph(torch.empty(2, 0, dtype=torch.int64), 0).normalize("sym")
    model, x = MODELS[name]().eval(), torch.randn(0, IN)
    if not isinstance(model, M.GDE):  # layers in a row map nothing to nothing
        assert model(x, graph).shape == (0, OUT)
        return
    width = MOVED.get(name, CHANNELS)
    assert refused(model, x, graph) == (  # a flow has no step size for nothing
        f"`y0` must not be empty, but has shape (0, {width}). Check how it was selected."
    )


@pytest.mark.parametrize("name", ["GCDE", "GCDE-dpr5", "GADE", "GMDE"])
def test_a_graph_without_nodes_does_no_harm_to_a_batch(name: str):
    model, x = MODELS[name]().eval(), torch.randn(6, IN)
    nothing = Graph(torch.empty(2, 0, dtype=torch.int64), 0)
    batch = Graph.batch([nothing, random_graph(), nothing]).normalize("sym")
    torch.testing.assert_close(model(x, batch), model(x, random_graph().normalize("sym")))


@pytest.mark.parametrize("name", [name for name in ON_NODES if name not in ("GDE", "diffusion")])
def test_what_is_no_graph_is_refused(name: str):
    from torch_geometric.data import Data

    model, x, graph = MODELS[name](), torch.randn(6, IN), random_graph()
    edges = graph.edge_index
    attributed = gd.AttributedGraph(graph, torch.randn(graph.num_edges, 2))
    for thing, text in (
        (edges, f"was given a Tensor of shape {list(edges.shape)}. Make one with `Graph(edge_"),
        (None, "was given a NoneType. Make one with `Graph(edge_index, num_nodes)`"),
        (Data(edge_index=edges, num_nodes=6), "was given a Data. Make one with `Graph.from_pyg"),
        (attributed, "was given an `AttributedGraph`. Give it the `graph` inside"),
    ):
        with pytest.raises(TypeError) as caught:
            model(x, thing)
        assert text in str(caught.value)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "GDE"])
def test_features_of_another_dtype_are_refused(name: str):
    model, graph = MODELS[name]().float(), random_graph().normalize("sym")
    layer = "LinearEncoder" if name in LINEAR else "GraphConvEncoder"
    for x, other in (
        (torch.randn(6, IN), ", or `model.to(torch.float64)`."),
        (torch.ones(6, IN, dtype=torch.int64), "."),
    ):
        with pytest.raises(TypeError) as caught:
            model(x, graph)
        assert str(caught.value) == (
            f"{layer} has the dtype torch.float32, but {x.dtype} came. Use "
            f"`x.to(torch.float32)`{other}"
        )


def test_autocast_may_mix_dtypes():
    model, graph = M.GCN(IN, CHANNELS, OUT).float(), random_graph().to(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert model(torch.randn(6, IN).bfloat16(), graph.normalize("sym")).isfinite().all()


@pytest.mark.parametrize("build", [M.GlobalPool, lambda: M.AttentionPool(3), M.PooledReadout])
def test_a_pool_of_no_graph_is_refused(build):
    edges = random_graph().edge_index
    for thing in (edges, None):
        with pytest.raises(TypeError, match=r"Pool needs a graphode `Graph`, but was given a"):
            build()(torch.randn(6, 3), thing)


@pytest.mark.parametrize("width", [0, -2])
@pytest.mark.parametrize(
    "build",
    [
        lambda width: M.GCN(IN, width, OUT),
        lambda width: M.GCN(width, CHANNELS, OUT),
        lambda width: M.GCDE(IN, CHANNELS, width),
        lambda width: M.GADE(IN, width, OUT),
        lambda width: M.GMDE(IN, width, OUT),
        lambda width: M.GAT(IN, width, OUT),
        lambda width: M.MLP(IN, width, OUT),
        lambda width: M.NeuralODE(IN, width, OUT),
        lambda width: M.AttentionPool(width),
    ],
)
def test_a_width_below_one_is_refused(build: Callable[[int], nn.Module], width: int):
    with pytest.raises(ValueError, match=r"channels` must be 1 or more, but is"):
        build(width)
