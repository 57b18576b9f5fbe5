"""F: vector fields on graphs, `field(t, h, graph) -> dh`."""

from graphode.fields.convolution import GraphConvField as GraphConvField
from graphode.fields.convolution import GraphConvolution as GraphConvolution
