"""What a field cannot take is refused with the same words everywhere."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from graphode import fields as F
from graphode.graphs import DenseGraph, Graph
from tests.fields.registry import CASES, mlp, state, weighted_graph

pytestmark = pytest.mark.usefixtures("without_type_checks")  # which would anticipate some

CONV, ATTENTION = "GraphConvField", "AttentionField"
HALVES = "SecondOrder"
INPUT, START = " (the state and the input)", " (the state and its start)"
GATED = " (and as many for the integral)"
CONTROL = " (4 of the state, the rest of the input)"

# For a state three channels too wide: who refuses it, the channels it has, the remark on them, and
# the channels that it sees. Wrappers pass the state on to the field inside.
WIDTHS: dict[str, tuple[str, int, str, int]] = {
    "GraphConv": (CONV, 4, "", 7),
    "Attention-gat": (ATTENTION, 4, "", 7),
    "Attention-gatv2": (ATTENTION, 4, "", 7),
    "Attention-mean": (ATTENTION, 4, "", 7),
    "Conv-GCN": ("ConvField", 4, " (those of its layer GCNConv)", 7),
    "HigherOrder": ("GraphConvMap", 12, "", 15),
    "Augmented": (CONV, 6, "", 9),
    "Augmented-lift": (CONV, 6, "", 9),
    "Controlled-add": ("Controlled", 8, CONTROL, 11),
    "Controlled-concat": ("Controlled", 8, CONTROL, 11),
    "Controlled-source": ("Controlled", 8, CONTROL, 11),
    "TimeConcat": ("GraphConvMap", 5, "", 8),
    "DepthVarying": (CONV, 4, "", 7),
    "DepthVarying-fourier": (CONV, 4, "", 7),
    "Cheb": ("ChebField", 4, "", 7),
    "Cayley": ("CayleyField", 4, "", 7),
    "Spectral": ("SpectralField", 4, "", 7),
    "Dual": ("DualField", 4, "", 7),
    "Diffusion": ("DiffusionField", 4, "", 7),
    "WalkPower": ("WalkPowerField", 8, INPUT, 11),
    "CGNN": ("CGNNField", 8, INPUT, 11),
    "CGNN-plain": ("CGNNField", 8, INPUT, 11),
    "GCNII": ("GCNIIField", 8, START, 11),
    "GCNII-layers": ("GCNIIField", 8, START, 11),
    "GCNII-varying": ("GCNIIField", 8, START, 11),
    "PageRank": ("PageRankField", 8, START, 11),
    "PageRank-diffusion": ("PageRankField", 4, "", 7),
    "PathGate": ("PageRankField", 8, START, 11),
    "PathGate-plain": ("PathGate", 4, GATED, 7),
    "GRAND-linear": ("GRANDField", 8, START, 11),
    "GRAND-nonlinear": ("GRANDField", 4, "", 7),
    "GRAND-source": ("GRANDField", 8, START, 11),
    "Adaptive": ("AdaptiveField", 4, "", 7),
    "Adaptive-sparse": ("AdaptiveField", 4, "", 7),
    "Costed-kinetic": (CONV, 4, "", 7),
    "Costed-jacobian": (CONV, 4, "", 6),
    "Costed-attention": (ATTENTION, 4, "", 6),
}
# Those that say it in other words.
OTHERS = {
    "MessagePassing": (
        "The message of MessagePassingField sees 14 channels an edge, with a state of shape "
        "[6, 7], but takes 8. Build it for 14, or encode the state to another width first."
    ),
    "MessagePassing-relative": (
        "The message of MessagePassingField sees 7 channels an edge, with a state of shape "
        "[6, 7], but takes 4. Build it for 7, or encode the state to another width first."
    ),
} | {
    name: (
        f"{who} moves a state and its derivatives, 2 parts of equal width, but the state has "
        f"{channels} channels. Make it with `field.pack(h)`."
    )
    for name, who, channels in (
        ("SecondOrder", HALVES, 11),
        ("SecondOrder-velocity", HALVES, 11),
        ("GraphCON", "GraphCONField", 11),
        ("nested", HALVES, 21),
    )
}


def width_text(name: str) -> str:
    """The whole error."""
    if name in OTHERS:
        return OTHERS[name]
    who, channels, remark, seen = WIDTHS[name]
    remedy = (
        "Make it with `gd.pack(field, h)`, and `gd.unpack` what comes out; a `gd.GDE` does both."
        if remark in (INPUT, START, GATED, CONTROL)
        else f"Encode the state to {channels} channels first, for instance with a linear layer, or "
        f"build the field for {seen}."
    )
    return (
        f"{who} moves states of {channels} channels{remark}, but the state has {seen} (shape "
        f"[6, {seen}]). {remedy}"
    )


def refused(call: Callable[[], object], error: type[Exception]) -> str:
    """The text of the error that `call` must raise."""
    with pytest.raises(error) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize("name", CASES)
def test_a_state_of_another_width_is_refused(name: str):
    field = CASES[name].build()
    graph = CASES[name].prepare(weighted_graph())
    wrong = torch.randn(6, state(field, 6).shape[-1] + 3)
    assert refused(lambda: field(0.0, wrong, graph), ValueError) == width_text(name)


@pytest.mark.parametrize("name", CASES)
def test_what_is_no_graph_is_refused(name: str):
    field = CASES[name].build()
    edges = weighted_graph().edge_index
    for thing, text in (
        (edges, f"was given a Tensor of shape {list(edges.shape)}. Make one with `Graph(edge_"),
        (None, "was given a NoneType. Make one with `Graph(edge_index, num_nodes)`"),
    ):
        said = refused(lambda thing=thing: field(0.0, state(field, 6), thing), TypeError)
        assert f" needs a graphode `Graph`, but {text}" in said


def test_attributes_that_a_field_does_not_look_at_are_refused():
    given = F.AttributedGraph(weighted_graph(), torch.randn(16, 2))
    said = refused(lambda: F.GraphConvField([4, 4])(0.0, torch.randn(6, 4), given), TypeError)
    assert said.endswith("Give it the `graph` inside, or use `MessagePassingField` or `ConvField`.")


@pytest.mark.parametrize("name", CASES)
def test_a_state_of_other_nodes_is_refused(name: str):
    field = CASES[name].build()
    graph = CASES[name].prepare(weighted_graph())
    start, end = (
        "The state must have shape [..., nodes, channels] with 6 nodes, as the graph has, but its "
        "shape is ",
        ". Put nodes second to last, or use the graph that the state lives on.",
    )
    for nodes in (5, 7):  # 7: no edge leads to the last
        text = refused(lambda nodes=nodes: field(0.0, state(field, nodes), graph), ValueError)
        assert text.startswith(f"{start}[{nodes}, ")
        assert text.endswith(end)


@pytest.mark.parametrize("name", CASES)
def test_a_state_on_another_device_is_refused(name: str):
    field = CASES[name].build()
    graph = CASES[name].prepare(weighted_graph())
    elsewhere = state(field, 6).to("meta")
    assert refused(lambda: field(0.0, elsewhere, graph), ValueError) == (
        "The state must be on the graph's device, cpu, but it is on meta. Move the graph once with "
        '`graph.to("meta")`.'
    )


@pytest.mark.parametrize("widths", [[4, 4], [4, 5, 4]])
def test_a_state_of_another_dtype_is_refused_with_both_remedies(widths: list[int]):
    field, graph = F.GraphConvField(widths).float(), weighted_graph()
    h = torch.randn(6, 4)
    assert refused(lambda: field(0.0, h, graph), TypeError) == (
        "The state must have the dtype of GraphConvField, torch.float32, but it has torch.float64. "
        "Use `h.to(torch.float32)`, or `field.to(torch.float64)`."
    )
    assert refused(lambda: field(0.0, h.long(), graph), TypeError).endswith(
        "but it has torch.int64. Use `h.to(torch.float32)`."
    )
    layer = F.GraphConvolution(4, 4)
    assert refused(lambda: layer(h.float(), graph), TypeError) == (
        "The state must have the dtype of GraphConvolution, torch.float64, but it has "
        "torch.float32. Use `h.to(torch.float64)`, or `layer.to(torch.float32)`."
    )


# PyG's layers speak for themselves; the others have no weights that multiply a state.
ANY_DTYPE = {"Conv-GCN", "CGNN-plain", "PageRank", "PageRank-diffusion"}


@pytest.mark.parametrize("name", sorted(CASES.keys() - ANY_DTYPE))
def test_every_field_with_weights_names_their_dtype(name: str):
    field = CASES[name].build()
    h, graph = state(field, 6), CASES[name].prepare(weighted_graph())
    text = refused(lambda: field.float()(0.0, h, graph), TypeError)
    assert text.startswith("The state must have the dtype of ")
    assert ", torch.float32, but it has torch.float64. Use `h.to(torch.float32)`, or" in text


def test_autocast_may_mix_dtypes():
    field, graph = F.GraphConvField([4, 5, 4]).float(), weighted_graph().to(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert field(0.0, torch.randn(2, 6, 4).bfloat16(), graph).isfinite().all()


def gcn(out_channels: int) -> nn.Module:
    """PyG's, from four channels."""
    from torch_geometric.nn import GCNConv

    return GCNConv(4, out_channels)


