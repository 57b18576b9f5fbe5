"""Hybrid systems: a training step against torchdiffeq, streaming, and cost against size.

    python benchmarks/hybrid.py --device cpu --out results/hybrid-cpu.json            all of it
    python benchmarks/hybrid.py --only training --device cuda
    python benchmarks/hybrid.py --figure docs/figures/hybrid-cost.png   from the results there are

The rivals of the training step are described in `hybrid_rivals.py`. All sides have the same weights
and tolerances, run in one process and take turns; times are medians after warm-up. Cost against
nodes and window length is that of a training step with two steps of rk4 a gap, so that the work of
a gap does not depend on the tolerance. On a GPU our training step is recorded and replayed, as the
experiments' is; torchdiffeq's asks the host after every step and cannot be. The last line is one
JSON object.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hybrid_rivals import TOLERANCES, Forecast, PyGModel, shared_field
from measure import script, side_by_side
from torch import Tensor

import graphode as gd
from graphode.experiments.recording import CALLS_TO_RECORD

SENSORS, WINDOWS, STEPS = 228, 64, 5
NODES = (100, 1000, 10_000, 100_000)
WINDOW_LENGTHS = (5, 10, 20, 40, 80)
RESULTS = Path(__file__).parents[1] / "results"


def road_edges(num_nodes: int, neighbours: int = 8, seed: int = 0) -> Tensor:
    """Sensors scattered in the plane, each linked with its nearest, both ways: `[2, edges]`."""
    generator = torch.Generator().manual_seed(seed)
    places = torch.rand(num_nodes, 2, generator=generator)
    links = gd.nearest_graph(places, neighbours).edge_index
    return torch.unique(torch.cat([links, links.flip(0)], 1), dim=1)


def road_graph(num_nodes: int, device: str) -> gd.Graph:
    """The roads, normalised as in a GCN."""
    return gd.Graph(road_edges(num_nodes), num_nodes).normalize("sym").to(device)


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


def training(device: str) -> dict[str, Any]:
    """A training step of GCDE-GRU on 64 windows × 5 steps × 228 sensors, float32."""
    torch.manual_seed(0)
    graph = road_graph(SENSORS, device)
    model = gd.GCDEGRU(**TOLERANCES).to(device)
    edges = road_edges(SENSORS).to(device)
    pyg, pyg_sparse = (PyGModel(model, edges, WINDOWS, SENSORS, sparse) for sparse in (False, True))
    rivals: dict[str, Forecast] = {
        "shared_field": shared_field(model, graph),
        "pyg": pyg,
        "pyg_sparse": pyg_sparse,
    }

    loss = torch.zeros((), device=device)  # of the last step

    def train(forecast: Callable[[], Tensor]) -> Callable[[], None]:
        def run() -> None:
            squares = forecast().square().mean()
            squares.backward()
            loss.copy_(squares.detach())
            for trained in (model, pyg, pyg_sparse):
                trained.zero_grad()

        return run

    found: dict[str, Any] = {}
    for name, keep in (("irregular", None), ("grid_keep_30", 0.3), ("grid_keep_100", 1.0)):
        window = x, times, queries = windows(WINDOWS, STEPS, SENSORS, device, keep)
        ours = lambda x=x, t=times, q=queries: model(x, t, graph, q)  # noqa: E731
        runs: dict[str, Callable[[], object]] = {"ours": train(ours)}
        with torch.no_grad(), gd.record_stats() as stats:
            y = ours()
        row: dict[str, Any] = {
            # Groups of samples are solved apart: calls count as the share of the batch they have.
            "field_calls": sum(s.field_calls * s.evaluations.numel() for s in stats) / WINDOWS,
            "field_calls_of_a_sample": sum(int(s.evaluations.sum()) for s in stats) / WINDOWS,
        }
        for rival, forecast in rivals.items():
            with torch.no_grad():
                theirs, calls = forecast(*window)
            row[f"{rival}_field_calls"] = calls
            row[f"{rival}_largest_difference"] = (y - theirs).abs().max().item()
            runs[rival] = train(lambda f=forecast, w=window: f(*w)[0])
        if device != "cpu":
            runs["eager"] = runs["ours"]
            runs["ours"] = recorded(model, runs["ours"], stats, device)
            runs["eager"]()
            eager = loss.item()
            runs["ours"]()
            row["recorded_loss_over_eager"] = loss.item() / eager
        took = side_by_side(runs, device, repeats=5, warmup=1)
        row["milliseconds"] = took["ours"]
        if device != "cpu":
            row["eager_milliseconds"] = took["eager"]
        for rival in rivals:
            row[f"{rival}_milliseconds"] = took[rival]
            row[f"{rival}_over_ours"] = took[rival] / took["ours"]
        found[name] = row
    return found


def recorded(
    model: gd.GCDEGRU, step: Callable[[], object], stats: list[gd.Stats], device: str
) -> Callable[[], None]:
    """A training step as the experiments run it on a GPU: recorded once, and replayed."""
    assert isinstance(model.flow, gd.Flow)

    def run() -> None:
        step()

    program = gd.capture(run, device)
    model.flow.recorded_attempts = max(int((s.accepted + s.rejected).max()) for s in stats)
    for _ in range(CALLS_TO_RECORD):
        program()
    model.flow.recorded_attempts = None
    return program


@torch.no_grad()
def streaming(device: str) -> dict[str, Any]:
    """`observe` and `forecast` for one network of 228 sensors, on one thread.

    Tensors as small as these gain nothing from threads, and a service has them for its networks.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _streamed(device)
    finally:
        torch.set_num_threads(threads)


