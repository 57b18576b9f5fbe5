"""What a system knows between observations."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class HybridState:
    """The state of a hybrid system after its last observation: all that a forecast needs.

    It holds no history, so it can be kept per network by a service, and saved:
    `safetensors.torch.save_file(state.tensors(), path)`, and back with
    `HybridState(**tensors, graph=graph)`.

    Attributes:
        h: The state, with all its parts.
        time: When each sample was observed last, float64.
        graph: The graph known since then.
    """

    h: Float[Tensor, "*batch nodes channels"]
    time: Float[Tensor, "*batch"]
    graph: Any = None

    @property
    def num_nodes(self) -> int:
        """How many nodes there are now."""
        return self.h.shape[-2]

    def tensors(self) -> dict[str, Tensor]:
        """State and time, to be saved; the graph is kept by whoever made it."""
        return {"h": self.h, "time": self.time}

    def detach(self) -> "HybridState":
        """The same state, without its history for gradients."""
        return HybridState(self.h.detach(), self.time.detach(), self.graph)

    def to(self, *args: Any, **kwargs: Any) -> "HybridState":
        """The same state on another device, or in another dtype; time stays float64."""
        h = self.h.to(*args, **kwargs)
        graph = self.graph.to(h.device, h.dtype) if hasattr(self.graph, "to") else self.graph
        return HybridState(h, self.time.to(h.device), graph)
