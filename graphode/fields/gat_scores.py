"""The scores of GAT, which part into a number of the source and one of the target.

    e_uv = LeakyReLU(a_source · x_u + a_target · x_v)

Veličković et al. (2018), "Graph Attention Networks".
"""

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from graphode.fields.edge_attention import Neighbours


def gat_scores(
    values: Float[Tensor, "nodes heads channels"],
    source_attention: Float[Tensor, "heads channels"],
    target_attention: Float[Tensor, "heads channels"],
    around: Neighbours,
    negative_slope: float,
) -> tuple[Float[Tensor, "edges heads"], Float[Tensor, "nodes heads"]]:
    """The scores of every edge, and of every node for itself.

    Args:
        values: What nodes show.
        source_attention: The vector of each head for what sources show.
        target_attention: That for what targets show.
        around: The edges.
        negative_slope: Of the LeakyReLU.
    """
    of_source = (values * source_attention).sum(-1)
    of_target = (values * target_attention).sum(-1)
    arriving = of_source.index_select(0, around.source)
    edges = arriving + of_target.index_select(0, around.target)
    own = of_source + of_target
    leaky_relu = functional.leaky_relu
    return leaky_relu(edges, negative_slope), leaky_relu(own, negative_slope)
