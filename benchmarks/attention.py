"""`AttentionField` against PyG's `GATv2Conv` and `GATConv`: time and memory, forward and backward.

    python benchmarks/attention.py --device cpu            time and memory
    python benchmarks/attention.py --only memory

A random undirected graph of 100 000 nodes and 2 000 000 directed edges under 64 channels; the same
weights on both sides, gradients to the state and to all parameters. The sides take turns; times
are medians after warm-up. Peak memory is measured in fresh processes, above that of the inputs.
The last line is one JSON object.
"""

from collections.abc import Callable
from typing import Any

import torch
from measure import in_fresh_process, peak_memory_mib, script, side_by_side
from propagate import random_graph
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GATv2Conv

from graphode.fields import AttentionField
from graphode.graphs import Graph

CHANNELS = 64
# Scores and heads; the first is the one with a goal.
CASES: dict[str, tuple[Any, int]] = {
    "gatv2": ("gatv2", 1),
    "gatv2_8_heads": ("gatv2", 8),
    "gat_8_heads": ("gat", 8),
}


def contenders(name: str, graph: Graph) -> dict[str, tuple[nn.Module, Callable[[Tensor], Tensor]]]:
    """Our field and PyG's layer with the same weights."""
    scores, heads = CASES[name]
    torch.manual_seed(0)
    field = AttentionField(CHANNELS, heads, scores, activation=None).to(graph.device)
    build: Any = GATv2Conv if scores == "gatv2" else GATConv
    layer = build(CHANNELS, CHANNELS // heads, heads).to(graph.device)
    with torch.no_grad():
        if scores == "gatv2":
            assert field.target is not None
            for ours, theirs in ((field.source, layer.lin_l), (field.target, layer.lin_r)):
                theirs.weight.copy_(ours.weight)
                theirs.bias.copy_(ours.bias)
            layer.att.copy_(field.source_attention[None])
        else:
            assert field.target_attention is not None
            layer.lin.weight.copy_(field.source.weight)
            layer.att_src.copy_(field.source_attention[None])
            layer.att_dst.copy_(field.target_attention[None])
    source = graph.source
    assert source is not None
    return {
        "graphode": (field, lambda h: field(0.0, h, graph)),
        "pyg": (layer, lambda h: layer(h, source.edge_index)),
    }


def forward_and_backward(
    module: nn.Module, run: Callable[[Tensor], Tensor], nodes: int, device: str
) -> Callable[[], object]:
    """One training step's worth."""
    generator = torch.Generator().manual_seed(1)
    h = torch.randn(nodes, CHANNELS, generator=generator).to(device).requires_grad_()
    cotangent = torch.randn(nodes, CHANNELS, generator=generator).to(device)
    inputs = [h, *module.parameters()]
    return lambda: torch.autograd.grad(run(h), inputs, cotangent)


def time(device: str) -> dict[str, Any]:
    """Milliseconds of forward + backward, and that both sides find the same."""
    graph = random_graph("large", device)
    found: dict[str, Any] = {}
    for name in CASES:
        sides = contenders(name, graph)
        with torch.no_grad():
            h = torch.randn(graph.num_nodes, CHANNELS, device=device)
            ours, theirs = (run(h) for _, run in sides.values())
            found[f"{name}_largest_difference"] = float((ours - theirs).abs().max())
        runs = {
            side: forward_and_backward(module, run, graph.num_nodes, device)
            for side, (module, run) in sides.items()
        }
        found[f"{name}_ms"] = side_by_side(runs, device, 3 if device == "cpu" else 20, warmup=1)
        found[f"{name}_speedup_over_pyg"] = (
            found[f"{name}_ms"]["pyg"] / found[f"{name}_ms"]["graphode"]
        )
    return found


def memory(device: str) -> dict[str, Any]:
    """Peak memory of forward + backward, each side in its own process."""
    found: dict[str, Any] = {}
    for name in CASES:
        found[f"{name}_mib"] = {
            side: in_fresh_process(__file__, "--device", device, "--one-memory", f"{name}:{side}")[
                "mib"
            ]
            for side in ("graphode", "pyg")
        }
        found[f"{name}_share_of_pyg"] = (
            found[f"{name}_mib"]["graphode"] / found[f"{name}_mib"]["pyg"]
        )
    return found


def one_memory(device: str, name: str, side: str) -> dict[str, float]:
    """Peak memory of one side above its inputs: graph, state, weights, cotangent."""
    # What is loaded once per process is no part of a layer.
    small = random_graph("cora_size", device)
    forward_and_backward(*contenders(name, small)[side], small.num_nodes, device)()
    graph = random_graph("large", device)
    run = forward_and_backward(*contenders(name, graph)[side], graph.num_nodes, device)
    return {"mib": peak_memory_mib(run, device)}


FACTS = {
    "channels": CHANNELS,
    "goals": {"gatv2_speedup_over_pyg": 1, "gatv2_share_of_pyg": 0.5},
}
PARTS = {"time": time, "memory": memory}
DEFAULT = ("time", "memory")

if __name__ == "__main__":
    script(__doc__, "attention", FACTS, PARTS, DEFAULT, one_memory)
