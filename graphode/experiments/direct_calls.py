"""How a recorded program calls its operations: by the shortest way there is.

Recorded are overloads of operations, `aten.add.Tensor`; `torch.add` is faster to call. And tanh is
NumPy's: PyTorch asks a library for it that on some processors takes seven times as long, for half
a unit in the last place; NumPy is within one and a half.
"""

from types import BuiltinFunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

aten = torch.ops.aten
NUMPYS = (torch.float32, torch.float64)


def call_directly(program: fx.GraphModule) -> fx.GraphModule:
    """Call `torch.add` and its like."""
    graph = program.graph
    for node in list(graph.nodes):
        if not isinstance(node.target, torch._ops.OpOverload):
            continue
        function = getattr(torch, node.target.overloadpacket.__name__, None)
        if node.target is aten.view.default:
            with graph.inserting_before(node):
                source, shape = node.args
                node.replace_all_uses_with(graph.call_method("view", (source, *shape)))
            graph.erase_node(node)
        elif node.target.overloadpacket is aten.tanh and _is_numpys(node.meta["val"]):
            node.target = tanh
        elif isinstance(function, BuiltinFunctionType):
            node.target = function
    program.recompile()
    return program


def tanh(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The hyperbolic tangent on a CPU, of which autograd knows nothing."""
    if out is None:
        return torch.from_numpy(np.asarray(np.tanh(x.detach().numpy())))
    np.tanh(x.detach().numpy(), out=out.numpy())
    return out


def _is_numpys(value: Any) -> bool:
    return isinstance(value, Tensor) and value.device.type == "cpu" and value.dtype in NUMPYS
