"""Convolution on the graph and on its dual, as a field.

Zhuang, Ma (2018), "Dual Graph Convolutional Networks for Graph-Based Semi-Supervised
Classification".
"""

from jaxtyping import Float
from torch import Tensor, nn

from graphode.fields.activation import Activation, find_activation
from graphode.fields.convolution import GraphConvolution
from graphode.fields.structure import made_once, source_of
from graphode.fields.validation import check_channels
from graphode.graphs import Graph, ppmi


class DualField(nn.Module):
    """Who is linked, and who is met on random walks.

        dh/dt = σ(Â h W_1 + P̂ h W_2 + b)

    Â is the graph passed in, P̂ the positive pointwise mutual information of nodes on its random
    walks, normalised as "sym", made once a graph. Zhuang and Ma run two networks and tie their
    outputs by a loss; here both push the same state. No gradient reaches the edge weights through
    P̂, which is counted.

    Args:
        channels: Width of the state.
        activation: σ; None for none.
        walk_length, walks_per_node, seed: Of the walks; see `graphode.graphs.ppmi`.
        bias: Whether b is there.

    Shapes:
        - **h:** `[..., nodes, channels]`; the velocity has the same shape.
    """

    def __init__(
        self,
        channels: int,
        activation: str | Activation | None = "tanh",
        walk_length: int = 5,
        walks_per_node: int = 100,
        seed: int = 0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.channels = channels
        self.walks = (walk_length, walks_per_node, None, seed)
        self.activation = find_activation(activation)
        self.local = GraphConvolution(channels, channels, bias)
        self.wide = GraphConvolution(channels, channels, bias=False)

    def forward(
        self, t: float | Tensor, h: Float[Tensor, "*batch nodes channels"], graph: Graph
    ) -> Float[Tensor, "*batch nodes channels"]:
        """The velocity of `h`."""
        del t  # autonomous
        check_channels(self, h, self.channels)
        (dual,) = made_once(source_of(graph), ("ppmi", self.walks), self._dual)
        flat = graph.flatten(h)
        return self.activation(self.local(flat, graph) + self.wide(flat, dual)).reshape(h.shape)

    def _dual(self, source: Graph) -> tuple[Graph]:
        # What is met by chance is a matter of each graph of a batch alone.
        duals = [ppmi(graph, *self.walks) for graph in source.unbatch()]
        return (Graph.batch(duals).normalize("sym"),)

    def extra_repr(self) -> str:
        """Width."""
        return f"{self.channels}"
