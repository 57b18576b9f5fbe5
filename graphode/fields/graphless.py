"""Modules that know no graph, in places that hand one over.

Encoder and readout receive the graph; `nn.Linear` and its like take one tensor. Which is which is
decided here, once, from the signature.
"""

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


class Graphless(nn.Module):
    """module(h) where module(h, graph) is called; None is the identity.

    Args:
        module: Any function or module of one tensor.
    """

    def __init__(self, module: Callable[[Any], Tensor] | None = None) -> None:
        super().__init__()
        self.module: Any = module

    def forward(self, h: Any, graph: Any = None) -> Any:
        """Leave the graph out."""
        del graph
        if self.module is None:
            return h
        if isinstance(self.module, nn.Module) and not isinstance(h, Tensor):
            raise TypeError(
                f"{type(self.module).__name__} takes a dense tensor, but {type(h).__name__} came. "
                f"Use an encoder that keeps features sparse (`GraphConvEncoder`, "
                f"`LinearEncoder`), or make them dense with `x.to_dense()`."
            )
        return self.module(h)


def with_graph(module: Callable[..., Any] | None, role: str) -> Callable[..., Any]:
    """`module` as a function of (h, graph): itself if it takes a graph, else wrapped.

    It takes one if its second positional parameter is required or is named `graph`. So
    `functional.relu(input, inplace=False)` does not, nor do functions without a signature, such
    as `torch.tanh`.

    Args:
        module: A module, a function, or None for the identity.
        role: Its name in errors.
    """
    if module is None:
        return Graphless()
    if not callable(module):
        raise TypeError(
            f"`{role}` must be a module, a function of (h, graph) or of h alone, or None, but is "
            f"{module!r}. Pass for example `nn.Linear(16, 64)`."
        )
    parameters = _positional(module)
    if parameters is None:
        return Graphless(module)
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return module
    names = [parameter.name for parameter in parameters]
    required = sum(parameter.default is inspect.Parameter.empty for parameter in parameters)
    if "edge_index" in names[:2]:
        raise TypeError(
            f"`{role}` is called with a Graph, but {_name(module)} takes an `edge_index`. Wrap it: "
            f"`lambda h, graph: module(h, graph.edge_index)`, with `graph.source` where the graph "
            f"is normalised and the module normalises too."
        )
    if required > 2 or not names:
        raise TypeError(
            f"`{role}` must take (h, graph) or h alone, but {_name(module)} takes "
            f"({', '.join(names)}). Wrap it in a function of two arguments."
        )
    takes_graph = required == 2 or (len(names) > 1 and names[1] == "graph")
    return module if takes_graph else Graphless(module)


def _positional(module: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """Positional parameters; None where there is no signature."""
    module = getattr(module, "_orig_mod", module)  # torch.compile hides the signature
    try:
        signature = inspect.signature(module.forward if isinstance(module, nn.Module) else module)
    except ValueError:
        return None
    kinds = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    )
    return [parameter for parameter in signature.parameters.values() if parameter.kind in kinds]


def _name(module: Callable[..., Any]) -> str:
    return getattr(module, "__name__", type(module).__name__)
