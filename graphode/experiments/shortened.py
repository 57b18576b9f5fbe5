"""A recorded program made shorter, with the same numbers bit for bit.

What `torch.fx` records is everything that was asked for: views of views, views before and after
each operation, the same constant made again and again, results that nobody reads. On small tensors
each of these takes as long as an operation that counts.
"""

import operator
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
    """Make constants once, do without views, do what is done twice once, drop what nobody reads.

    A program that changes tensors in place or draws at random stays as it is: there, two like
    operations may give different numbers.
    """
    if does_the_same_each_time(program):
        _make_constants_once(program)
        _join_views(program.graph)
        _work_before_views(program.graph)
        _join_views(program.graph)
        _do_once(program.graph)
        program.graph.eliminate_dead_code()
        program.recompile()
    return program


def does_the_same_each_time(program: fx.GraphModule) -> bool:
    """Whether nothing is changed in place and nothing drawn at random."""
    return all(_may_be_shared(n) for n in program.graph.nodes if n.op == "call_function")


def goes_number_by_number(node: fx.Node) -> bool:
    """Whether every number of the result is made of those at its place in the operands."""
    operation = node.target
    return isinstance(operation, torch._ops.OpOverload) and torch.Tag.pointwise in operation.tags


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


def _work_before_views(graph: fx.Graph) -> None:
    """What is done number by number, do before a reshape: f(view(x)) becomes view(f(x)).

    Views that this brings together are joined later.
    """
    for node in list(graph.nodes):
        shape = _shape_before_view(node)
        if shape is None:
            continue
        found = ((operand, _beside(operand, node, shape)) for operand in node.all_input_nodes)
        shapes = {operand: to for operand, to in found if to is not None}
        if len(shapes) == len(node.all_input_nodes):
            _work_in_shape(graph, node, shape, shapes)


def _work_in_shape(
    graph: fx.Graph, node: fx.Node, shape: torch.Size, shapes: dict[fx.Node, torch.Size]
) -> None:
    with graph.inserting_before(node):
        seen = {operand: _viewed(graph, operand, to) for operand, to in shapes.items()}
    node.args, node.kwargs = fx.map_arg((node.args, node.kwargs), lambda n: seen[n])
    value = _value(node)
    node.meta = {**node.meta, "val": value.view(shape)}
    with graph.inserting_after(node):
        after = _viewed(graph, node, value.shape)
    node.replace_all_uses_with(after, lambda user: user is not after)


def _shape_before_view(node: fx.Node) -> torch.Size | None:
    """What an operand of the node had for a shape before it was reshaped."""
    if not goes_number_by_number(node):
        return None
    for operand in node.all_input_nodes:
        source: Any = operand
        while source.target is aten.view.default:
            source = source.args[0]
        if source is not operand and _value(operand).shape == _value(node).shape:
            return _value(source).shape
    return None


def _beside(operand: fx.Node, node: fx.Node, shape: torch.Size) -> torch.Size | None:
    """The operand's shape where the result's is `shape`; None if no view of it has that."""
    value, result = _value(operand), _value(node)
    if not (value.is_contiguous() and result.is_contiguous()):
        return None
    if not value.ndim:  # a number, which has no say in the result's type
        return value.shape
    if value.shape == result.shape:
        return shape
    if [size for size in shape if size != 1] != [size for size in result.shape if size != 1]:
        return None
    padded = (1,) * (result.ndim - value.ndim) + tuple(value.shape)
    sizes = iter(own for own, size in zip(padded, result.shape, strict=True) if size != 1)
    return torch.Size(1 if size == 1 else next(sizes) for size in shape)


def _viewed(graph: fx.Graph, node: fx.Node, shape: torch.Size) -> fx.Node:
    if _value(node).shape == shape:
        return node
    view = graph.call_function(aten.view.default, (node, list(shape)))
    view.meta = {"val": _value(node).view(shape)}
    return view


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
