"""Graphs: nodes, weighted edges and the operators they carry."""

from graphode.graphs import tree as tree
from graphode.graphs.cayley import cayley as cayley
from graphode.graphs.chebyshev import chebyshev as chebyshev
from graphode.graphs.dense_graph import DenseGraph as DenseGraph
from graphode.graphs.dense_radius import dense_radius_graph as dense_radius_graph
from graphode.graphs.diffusion import diffuse as diffuse
from graphode.graphs.diffusion import random_walks as random_walks
from graphode.graphs.distances import gaussian_graph as gaussian_graph
from graphode.graphs.distances import percentile_graph as percentile_graph
from graphode.graphs.graph import Graph as Graph
from graphode.graphs.laplacian import scaled_laplacian as scaled_laplacian
from graphode.graphs.laplacian import spectral_radius as spectral_radius
from graphode.graphs.ppmi import ppmi as ppmi
from graphode.graphs.spectral import SpectralBasis as SpectralBasis
from graphode.graphs.spectral import spectral_basis as spectral_basis
from graphode.graphs.topology import edge_lengths as edge_lengths
from graphode.graphs.topology import nearest_graph as nearest_graph
from graphode.graphs.topology import radius_graph as radius_graph

__all__ = [
    "DenseGraph",
    "Graph",
    "SpectralBasis",
    "cayley",
    "chebyshev",
    "dense_radius_graph",
    "diffuse",
    "edge_lengths",
    "gaussian_graph",
    "nearest_graph",
    "percentile_graph",
    "ppmi",
    "radius_graph",
    "random_walks",
    "scaled_laplacian",
    "spectral_basis",
    "spectral_radius",
]
