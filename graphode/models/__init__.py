"""Models: encoder, flow and readout; those the paper names, and their baselines."""

from graphode.models.dense import MLP as MLP
from graphode.models.encoder import GraphConvEncoder as GraphConvEncoder
from graphode.models.encoder import LinearEncoder as LinearEncoder
from graphode.models.flat_gru import FlatGRU as FlatGRU
from graphode.models.gade import GADE as GADE
from graphode.models.gat import GAT as GAT
from graphode.models.gcde import GCDE as GCDE
from graphode.models.gcn import GCN as GCN
from graphode.models.gde import GDE as GDE
from graphode.models.gmde import GMDE as GMDE
from graphode.models.neural_ode import MLPField as MLPField
from graphode.models.neural_ode import NeuralODE as NeuralODE
from graphode.models.pooling import AttentionPool as AttentionPool
from graphode.models.pooling import GlobalPool as GlobalPool
from graphode.models.pooling import PooledReadout as PooledReadout
from graphode.models.readout import GraphConvReadout as GraphConvReadout
from graphode.models.readout import LinearReadout as LinearReadout
from graphode.models.recurrent import GCDEGRU as GCDEGRU
from graphode.models.recurrent import GCDELSTM as GCDELSTM
from graphode.models.recurrent import GCDERNN as GCDERNN
from graphode.models.recurrent import GCGRU as GCGRU
from graphode.models.recurrent import GCLSTM as GCLSTM
from graphode.models.recurrent import GCRNN as GCRNN
from graphode.models.sparse_features import SparseFeatures as SparseFeatures
