"""A recorded program made shorter, with the same numbers bit for bit.

What `torch.fx` records is everything that was asked for: views of views, the same constant made
again and again, results that nobody reads. On small tensors each of these takes as long as an
operation that counts.
"""

import operator
from types import BuiltinFunctionType
from typing import Any

import torch
from torch import Tensor, fx

aten = torch.ops.aten
# With as many numbers after as before, these leave every number where it lies in memory.
RESHAPES: set[Any] = {
    aten.view.default,
    aten._unsafe_view.default,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.expand.default,
    aten.detach.default,
    aten.alias.default,
}


def shorten(program: fx.GraphModule) -> fx.GraphModule:
    """Make constants once, join views, do what is done twice once, drop what nobody reads.

    A program that changes tensors in place or draws at random stays as it is: there, two like
    operations may give different numbers.
    """
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    if all(_may_be_shared(node) for node in nodes):
        _make_constants_once(program)
        _join_views(program.graph)
        _do_once(program.graph)
        program.graph.eliminate_dead_code()
        program.recompile()
    return program


def call_directly(program: fx.GraphModule) -> fx.GraphModule:
    """Call `torch.add` and its like; recorded are overloads of operations, slower to call."""
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
        elif isinstance(function, BuiltinFunctionType):
            node.target = function
    program.recompile()
    return program


def _may_be_shared(node: fx.Node) -> bool:
    """Whether the operation gives the same whenever it is done, and changes nothing."""
    operation = node.target
    if not isinstance(operation, torch._ops.OpOverload):
        return operation is operator.getitem
    draws = torch.Tag.nondeterministic_seeded in operation.tags
    return not draws and not operation._schema.is_mutable


def _make_constants_once(program: fx.GraphModule) -> None:
    graph, constants = program.graph, {}
    for node in graph.nodes:
        if node.op == "call_function" and all(n in constants for n in node.all_input_nodes):
            args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: constants[n])
            constants[node] = node.target(*args, **kwargs)
    for node, value in constants.items():
        if isinstance(value, Tensor) and any(user not in constants for user in node.users):
            program.register_buffer(f"constant_{node.name}", value)
            with graph.inserting_before(node):
                constant = graph.get_attr(f"constant_{node.name}")
            constant.meta = node.meta
            node.replace_all_uses_with(constant)


def _join_views(graph: fx.Graph) -> None:
    for node in graph.nodes:
        if not _only_reshapes(node):
            continue
        source = node.args[0]
        if not (_is_contiguous(node) and _is_contiguous(source)):
            if _layout(node) == _layout(source):
                node.replace_all_uses_with(source)
            continue
        while _only_reshapes(source) and _is_contiguous(source.args[0]):
            source = source.args[0]
        if _value(node).shape == _value(source).shape:
            node.replace_all_uses_with(source)
        else:
            node.target, node.kwargs = aten.view.default, {}
            node.args = (source, list(_value(node).shape))


def _do_once(graph: fx.Graph) -> None:
    done: dict[Any, fx.Node] = {}
    for node in graph.nodes:
        if node.op == "call_function":
            # Written out, since 1 and 1.0 are equal, but no two nodes have one name.
            first = done.setdefault((node.target, repr(node.args), repr(node.kwargs)), node)
            if first is not node:
                node.replace_all_uses_with(first)


def _only_reshapes(node: fx.Node) -> bool:
    return node.target in RESHAPES and _value(node).numel() == _value(node.args[0]).numel()


def _is_contiguous(node: fx.Node) -> bool:
    return _value(node).is_contiguous()


def _layout(node: fx.Node) -> tuple[Any, ...]:
    return _value(node).shape, _value(node).stride()


def _value(node: Any) -> Tensor:
    """A tensor without numbers that has the shape of the node's."""
    return node.meta["val"]
