"""Which tensors a field depends on, so that no gradient is lost where autograd does not look.

`checkpoint` and the adjoints run the field outside autograd's sight and must name every tensor
that is to receive a gradient: tensors in `args` (also inside containers and registered classes),
and whatever leaf the field depends on. What the field holds, closes over or names is searched: it
may be used only later in time. Code of the user's own may read what no search finds, so that the
autograd graph of one evaluation is followed too, unless torch's modules and ours are all there is.
"""

import dis
import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree


def argument_tensors(args: tuple[Any, ...]) -> list[Tensor]:
    """Tensors in `args` that want a gradient."""
    leaves = pytree.tree_leaves(args)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]


def detached_arguments(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """`args` cut off from what computed them.

    Otherwise a parameter that the field uses directly and through an argument would be counted
    twice: once here, and once when autograd goes on from the argument's own gradient.
    """

    def cut(leaf: Any) -> Any:
        if isinstance(leaf, Tensor) and leaf.requires_grad and not leaf.is_leaf:
            return leaf.detach().requires_grad_()
        return leaf

    return pytree.tree_map(cut, args)


def field_tensors(
    f: Callable[..., Tensor], t: Tensor, y: Tensor, args: tuple[Any, ...]
) -> tuple[list[Tensor], list[nn.Module]]:
    """Leaf tensors besides `args` that the field depends on and that want a gradient.

    Args:
        f: The field.
        t: A time it can be evaluated at.
        y: A state.
        args: Its arguments, cut off from what computed them.

    Returns:
        The tensors, and the modules that the field holds, closes over or names.
    """
    reached = _reached_from(f)
    roots = [thing for thing in reached if isinstance(thing, Tensor)]
    if any(_is_foreign(thing) for thing in reached):
        with torch.enable_grad():
            roots.append(f(t, y.detach(), *args))
    known = {id(leaf) for leaf in argument_tensors(args)}
    wanted = argument_tensors(tuple(roots))
    leaves = [tensor for tensor in wanted if tensor.is_leaf]
    leaves += leaves_behind(tensor.grad_fn for tensor in wanted)
    modules = [thing for thing in reached if isinstance(thing, nn.Module)]
    return list({id(leaf): leaf for leaf in leaves if id(leaf) not in known}.values()), modules


def leaves_behind(nodes: Iterable[Any]) -> Iterator[Tensor]:
    """The leaf tensors that the autograd graph behind `nodes` ends in."""
    stack, met = [*nodes], set()
    while stack:
        node = stack.pop()
        if node is None or node in met:
            continue
        met.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            yield variable
        stack.extend(parent for parent, _ in node.next_functions)


# Whose modules and functions read nothing but what they hold and are given.
_CLOSED = {"torch", "torch_geometric", "graphode", "numpy", *sys.stdlib_module_names}
_CLOSED |= {"jaxtyping", "beartype"}  # which check types around a function

# Other libraries may read anything, but what their functions name is hardly the user's, and much.
_INSTALLED = ("site-packages", "dist-packages")

# What leads nowhere.
_LEAVES = (str, bytes, int, float, complex, type(None), type, ModuleType)


def _is_foreign(thing: Any) -> bool:
    """Whether `thing` is, or has, code that may read anything."""
    owner = thing if isinstance(thing, FunctionType) else type(thing)
    return (owner.__module__ or "").partition(".")[0] not in _CLOSED


def _reached_from(f: Any) -> list[Any]:
    """Everything that a field holds, closes over or names, and what that does."""
    stack, reached = [f], {}
    while stack:
        thing = stack.pop()
        if isinstance(thing, _LEAVES) or id(thing) in reached:
            continue
        reached[id(thing)] = thing
        if not isinstance(thing, Tensor):
            stack.extend(pytree.tree_leaves(_held_by(thing)))
    return list(reached.values())


def _held_by(thing: Any) -> list[Any]:
    """What a function or an object refers to."""
    held: list[Any] = [getattr(thing, "__dict__", None)]
    if isinstance(thing, MethodType):
        held += [thing.__self__, thing.__func__]
    elif isinstance(thing, functools.partial):
        held += [thing.func, thing.args, thing.keywords]
    elif isinstance(thing, FunctionType):
        held += [thing.__defaults__, thing.__kwdefaults__]
        held += [_content(cell) for cell in thing.__closure__ or ()]
        if _is_own_function(thing):
            held += [_named(chain, thing.__globals__) for chain in _globals_of(thing.__code__)]
    elif _is_foreign(thing):
        for kind in type(thing).__mro__:
            held += [part for part in vars(kind).values() if _is_own_function(part)]
    return held


def _is_own_function(thing: Any) -> bool:
    """Whether `thing` is a function of the user's, whose code says what it reads."""
    if not isinstance(thing, FunctionType) or not _is_foreign(thing):
        return False
    return not any(folder in thing.__code__.co_filename for folder in _INSTALLED)


def _content(cell: Any) -> Any:
    """What a closure's cell holds; nothing before its first assignment."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


@functools.cache
def _globals_of(code: CodeType) -> tuple[tuple[str, ...], ...]:
    """The global names in `code`, each with the attributes that are read from it: `model.field`."""
    chains: list[list[str]] = []
    follows = False
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            chains.append([instruction.argval])
            follows = True
        elif follows and instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            chains[-1].append(instruction.argval)
        else:
            follows = False
    inner = (_globals_of(part) for part in code.co_consts if isinstance(part, CodeType))
    return (*map(tuple, chains), *(chain for chains in inner for chain in chains))


def _named(chain: tuple[str, ...], variables: dict[str, Any]) -> Any:
    """The last object of `chain` that is found without running any code."""
    found = variables.get(chain[0])
    for name in chain[1:]:
        places = [getattr(found, "__dict__", {})]
        if isinstance(found, nn.Module):
            places += [found._parameters, found._buffers, found._modules]
        owner = next((place for place in places if name in place), None)
        if owner is None:
            break
        found = owner[name]
    return found
