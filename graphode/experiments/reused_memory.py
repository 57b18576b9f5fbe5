"""A recorded program that writes where it has read for the last time.

    bmm = x W;  add = bmm + b;  tanh = tanh(add)      three tensors become one

A new tensor for every result keeps a processor busy with memory that is not in its caches. The
numbers are the same bit for bit.
"""

import operator
from typing import Any

import torch
from torch import Tensor, fx

from graphode.experiments.shortened import (
    RESHAPES,
    does_the_same_each_time,
    goes_number_by_number,
)


def reuse_memory(program: fx.GraphModule) -> fx.GraphModule:
    """Give results that are made number by number the memory of an operand nobody reads again.

    A program that changes tensors in place or draws at random stays as it is.
    """
    if not does_the_same_each_time(program):
        return program
    owners = _owners(program.graph)
    last = _last_reads(program.graph, owners)
    for place, node in enumerate(program.graph.nodes):
        free = _free_operand(node, owners, last, place)
        variant = _that_writes(node.target) if free else None
        if free and variant:
            node.target, name = variant
            node.kwargs = {**node.kwargs, name: free}
            last[owners[free]] = last[node]
            views = [view for view, owner in owners.items() if owner is node]
            owners.update(dict.fromkeys(views, owners[free]))
    program.recompile()
    return program


def _owners(graph: fx.Graph) -> dict[fx.Node, fx.Node]:
    """Of every tensor the one whose memory it looks at, itself if it has its own."""
    owners: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        owners[node] = owners[node.args[0]] if _is_view(node) else node
    return owners


def _last_reads(graph: fx.Graph, owners: dict[fx.Node, fx.Node]) -> dict[fx.Node, int]:
    """The place in the program after which nobody reads an owner's memory."""
    last: dict[fx.Node, int] = {}
    for place, node in enumerate(graph.nodes):
        last[owners[node]] = place
        for read in node.all_input_nodes:
            last[owners[read]] = place
    return last


def _free_operand(
    node: fx.Node, owners: dict[fx.Node, fx.Node], last: dict[fx.Node, int], place: int
) -> fx.Node | None:
    """An operand that can be overwritten by the result."""
    if not goes_number_by_number(node):
        return None
    for operand in node.all_input_nodes:
        owner = owners[operand]
        own = owner.op == "call_function" and last[owner] == place
        # Through another view, numbers would be overwritten before they are read.
        seen_once = [owners[other] for other in node.all_input_nodes].count(owner) == 1
        if own and seen_once and _alike(node, operand):
            return operand
    return None


def _that_writes(operation: Any) -> tuple[Any, str] | None:
    """The same operation with a tensor to write to, and what that argument is called."""
    wanted = [(argument.name, argument.type) for argument in operation._schema.arguments]
    for name in operation.overloadpacket.overloads():
        variant = getattr(operation.overloadpacket, name)
        *given, out = [(a.name, a.type, a.is_out) for a in variant._schema.arguments]
        if out[2] and [argument[:2] for argument in given] == wanted:
            return variant, out[0]
    return None


def _alike(a: fx.Node, b: fx.Node) -> bool:
    """Whether two nodes are tensors of one shape and type without gaps."""
    x, y = a.meta.get("val"), b.meta.get("val")
    if not (isinstance(x, Tensor) and isinstance(y, Tensor)):
        return False
    return (x.shape, x.dtype) == (y.shape, y.dtype) and x.is_contiguous() and y.is_contiguous()


def _is_view(node: fx.Node) -> bool:
    """Whether it may look at the memory of its first argument."""
    if node.target in RESHAPES or node.target is operator.getitem:
        return True
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    return any(result.alias_info is not None for result in node.target._schema.returns)
