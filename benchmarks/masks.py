"""`gd.Dropout` against `torch.nn.functional.dropout`: alone and inside a solve.

    python benchmarks/masks.py --device cpu

Forward and backward at a rate of one half, on a state of Cora's size, 2708 × 64, and on a hundred
of them, each with masks of its own (by sample) or all with the same. Inside a solve: one step of
rk4_38 along a two-layer graph convolution on a random graph of Cora's size, its masks fixed within
the solve (`per_solve`), redrawn at each evaluation by torch, or absent. The training step in the
masks' key is another at every call. The sides take turns; times are medians after warm-up. The
last line is one JSON object.

On a GPU, called one by one, states of Cora's size measure the host: its launches, and Python. What
the device takes is measured as training runs there: twenty layers of dropout, each with its
gradient, are recorded in one CUDA graph by `gd.capture`, ours under a key whose step is counted on
the device, and replayed; the time is that of one of them.
"""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from measure import script, side_by_side
from propagate import random_graph
from torch import Tensor, nn
from torch.nn import functional

import graphode as gd
from graphode.flows.stochastic import name_masks

RATE, NODES, CHANNELS, SAMPLES = 0.5, 2708, 64, 100
RECORDED = 20


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
        steps = itertools.count()

        def ours(h: Tensor, sample: Tensor | None = sample, steps: Any = steps) -> Tensor:
            with gd.stochastic(0, next(steps), sample):
                return dropout(h)

        runs = {"graphode": step(ours, h, cotangent), "torch": step(theirs, h, cotangent)}
        repeats = 50 if name == "one" or device != "cpu" else 5
        compare(found, name, side_by_side(runs, device, repeats))
        if device.startswith("cuda"):
            compare(found, f"{name}_captured", captured(h, cotangent, sample))
    return found


def theirs(h: Tensor) -> Tensor:
    """What users write."""
    return functional.dropout(h, RATE)


def compare(found: dict[str, Any], name: str, milliseconds: dict[str, float]) -> None:
    """Times and their ratio, into what was found."""
    found[f"{name}_ms"] = milliseconds
    found[f"{name}_torch_over_ours"] = milliseconds["torch"] / milliseconds["graphode"]


def captured(h: Tensor, cotangent: Tensor, sample: Tensor | None) -> dict[str, float]:
    """Milliseconds of one layer among those that are recorded together."""
    layers = nn.ModuleList(gd.Dropout(RATE) for _ in range(RECORDED))
    name_masks(layers)
    count = torch.zeros((), dtype=torch.int64, device=h.device)

    def ours() -> None:
        with gd.stochastic(0, count, sample):
            for layer in layers:
                torch.autograd.grad(layer(h), h, cotangent)
        count.add_(1)

    def torchs() -> None:
        for _ in layers:
            torch.autograd.grad(theirs(h), h, cotangent)

    runs: dict[str, Callable[[], object]] = {
        "graphode": gd.capture(ours, h.device),
        "torch": gd.capture(torchs, h.device),
    }
    # The first three calls warm up, the fourth records.
    together = side_by_side(runs, str(h.device), 50, warmup=5)
    return {name: milliseconds / RECORDED for name, milliseconds in together.items()}


class TorchDropout(nn.Module):
    """What users write: a new mask at every call."""

    def forward(self, h: Tensor) -> Tensor:
        """Drop entries."""
        return theirs(h) if self.training else h


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
    "goals": {
        "one_torch_over_ours": 1,
        "hundred_own_masks_torch_over_ours": 1,
        "one_captured_torch_over_ours": {"cuda": 1},
        "hundred_own_masks_captured_torch_over_ours": {"cuda": 1},
    },
}
PARTS = {"alone": alone, "solve": solve}
DEFAULT = ("alone", "solve")

if __name__ == "__main__":
    script(__doc__, "masks", FACTS, PARTS, DEFAULT)
