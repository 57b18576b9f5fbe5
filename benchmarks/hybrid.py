"""Hybrid systems: a training step against torchdiffeq, streaming, and cost against size.

    python benchmarks/hybrid.py --device cpu           all of it
    python benchmarks/hybrid.py --only training --device cuda

The rival integrates the whole batch over the union of the gaps its samples have at a step, with one
torchdiffeq `odeint`, and picks for each sample the state at its own gap: the way of the authors'
released `ODEBlock.forward_batched`. Both sides share cell, field, head, weights and tolerances, run
in one process and take turns; times are medians after warm-up. The last line is one JSON object.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measure import machine, side_by_side
from torch import Tensor

import graphode as gd

PARTS = ("training", "streaming", "nodes", "steps")
SENSORS, WINDOWS, STEPS = 228, 64, 5
TOLERANCES = {"rtol": 1e-3, "atol": 1e-4}


def road_graph(num_nodes: int, device: str, neighbours: int = 8, seed: int = 0) -> gd.Graph:
    """Sensors scattered in the plane, each linked with its nearest, normalised as in a GCN."""
    generator = torch.Generator().manual_seed(seed)
    places = torch.rand(num_nodes, 2, generator=generator)
    links = gd.nearest_graph(places, neighbours).edge_index
    edges = torch.unique(torch.cat([links, links.flip(0)], 1), dim=1)
    return gd.Graph(edges, num_nodes).normalize("sym").to(device)


def windows(
    batch: int, steps: int, nodes: int, device: str, keep: float | None, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Observations, times and one query each; gaps on a grid kept with `keep`, or any numbers."""
    generator = torch.Generator().manual_seed(seed)
    chance = torch.rand(batch, steps + 1, generator=generator, dtype=torch.float64)
    if keep is None:
        gaps = 0.5 - 2 * torch.log1p(-chance)  # half a step at least, two more on average
    elif keep == 1:
        gaps = torch.ones_like(chance)
    else:
        gaps = 1 + torch.floor(torch.log1p(-chance) / torch.log1p(torch.tensor(-keep)))
    times = gaps.cumsum(-1).to(device)
    x = torch.randn(batch, steps, nodes, 3, generator=generator).to(device)
    return x, times[:, :-1], times[:, -1:]


def over_the_union(
    model: gd.GCDEGRU, x: Tensor, times: Tensor, graph: gd.Graph, queries: Tensor
) -> tuple[Tensor, int]:
    """The rival's forecast, and how often it called the field."""
    import torchdiffeq

    field, calls = model.flow.field, 0

    def counted(t: Tensor, h: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return field(t, h, graph)

    h = x.new_zeros(*x[:, 0].shape[:-1], model.parts.channels)
    samples = torch.arange(len(x), device=x.device)
    moments = torch.cat([times, queries], -1)
    for step in range(times.shape[1]):
        h = model.jump(h, x[:, step], graph)
        gaps = moments[:, step + 1] - moments[:, step]
        union, own = torch.unique(torch.cat([gaps.new_zeros(1), gaps]), return_inverse=True)
        states = torchdiffeq.odeint(counted, h, union.to(h.dtype), method="dopri5", **TOLERANCES)
        h = states[own[1:], samples]
    return model.readout(h, graph)[:, None], calls


def training(device: str) -> dict[str, Any]:
    """A training step of GCDE-GRU on 64 windows × 5 steps × 228 sensors, float32."""
    torch.manual_seed(0)
    graph = road_graph(SENSORS, device)
    model = gd.GCDEGRU(**TOLERANCES).to(device)

    def train(forecast: Callable[[], Tensor]) -> Callable[[], None]:
        def run() -> None:
            forecast().square().mean().backward()
            model.zero_grad()

        return run

    found: dict[str, Any] = {}
    for name, keep in (("irregular", None), ("grid_keep_30", 0.3), ("grid_keep_100", 1.0)):
        x, times, queries = windows(WINDOWS, STEPS, SENSORS, device, keep)
        ours = lambda x=x, t=times, q=queries: model(x, t, graph, q)  # noqa: E731
        theirs = lambda x=x, t=times, q=queries: over_the_union(model, x, t, graph, q)  # noqa: E731
        with torch.no_grad(), gd.record_stats() as stats:
            y = ours()
            rival, calls = theirs()
        repeats = 5 if device == "cpu" else 20
        runs = {"ours": train(ours), "rival": train(lambda f=theirs: f()[0])}
        took = side_by_side(runs, device, repeats=repeats, warmup=1)
        found[name] = {
            "milliseconds": took["ours"],
            "rival_milliseconds": took["rival"],
            "rival_over_ours": took["rival"] / took["ours"],
            "field_calls": sum(part.field_calls for part in stats),
            "rival_field_calls": calls,
            "largest_difference": (y - rival).abs().max().item(),
        }
    return found


@torch.no_grad()
def streaming(device: str) -> dict[str, Any]:
    """`observe` and `forecast` for one network of 228 sensors."""
    torch.manual_seed(0)
    graph = road_graph(SENSORS, device)
    found = {}
    for name, model in (("GCDE-GRU", gd.GCDEGRU(**TOLERANCES)), ("GCGRU", gd.GCGRU())):
        model = model.to(device)
        x = torch.randn(2, SENSORS, 3, device=device)
        state = model.observe(None, x[0], 0.0, graph)

        def run(model: gd.HybridSystem = model, state: Any = state, x: Tensor = x) -> Tensor:
            return model.forecast(model.observe(state, x[1], 1.0, graph), 2.0)

        took = side_by_side({"observe_and_forecast": run}, device, repeats=50, warmup=5)
        found[name] = {"milliseconds": took["observe_and_forecast"]}
    return found


def _trained(device: str, batch: int, steps: int, nodes: int, repeats: int) -> dict[str, Any]:
    graph = road_graph(nodes, device)
    model = gd.GCDEGRU(solver="rk4", num_steps=2).to(device)
    x, times, queries = windows(batch, steps, nodes, device, None)

    def run() -> None:
        model(x, times, graph, queries).square().mean().backward()
        model.zero_grad()

    took = side_by_side({"ours": run}, device, repeats=repeats, warmup=1)
    return {"windows": batch, "steps": steps, "nodes": nodes, "milliseconds": took["ours"]}


def nodes(device: str) -> dict[str, Any]:
    """A training step of one window of 5 steps, 10² to 10⁵ nodes, two steps of rk4 a gap."""
    sizes = (100, 1000, 10_000, 100_000)
    rows = [_trained(device, 1, STEPS, size, 3) for size in sizes]
    return {"rows": rows}


def steps(device: str) -> dict[str, Any]:
    """A training step of 16 windows of 228 sensors, 5 to 80 observations each."""
    rows = [_trained(device, 16, count, SENSORS, 3) for count in (5, 10, 20, 40, 80)]
    return {"rows": rows}


def main() -> None:
    """Run the parts asked for and print what they found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", choices=PARTS, action="append", help="parts to run; default all")
    parser.add_argument("--out", type=Path, help="also write the JSON object to this file")
    arguments = parser.parse_args()
    found: dict[str, Any] = {"benchmark": "hybrid", "machine": machine(arguments.device)}
    parts = {"training": training, "streaming": streaming, "nodes": nodes, "steps": steps}
    for name in arguments.only or PARTS:
        print(f"{name} …", file=sys.stderr, flush=True)
        found[name] = parts[name](arguments.device)
        print(json.dumps(found[name], indent=2), file=sys.stderr, flush=True)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
