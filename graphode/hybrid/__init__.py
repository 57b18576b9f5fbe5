"""h⁺: systems that flow between observations and jump at them."""

from graphode.hybrid.cells import GraphGRUCell as GraphGRUCell
from graphode.hybrid.cells import GraphLSTMCell as GraphLSTMCell
from graphode.hybrid.cells import GraphRNNCell as GraphRNNCell
from graphode.hybrid.cells import RecurrentCell as RecurrentCell
from graphode.hybrid.collate import Series as Series
from graphode.hybrid.collate import SeriesBatch as SeriesBatch
from graphode.hybrid.collate import collate as collate
from graphode.hybrid.compound import LastObservation as LastObservation
from graphode.hybrid.compound import ResidualReadout as ResidualReadout
from graphode.hybrid.compound import StackedCell as StackedCell
from graphode.hybrid.node_map import NodeMap as NodeMap
from graphode.hybrid.state import HybridState as HybridState
from graphode.hybrid.system import HybridSystem as HybridSystem