def on_graph(field: nn.Module, channels: int = 4) -> object:
    """The field's velocity of some state."""
    return field(0.0, torch.randn(6, channels), weighted_graph().normalize("sym"))


TABLE: dict[str, tuple[Callable[[], Any], str]] = {
    "a PyG layer that changes the width": (
        lambda: on_graph(F.ConvField(gcn(5))),
        "ConvField maps a state to its own velocity, so the layer GCNConv must keep the shape "
        "[6, 4], but returned [6, 5]. Choose its channels (and heads) so that 4 go in and come "
        "out.",
    ),
    "an unknown activation": (
        lambda: F.GraphConvField([4, 4], activation="rleu"),
        "Unknown activation 'rleu'. Choose one of: elu, gelu, leaky_relu, relu, sigmoid, silu, "
        "sin, softplus, tanh; None; or pass a function of one tensor.",
    ),
    "widths that do not close": (
        lambda: F.GraphConvField([4, 5]),
        "`widths` must start and end with the state's channels, as a field maps a state to its own "
        "velocity, but is [4, 5]. Use for example [64, 64, 64] for two layers.",
    ),
    "a map of no layer": (
        lambda: F.GraphConvMap([4]),
        "`widths` must name the channels before and after each layer, at least two, but is [4]. "
        "Use for example [4, 16, 2] for two layers.",
    ),
    "a layer of another width": (
        lambda: F.GraphConvolution(3, 8)(torch.randn(6, 5), weighted_graph()),
        "GraphConvolution moves states of 3 channels, but the state has 5 (shape [6, 5]). Encode "
        "the state to 3 channels first, for instance with a linear layer, or build the field for "
        "5.",
    ),
    "heads that do not divide": (
        lambda: F.AttentionField(4, heads=3),
        "3 heads side by side cannot fill the 4 channels of a state: a field maps a state to its "
        "own velocity. Choose `heads` that divide `channels`, or `concat=False` to average them.",
    ),
    "no head": (
        lambda: F.AttentionField(4, heads=0),
        "`heads` must be 1 or more, but is 0. One head is the paper's.",
    ),
    "unknown scores": (
        lambda: F.AttentionField(4, scores="dot"),
        "Unknown scores 'dot'. Choose one of: gat, gatv2.",
    ),
    "a message of another width": (
        lambda: on_graph(F.MessagePassingField(mlp(8, 3))),
        "MessagePassingField maps a state to its own velocity, so the update (or the message, "
        "without one) must keep the shape [6, 4], but returned [6, 3]. Let its last layer have 4 "
        "channels.",
    ),
    "an acceleration of another width": (
        lambda: on_graph(F.SecondOrder(lambda t, x, graph: x[..., :1])),
        "SecondOrder maps a state to its own velocity, so the acceleration must keep the shape "
        "[6, 2], but returned [6, 1]. It has the width of x alone, half of the state's.",
    ),
    "an order of one": (
        lambda: F.HigherOrder(F.GraphConvMap([4, 4]), order=1),
        "`order` must be 2 or more, but is 1. A field itself is of order 1.",
    ),
    "no extra channel": (
        lambda: F.Augmented(F.GraphConvField([4, 4]), 0),
        "`extra_channels` must be 1 or more, but is 0. Without any, use the field itself.",
    ),
    "a lift of another width": (
        lambda: F.Augmented(F.GraphConvField([6, 6]), 2, nn.Linear(4, 3)).pack(torch.randn(6, 4)),
        "`lift` must return the 2 extra channels, but maps [6, 4] to [6, 3]. Use for example "
        "`nn.Linear(4, 2)`.",
    ),
    "an unknown control": (
        lambda: F.Controlled(F.GraphConvField([4, 4]), 4, how="mul"),
        "Unknown way of control 'mul'. Choose one of: add, concat, source.",
    ),
    "an unknown basis": (
        lambda: F.DepthVarying(F.GraphConvField([4, 4]), basis="bessel"),
        "Unknown basis 'bessel'. Choose one of: chebyshev, fourier, polynomial.",
    ),
    "nothing that could vary": (
        lambda: F.DepthVarying(nn.Tanh()),
        "Tanh has no parameters that could vary with depth. To let it see the time, use "
        "`TimeConcat`.",
    ),
    "a spectral field on a directed graph": (
        lambda: F.SpectralField(4)(0.0, torch.randn(2, 4), Graph([[0], [1]], 2)),
        "A spectral basis needs a symmetric matrix, but the graph is directed or normalised by "
        'rows. Use `graph.normalize("sym_laplacian")` of an undirected graph.',
    ),
    "one knot": (
        lambda: F.SpectralField(4, knots=1),
        "`knots` must be 2 or more, but is 1. A piecewise linear function on [0, 2] has knots at "
        "both ends.",
    ),
    "an alpha of one": (
        lambda: F.CGNNField(4, alpha=1.0),
        "`alpha` must be between 0 and 1, but is 1.0. Solutions are bounded below 1.",
    ),
    "a share of more than all": (
        lambda: F.GCNIIField(4, alpha=1.5),
        "`alpha` must be between 0 and 1 and `mixing` 0 or more, but they are 1.5 and 0.5. GCNII "
        "has 0.1 and 0.5.",
    ),
    "a share of less than nothing": (
        lambda: F.PageRankField(4, alpha=-0.1),
        "`alpha` must be between 0 and 1, but is -0.1. APPNP has 0.1; 0 is diffusion.",
    ),
    "layers that end before they begin": (
        lambda: F.GCNIIField(4, layers=2, t1=0.0),
        "`t1` must be above 0, but is 0.0. Give the end of the flow.",
    ),
    "oscillators that explode": (
        lambda: F.GraphCONField(F.GraphConvField([4, 4]), damping=-1.0),
        "`frequency` and `damping` must be 0 or more, but are 1.0 and -1.0. Negative ones make "
        "states explode.",
    ),
    "a cost of nothing": (
        lambda: F.Costed(F.GraphConvField([4, 4]), kinetic=False),
        "`Costed` keeps account of something: `kinetic`, `jacobian` or both, but neither was asked "
        "for. Use the field itself.",
    ),
    "no neighbour": (
        lambda: F.AdaptiveField(4, neighbors=0),
        "`neighbors` must be 1 or more, but is 0. None looks at all nodes.",
    ),
    "a polynomial of negative degree": (
        lambda: F.ChebField(4, order=-1),
        "`order` must be 0 or more, but is -1. 0 mixes channels alone.",
    ),
    "a rational filter of negative order": (
        lambda: F.CayleyField(4, order=-1),
        "`order` must be 0 or more, but is -1. 0 mixes channels alone.",
    ),
    "walks of no step": (
        lambda: F.DualField(4, walk_length=0),
        "`walk_length` must be 1 or more, but is 0. The paper's walks have a few steps.",
    ),
    "no walk": (
        lambda: F.DualField(4, walks_per_node=0),
        "`walks_per_node` must be 1 or more, but is 0. None counts what all walks would meet.",
    ),
    "no mode": (
        lambda: F.SpectralField(4, num_modes=0),
        "`num_modes` must be 1 or more, but is 0. None keeps all.",
    ),
    "no iteration": (
        lambda: F.lipschitz_estimate(
            F.GraphConvField([4, 4]), torch.randn(6, 4), weighted_graph(), iterations=0
        ),
        "`iterations` must be 1 or more, but is 0. Some 20 to 40 come close.",
    ),
    "matrices of more graphs than the state has": (
        lambda: F.RelativeMessageMap(nn.Tanh())(
            0.0, torch.randn(4, 3), DenseGraph(torch.ones(2, 4, 4))
        ),
        "The state must have shape [..., nodes, channels] with 8 nodes, as the graph has in all, "
        "the batch of 2 graphs having 4, 4, but its shape is [4, 3]. Put nodes second to last, or "
        "use the graph that the state lives on.",
    ),
    "attributes of other edges": (
        lambda: F.MessagePassingField(mlp(10, 4))(
            0.0,
            torch.randn(6, 4),
            F.AttributedGraph(weighted_graph(), torch.randn(3, 2)),
        ),
        "Edge attributes must have shape [16, attributes], one row for each edge of the graph, but "
        "have shape [3, 2]. A normalised graph has self-loops too: give attributes for "
        "`graph.edge_index` as it is.",
    ),
}


