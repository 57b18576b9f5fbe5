"""How `propagate` grows with the graph: time per edge, beside that of gathering alone.

    python benchmarks/growth.py --device cpu --out results/growth-cpu.json
    python benchmarks/growth.py --figure docs/figures/growth.png       from the results there are

Random directed graphs of 20 edges a node, made on the device, under 64 channels in float32: one
product forward, and forward + backward, which is one product with the matrix and one with its
transpose. The floor is what no product can avoid: reading, at every edge, the row of its source.
It is measured on the same indices, as the faster of an embedding bag without weights, which also
sums, and of rows copied to a buffer that stays in the cache, which does not. Small graphs fit into
caches, so both fall there. The last line is one JSON object.

On a CPU each call is timed by itself. On a GPU it is the device's time: after warm-up, several
calls are queued between two CUDA events, enough of them that the device, not the host that
launches, sets the pace, and divided by their number. The ways take turns; times are medians.
"""

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measure import script, side_by_side
from torch import Tensor
from torch.nn import functional

from graphode.graphs import Graph

CHANNELS, DEGREE = 64, 20
# Powers of ten, and halves between.
EDGES = {
    "cpu": [100_000, 316_000, 1_000_000, 3_160_000, 10_000_000],
    "cuda": [1_000_000, 3_160_000, 10_000_000, 31_600_000, 100_000_000],
}
# Rows of the buffer: 1 MiB, within a core's own cache.
BUFFER_ROWS = 4096
# Cycles that a GPU idles before calls are timed: about 10 ms, in which the host queues them.
HEAD_START = 20_000_000
RESULTS = Path(__file__).parents[1] / "results"


