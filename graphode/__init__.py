"""Graph neural ordinary differential equations.

A graph carries a field; a field generates a flow; jumps punctuate the flow; encoder, flow and
readout make a model.
"""

import importlib.metadata

from graphode.ensembles import Ensemble as Ensemble
from graphode.fields import AdaptiveField as AdaptiveField
from graphode.fields import AttentionField as AttentionField
from graphode.fields import AttributedGraph as AttributedGraph
from graphode.fields import Augmented as Augmented
from graphode.fields import CayleyField as CayleyField
from graphode.fields import CGNNField as CGNNField
from graphode.fields import ChebField as ChebField
from graphode.fields import Controlled as Controlled
from graphode.fields import ConvField as ConvField
from graphode.fields import Costed as Costed
from graphode.fields import DepthVarying as DepthVarying
from graphode.fields import DiffusionField as DiffusionField
from graphode.fields import Dropout as Dropout
from graphode.fields import DualField as DualField
from graphode.fields import EdgeDropout as EdgeDropout
from graphode.fields import GCNIIField as GCNIIField
from graphode.fields import GRANDField as GRANDField
from graphode.fields import GraphCONField as GraphCONField
from graphode.fields import GraphConvField as GraphConvField
from graphode.fields import GraphConvMap as GraphConvMap
from graphode.fields import GraphConvolution as GraphConvolution
from graphode.fields import HigherOrder as HigherOrder
from graphode.fields import MessagePassingField as MessagePassingField
from graphode.fields import NodeDropout as NodeDropout
from graphode.fields import PageRankField as PageRankField
from graphode.fields import PairForceMap as PairForceMap
from graphode.fields import PathGate as PathGate
from graphode.fields import RadiusField as RadiusField
from graphode.fields import RelativeMessageMap as RelativeMessageMap
from graphode.fields import SecondOrder as SecondOrder
from graphode.fields import SpectralField as SpectralField
from graphode.fields import TimeConcat as TimeConcat
from graphode.fields import WalkPowerField as WalkPowerField
from graphode.fields import cgnn_solution as cgnn_solution
from graphode.fields import dirichlet_energy as dirichlet_energy
from graphode.fields import lipschitz_estimate as lipschitz_estimate
from graphode.fields import pack as pack
from graphode.fields import stiffness_estimate as stiffness_estimate
from graphode.fields import unpack as unpack
from graphode.flows import SOLVERS as SOLVERS
from graphode.flows import Adjoint as Adjoint
from graphode.flows import Backprop as Backprop
from graphode.flows import Checkpoint as Checkpoint
from graphode.flows import CheckpointAdjoint as CheckpointAdjoint
from graphode.flows import Collocation as Collocation
from graphode.flows import Event as Event
from graphode.flows import EventRecord as EventRecord
from graphode.flows import Flow as Flow
from graphode.flows import Solution as Solution
from graphode.flows import SolveError as SolveError
from graphode.flows import Stats as Stats
from graphode.flows import Status as Status
from graphode.flows import StepControl as StepControl
from graphode.flows import Stochastic as Stochastic
from graphode.flows import capture as capture
from graphode.flows import name_masks as name_masks
from graphode.flows import record_stats as record_stats
from graphode.flows import solve as solve
from graphode.flows import spectral_coefficients as spectral_coefficients
from graphode.flows import spectral_residual as spectral_residual
from graphode.flows import spectral_states as spectral_states
from graphode.flows import stochastic as stochastic
from graphode.graphs import DenseGraph as DenseGraph
from graphode.graphs import Graph as Graph
from graphode.graphs import SpectralBasis as SpectralBasis
from graphode.graphs import cayley as cayley
from graphode.graphs import chebyshev as chebyshev
from graphode.graphs import dense_radius_graph as dense_radius_graph
from graphode.graphs import diffuse as diffuse
from graphode.graphs import edge_lengths as edge_lengths
from graphode.graphs import gaussian_graph as gaussian_graph
from graphode.graphs import nearest_graph as nearest_graph
from graphode.graphs import percentile_graph as percentile_graph
from graphode.graphs import ppmi as ppmi
from graphode.graphs import radius_graph as radius_graph
from graphode.graphs import random_walks as random_walks
from graphode.graphs import scaled_laplacian as scaled_laplacian
from graphode.graphs import spectral_basis as spectral_basis
from graphode.graphs import spectral_radius as spectral_radius
from graphode.hybrid import GraphGRUCell as GraphGRUCell
from graphode.hybrid import GraphLSTMCell as GraphLSTMCell
from graphode.hybrid import GraphRNNCell as GraphRNNCell
from graphode.hybrid import HybridState as HybridState
from graphode.hybrid import HybridSystem as HybridSystem
from graphode.hybrid import LastObservation as LastObservation
from graphode.hybrid import NodeMap as NodeMap
from graphode.hybrid import RecurrentCell as RecurrentCell
from graphode.hybrid import ResidualReadout as ResidualReadout
from graphode.hybrid import Series as Series
from graphode.hybrid import SeriesBatch as SeriesBatch
from graphode.hybrid import StackedCell as StackedCell
from graphode.hybrid import collate as collate
from graphode.models import GADE as GADE
from graphode.models import GAT as GAT
from graphode.models import GCDE as GCDE
from graphode.models import GCDEGRU as GCDEGRU
from graphode.models import GCDELSTM as GCDELSTM
from graphode.models import GCDERNN as GCDERNN
from graphode.models import GCGRU as GCGRU
from graphode.models import GCLSTM as GCLSTM
from graphode.models import GCN as GCN
from graphode.models import GCRNN as GCRNN
from graphode.models import GDE as GDE
from graphode.models import GMDE as GMDE
from graphode.models import MLP as MLP
from graphode.models import AttentionPool as AttentionPool
from graphode.models import CannotBeSavedError as CannotBeSavedError
from graphode.models import FlatGRU as FlatGRU
from graphode.models import GlobalPool as GlobalPool
from graphode.models import GraphConvEncoder as GraphConvEncoder
from graphode.models import GraphConvReadout as GraphConvReadout
from graphode.models import LinearEncoder as LinearEncoder
from graphode.models import LinearReadout as LinearReadout
from graphode.models import MLPField as MLPField
from graphode.models import NeuralODE as NeuralODE
from graphode.models import PooledReadout as PooledReadout
from graphode.models import SparseFeatures as SparseFeatures
from graphode.models import load as load
from graphode.models import save as save

try:
    __version__ = importlib.metadata.version("graphode")
except importlib.metadata.PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+source"