def _streamed(device: str) -> dict[str, Any]:
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
    """A training step of one window of 5 steps, 10² to 10⁵ nodes."""
    return {"rows": [_trained(device, 1, STEPS, count, 3) for count in NODES]}


def steps(device: str) -> dict[str, Any]:
    """A training step of 16 windows of 228 sensors, 5 to 80 observations each."""
    return {"rows": [_trained(device, 16, count, SENSORS, 3) for count in WINDOW_LENGTHS]}


def figure(path: Path, found: dict[str, dict[str, Any]]) -> None:
    """Cost against nodes and against the length of a window, by device."""
    import matplotlib.pyplot as plt

    picture, panels = plt.subplots(1, 2, figsize=(9.2, 3.6), layout="constrained")
    labels = {
        "nodes": ("nodes", f"one window of {STEPS} observations"),
        "steps": ("observations in a window", f"16 windows, {SENSORS} sensors"),
    }
    for axes, (part, (label, title)) in zip(panels, labels.items(), strict=True):
        for color, (device, result) in enumerate(found.items()):
            rows = result[part]["rows"]
            sizes = [row[part] for row in rows]
            times = [row["milliseconds"] for row in rows]
            axes.plot(sizes, times, "o-", color=f"C{color}", label=device)
            proportional = [times[-1] * size / sizes[-1] for size in sizes]
            note = "in proportion" if color == 0 else None
            axes.plot(sizes, proportional, "--", color=f"C{color}", linewidth=1, label=note)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(label)
        axes.set_title(title, fontsize=10)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    panels[1].set_xticks(WINDOW_LENGTHS, [str(count) for count in WINDOW_LENGTHS])
    # Less than two powers of ten: their multiples need names as well.
    panels[1].set_yticks([200, 500, 1000, 2000, 5000], ["200", "500", "1000", "2000", "5000"])
    panels[1].minorticks_off()
    panels[0].set_ylabel("milliseconds a training step")
    panels[0].legend(fontsize=8, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=150)


def committed() -> dict[str, dict[str, Any]]:
    """The results there are, by what to call their device."""
    found = {}
    for device in ("cpu", "cuda"):
        file = RESULTS / f"hybrid-{device}.json"
        result = json.loads(file.read_text()) if file.exists() else {}
        if "nodes" in result and "steps" in result:
            machine = result["machine"]
            found[machine.get("gpu") or f"{machine['cores']} cores of {machine['cpu']}"] = result
    return found


FACTS = {
    "goals": {"rival_over_ours": 5, "streaming_milliseconds": {"cpu": 5}},
    "field_tolerances": TOLERANCES,
}
# Streaming first: after a training step of gigabytes the allocator is slower than in a service.
PARTS = {"streaming": streaming, "training": training, "nodes": nodes, "steps": steps}

if __name__ == "__main__":
    if "--figure" in sys.argv:
        figure(Path(sys.argv[sys.argv.index("--figure") + 1]), committed())
    else:
        script(__doc__, "hybrid", FACTS, PARTS, tuple(PARTS))