def random_graph(edges: int, device: str) -> Graph:
    """A directed graph of so many edges, no pair twice, made where it is used."""
    nodes = edges // DEGREE
    generator = torch.Generator(device).manual_seed(0)
    codes = torch.empty(0, dtype=torch.int64, device=device)
    while len(codes) < edges:
        more = torch.randint(nodes * nodes, (edges,), generator=generator, device=device)
        codes = torch.cat([codes, more[: edges + edges // 50 - len(codes)]]).unique()
    # Surplus is dropped evenly: the codes are sorted.
    keep = torch.linspace(0, len(codes) - 1, edges, device=device, dtype=torch.float64).long()
    codes = codes[keep]
    edge_index = torch.stack([codes % nodes, codes // nodes])
    weight = torch.rand(len(codes), generator=generator, device=device)
    return Graph(edge_index, nodes, weight)


def gathers(col: Tensor, crow: Tensor, h: Tensor) -> dict[str, Callable[[], object]]:
    """The rows of `h` that a product reads, read by two ways."""
    buffer = torch.empty(BUFFER_ROWS, h.shape[1], dtype=h.dtype, device=h.device)
    parts = col.split(BUFFER_ROWS)

    def copied() -> None:
        for part in parts:
            torch.index_select(h, 0, part, out=buffer[: len(part)])

    def summed() -> Tensor:
        return functional.embedding_bag(col, h, crow, mode="sum", include_last_offset=True)

    # On a GPU so small copies are launches, not bytes.
    return {"sum": summed} if h.device.type == "cuda" else {"sum": summed, "copy": copied}


def device_times(runs: dict[str, Callable[[], object]], edges: int) -> dict[str, float]:
    """Median milliseconds of the device for each run, its calls queued between two events.

    While the first event waits behind earlier work, the host gets ahead of the device.
    """
    calls = max(2, min(40, 100_000_000 // edges))
    milliseconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(3 + 20):
        for name, run in runs.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            torch.cuda._sleep(HEAD_START)
            start.record()
            for _ in range(calls):
                run()
            end.record()
            torch.cuda.synchronize()
            if turn >= 3:  # those before warm up
                milliseconds[name].append(start.elapsed_time(end) / calls)
    return {name: statistics.median(values) for name, values in milliseconds.items()}


def one_size(edges: int, device: str) -> dict[str, float]:
    """Times of one graph, in milliseconds, and per edge in nanoseconds."""
    graph = random_graph(edges, device)
    shape = (graph.num_nodes, CHANNELS)
    h = torch.randn(shape, device=device, requires_grad=True)
    cotangent = torch.randn(shape, device=device)

    def forward() -> Tensor:
        with torch.no_grad():
            return graph.propagate(h)

    def both() -> object:
        return torch.autograd.grad(graph.propagate(h), h, cotangent)

    places, still = graph._pattern.places, h.detach()
    runs: dict[str, Callable[[], object]] = {"forward": forward, "both": both}
    for name, run in gathers(places.col, places.crow, still).items():
        runs[f"gather there {name}"] = run
    for name, run in gathers(places.col_t, places.crow_t, still).items():
        runs[f"gather back {name}"] = run
    if device.startswith("cuda"):
        milliseconds = device_times(runs, edges)
    else:
        repeats = max(3, min(30, 30_000_000 // edges))
        milliseconds = side_by_side(runs, device, repeats, warmup=2)
    there, back = (
        min(value for name, value in milliseconds.items() if name.startswith(start))
        for start in ("gather there ", "gather back ")
    )
    floors = {"forward": there, "both": there + back}
    found: dict[str, float] = {"edges": graph.num_edges, "nodes": graph.num_nodes}
    for what in ("forward", "both"):
        found[f"{what}_ms"] = milliseconds[what]
        found[f"{what}_ns_per_edge"] = 1e6 * milliseconds[what] / graph.num_edges
        found[f"{what}_floor_ns_per_edge"] = 1e6 * floors[what] / graph.num_edges
        found[f"{what}_over_floor"] = milliseconds[what] / floors[what]
    return found


def sizes(device: str) -> dict[str, Any]:
    """Every size, and how far times per edge lie apart."""
    rows = []
    for edges in EDGES["cuda" if device.startswith("cuda") else "cpu"]:
        rows.append(one_size(edges, device))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    found: dict[str, Any] = {"rows": rows}
    for what in ("forward", "both"):
        times = [row[f"{what}_ns_per_edge"] for row in rows]
        found[f"{what}_spread"] = max(times) / min(times)
        found[f"{what}_largest_over_floor"] = max(row[f"{what}_over_floor"] for row in rows)
    return found


def figure(path: Path) -> None:
    """Time per edge against edges, from the results there are."""
    import matplotlib.pyplot as plt

    found = {
        device: json.loads(file.read_text())
        for device in ("cpu", "cuda")
        if (file := RESULTS / f"growth-{device}.json").exists()
    }
    picture, panels = plt.subplots(
        1, len(found), figsize=(4.6 * len(found), 3.6), layout="constrained", squeeze=False
    )
    for axes, result in zip(panels[0], found.values(), strict=True):
        rows = result["sizes"]["rows"]
        edges = [row["edges"] for row in rows]
        for what, label, color in (
            ("both", "forward and backward", "C0"),
            ("forward", "forward", "C1"),
        ):
            times = [row[f"{what}_ns_per_edge"] for row in rows]
            floors = [row[f"{what}_floor_ns_per_edge"] for row in rows]
            axes.plot(edges, times, "o-", color=color, label=label)
            axes.plot(edges, floors, "--", color=color, linewidth=1, label="… gathering alone")
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("edges")
        machine = result["machine"]
        name = machine.get("gpu") or f"{machine['cores']} cores of {machine['cpu']}"
        axes.set_title(name, fontsize=10)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    panels[0][0].set_ylabel("nanoseconds an edge, 64 channels")
    panels[0][0].legend(fontsize=8, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=150)


FACTS = {
    "channels": CHANNELS,
    "edges_per_node": DEGREE,
    "goals": {"both_spread": {"cuda": 1.5}, "both_largest_over_floor": {"cpu": 2}},
}
PARTS = {"sizes": sizes}
DEFAULT = ("sizes",)

if __name__ == "__main__":
    if "--figure" in sys.argv:
        figure(Path(sys.argv[sys.argv.index("--figure") + 1]))
    else:
        script(__doc__, "growth", FACTS, PARTS, DEFAULT)
