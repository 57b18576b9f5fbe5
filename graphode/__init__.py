"""Graph neural ordinary differential equations.

A graph carries a field; a field generates a flow; jumps punctuate the flow; encoder, flow and
readout make a model.
"""

import importlib.metadata

from graphode.fields import GraphConvField as GraphConvField
from graphode.fields import GraphConvolution as GraphConvolution
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
from graphode.flows import solve as solve
from graphode.flows import spectral_coefficients as spectral_coefficients
from graphode.flows import spectral_residual as spectral_residual
from graphode.flows import spectral_states as spectral_states
from graphode.graphs import Graph as Graph

try:
    __version__ = importlib.metadata.version("graphode")
except importlib.metadata.PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+source"
