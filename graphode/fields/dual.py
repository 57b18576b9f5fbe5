"""Convolution on the graph and on its dual, as a field.

Zhuang, Ma (2018), "Dual Graph Convolutional Networks for Graph-Based Semi-Supervised
Classification".
"""

from jaxtyping import Float
from torch import Tensor, nn

from graphode.fields.activation import Activation, find_activation
from graphode.fields.convolution import GraphConvolution
from graphode.fields.structure import made_once, source_of
from graphode.fields.validation import check_channels, check_graph, check_positive
from graphode.graphs import Graph, ppmi


class DualField(nn.Module):
    """Who is linked, and who is met on random walks.

        dh/dt = σ(Â h W_1 + P̂ h W_2 + b)

    Â is the graph passed in, P̂ the positive pointwise mutual information of nodes on its random
    walks, normalised as "sym", made once a graph. Zhuang and Ma run two networks and tie their
    outputs by a loss; here both push the same state. No gradient reaches the edge weights through
    a P̂ that is counted on walks.

    Args:
        channels: Width of the state.
        activation: σ; None for none.
        walk_length, walks_per_node, seed: Of the walks; see `graphode.graphs.ppmi`. With
            `walks_per_node=None`, for small graphs, nothing is drawn: the field does not depend
            on how nodes are numbered, and gradients pass.
        bias: Whether b is there.

    Shapes:
        - **h:** `[..., nodes, channels]`; the velocity has the same shape.
    """

    def __init__(
        self,
        channels: int,
        activation: str | Activation | None = "tanh",
        walk_length: int = 5,
        walks_per_node: int | None = 100,
        seed: int = 0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_positive("walk_length", walk_length, "The paper's walks have a few steps.")
        if walks_per_node is not None:
            check_positive(
                "walks_per_node", walks_per_node, "None counts what all walks would meet."
            )
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
        check_graph(self, graph)
        dual = made_once(source_of(graph), ("ppmi", self.walks), self._dual)
        return self.activation(self.local(h, graph) + self.wide(h, dual))

    def _dual(self, source: Graph) -> Graph:
        return ppmi(source, *self.walks).normalize("sym")

    def extra_repr(self) -> str:
        """Width."""
        return f"{self.channels}"
