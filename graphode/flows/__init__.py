"""φ: flows of ordinary differential equations. This room knows no graph."""

from graphode.flows.capture import capture as capture
from graphode.flows.collocation import Collocation as Collocation
from graphode.flows.control import StepControl as StepControl
from graphode.flows.counting import record_stats as record_stats
from graphode.flows.events import Event as Event
from graphode.flows.flow import Flow as Flow
from graphode.flows.gradients import Adjoint as Adjoint
from graphode.flows.gradients import Backprop as Backprop
from graphode.flows.gradients import Checkpoint as Checkpoint
from graphode.flows.gradients import CheckpointAdjoint as CheckpointAdjoint
from graphode.flows.methods import SOLVERS as SOLVERS
from graphode.flows.solution import EventRecord as EventRecord
from graphode.flows.solution import Solution as Solution
from graphode.flows.solution import SolveError as SolveError
from graphode.flows.solution import Stats as Stats
from graphode.flows.solution import Status as Status
from graphode.flows.solve import solve as solve
from graphode.flows.spectral import spectral_coefficients as spectral_coefficients
from graphode.flows.spectral import spectral_residual as spectral_residual
from graphode.flows.spectral import spectral_states as spectral_states
from graphode.flows.stochastic import Stochastic as Stochastic
from graphode.flows.stochastic import name_masks as name_masks
from graphode.flows.stochastic import stochastic as stochastic
