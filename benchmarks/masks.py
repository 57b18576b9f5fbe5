"""`gd.Dropout` against `torch.nn.functional.dropout`: alone and inside a solve.

    python benchmarks/masks.py --device cpu

Forward and backward at a rate of one half, on a state of Cora's size, 2708 × 64, and on a hundred
of them, each with masks of its own (by sample) or all with the same. Inside a solve: one step of
rk4_38 along a two-layer graph convolution on a random graph of Cora's size, its masks fixed within
the solve (`per_solve`), redrawn at each evaluation by torch, or absent. The sides take turns; times
are medians after warm-up. The last line is one JSON object.
"""

from collections.abc import Callable
from typing import Any

import torch
from measure import script, side_by_side
from propagate import random_graph
from torch import Tensor, nn
from torch.nn import functional

import graphode as gd

RATE, NODES, CHANNELS, SAMPLES = 0.5, 2708, 64, 100


def step(run: Callable[[Tensor], Tensor], h: Tensor, cotangent: Tensor) -> Callable[[], object]:
    """Forward and backward."""
    return lambda: torch.autograd.grad(run(h), h, cotangent)


def alone(device: str) -> dict[str, Any]:
    """Milliseconds of a mask, drawn and applied."""
    dropout = gd.Dropout(RATE)
    found: dict[str, Any] = {}
    samples = torch.arange(SAMPLES, device=device)
    for name, shape, sample in (
        ("one", (NODES, CHANNELS), None),
        ("hundred_own_masks", (SAMPLES, NODES, CHANNELS), samples),
        ("hundred_one_mask", (SAMPLES, NODES, CHANNELS), None),
    ):
        h = torch.randn(shape, device=device, requires_grad=True)
        cotangent = torch.randn(shape, device=device)

        def ours(h: Tensor, sample: Tensor | None = sample) -> Tensor:
            with gd.stochastic(0, 1, sample):
                return dropout(h)

        def theirs(h: Tensor) -> Tensor:
            return functional.dropout(h, RATE)

        runs = {"graphode": step(ours, h, cotangent), "torch": step(theirs, h, cotangent)}
        repeats = 50 if name == "one" or device != "cpu" else 5
        found[f"{name}_ms"] = side_by_side(runs, device, repeats)
        found[f"{name}_torch_over_ours"] = (
            found[f"{name}_ms"]["torch"] / found[f"{name}_ms"]["graphode"]
        )
    return found


class TorchDropout(nn.Module):
    """What users write: a new mask at every call."""

    def forward(self, h: Tensor) -> Tensor:
        """Drop entries."""
        return functional.dropout(h, RATE, self.training)


class RedrawnField(nn.Module):
    """The two layers of the other fields, with torch's dropout before each."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (gd.GraphConvolution(CHANNELS, CHANNELS) for _ in range(2))
        self.dropout = TorchDropout()

    def forward(self, t: Tensor, h: Tensor, graph: gd.Graph) -> Tensor:
        """C² ∘ softplus ∘ C¹."""
        h = functional.softplus(self.first(self.dropout(h), graph))
        return self.second(self.dropout(h), graph)


def solve(device: str) -> dict[str, Any]:
    """Milliseconds of a solve and its gradients."""
    graph = random_graph("cora_size", device)
    widths = [CHANNELS, CHANNELS, CHANNELS]
    fields = {
        "graphode": gd.GraphConvField(widths, dropout=RATE),
        "torch": RedrawnField(),
        "without": gd.GraphConvField(widths),
    }
    h = torch.randn(NODES, CHANNELS, device=device, requires_grad=True)
    cotangent = torch.randn(NODES, CHANNELS, device=device)
    runs = {}
    for name, field in fields.items():
        flow = gd.Flow(field.to(device), solver="rk4_38", num_steps=1)
        inputs = [h, *field.parameters()]

        def run(flow: gd.Flow = flow, inputs: list[Any] = inputs) -> object:
            with gd.stochastic(0, 1):
                return torch.autograd.grad(flow(h, graph), inputs, cotangent)

        runs[name] = run
    milliseconds = side_by_side(runs, device, 40)
    return {
        "ms": milliseconds,
        "torch_over_ours": milliseconds["torch"] / milliseconds["graphode"],
        "share_of_masks": 1 - milliseconds["without"] / milliseconds["graphode"],
    }


FACTS = {
    "rate": RATE,
    "goals": {"one_torch_over_ours": 1, "hundred_own_masks_torch_over_ours": 1},
}
PARTS = {"alone": alone, "solve": solve}
DEFAULT = ("alone", "solve")

if __name__ == "__main__":
    script(__doc__, "masks", FACTS, PARTS, DEFAULT)