@pytest.mark.parametrize(("call", "text"), TABLE.values(), ids=TABLE.keys())
def test_bad_input_is_refused_by_name(call: Callable[[], Any], text: str):
    assert refused(call, ValueError) == text


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("make", [F.GraphConvField, F.GraphConvMap])
def test_a_lone_width_is_refused(make: Callable[..., nn.Module]):
    assert refused(lambda: make(8), TypeError) == (
        "`widths` must list the channels before, between and after the layers, but is 8. Use for "
        "example [8, 8] for one layer."
    )


@pytest.mark.usefixtures("without_type_checks")
def test_graphs_of_other_libraries_are_refused_with_the_way_to_ours():
    import networkx as nx
    from torch_geometric.data import Data

    path = nx.path_graph(6)
    for theirs, way in (
        (Data(edge_index=weighted_graph().edge_index, num_nodes=6), "from_pyg(data)"),
        (path, "from_networkx(g)"),
        (nx.to_scipy_sparse_array(path), "from_scipy(a)"),
    ):
        said = refused(
            lambda: F.GraphConvField([4, 4])(0.0, torch.randn(6, 4), theirs),  # noqa: B023
            TypeError,
        )
        assert f"was given a {type(theirs).__name__}. Make one with `Graph.{way}`" in said
        said = refused(lambda: Graph(theirs, 6), TypeError)  # noqa: B023
        assert f"is a {type(theirs).__name__}. Use `Graph.{way}`" in said


@pytest.mark.parametrize("width", [0, -2])
@pytest.mark.parametrize(
    "build",
    [
        lambda width: F.GraphConvField([4, width, 4]),
        lambda width: F.GraphConvolution(width, 4),
        F.AdaptiveField,
        lambda width: F.AdaptiveField(4, width),
        F.AttentionField,
        F.CayleyField,
        F.CGNNField,
        F.ChebField,
        lambda width: F.Controlled(F.GraphConvField([4, 4]), 4, width),
        F.DiffusionField,
        F.DualField,
        F.GCNIIField,
        F.GRANDField,
        F.PageRankField,
        lambda width: F.PathGate(F.PageRankField(4), width),
        F.SpectralField,
        F.WalkPowerField,
    ],
)
def test_a_width_below_one_is_refused(build: Callable[[int], nn.Module], width: int):
    text = refused(lambda: build(width), ValueError)
    assert text.endswith(
        f"channels` must be 1 or more, but is {width}. It is a number of channels."
    )
