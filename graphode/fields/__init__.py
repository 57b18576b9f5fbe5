"""F: vector fields on graphs, `field(t, h, graph) -> dh`."""

from graphode.fields.attention import AttentionField as AttentionField
from graphode.fields.augmented import Augmented as Augmented
from graphode.fields.cayley import CayleyField as CayleyField
from graphode.fields.chebyshev import ChebField as ChebField
from graphode.fields.controlled import Controlled as Controlled
from graphode.fields.convolution import GraphConvField as GraphConvField
from graphode.fields.convolution import GraphConvMap as GraphConvMap
from graphode.fields.convolution import GraphConvolution as GraphConvolution
from graphode.fields.depth_varying import DepthVarying as DepthVarying
from graphode.fields.depth_varying import TimeConcat as TimeConcat
from graphode.fields.diffusion import DiffusionField as DiffusionField
from graphode.fields.diffusion import WalkPowerField as WalkPowerField
from graphode.fields.dual import DualField as DualField
from graphode.fields.extension import pack as pack
from graphode.fields.extension import unpack as unpack
from graphode.fields.message_passing import MessagePassingField as MessagePassingField
from graphode.fields.pyg import ConvField as ConvField
from graphode.fields.second_order import HigherOrder as HigherOrder
from graphode.fields.second_order import SecondOrder as SecondOrder
from graphode.fields.spectral import SpectralField as SpectralField
from graphode.fields.structure import AttributedGraph as AttributedGraph
