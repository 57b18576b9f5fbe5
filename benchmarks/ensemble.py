"""Training of GCDE on Cora: one run and a hundred at once, against torchdiffeq + PyG.

    python benchmarks/ensemble.py --device cuda            everything
    python benchmarks/ensemble.py --device cpu --only rk4 dopri5
    python benchmarks/ensemble.py --device cuda --only kernels
    python benchmarks/ensemble.py --figure docs/figures/ensemble-growth.png

An epoch is what the paper's training does in one: masks, forward, loss, backward, Adam, then an
evaluation of validation and test nodes. The rival is the same model of `GCNConv(cached=True)` and
`torchdiffeq.odeint` on dense features, one run at a time, as its users have it; it draws masks
with `torch.nn.functional.dropout` at every evaluation (`redrawn`) or, under dopri5 also, once per
solve (`fixed`). Ours is the epoch of `graphode run node-classification`. Ratios are per member:
rival's time × members / our time. On a GPU ours is a tenth of ten epochs: within such a block, as
in a run, an epoch is evaluated beside the teaching of the next. The data is Cora as it comes with
the package. The sides take turns; times are medians after warm-up. On a CPU each side's memory is
taken in a process of its own, where nothing that another side has freed is used again. `kernels`
compares a GPU's epochs with a convolution in one kernel, as it is, and in two. The last line is one
JSON object.
"""

import argparse
import functools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from measure import in_fresh_process, machine, peak_memory_mib, side_by_side, write
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GCNConv
from torchdiffeq import odeint

import graphode as gd
from graphode.data import load_node_data
from graphode.experiments.node_run import NodeObjective
from graphode.experiments.recording import Recording
from graphode.experiments.trainer import Trainer, Training
from graphode.fields import fused_convolution

RESULTS = Path(__file__).parents[1] / "results"
PARTS = ("rk4", "dopri5", "growth", "kernels")
HIDDEN, INPUT_DROPOUT, FIELD_DROPOUT = 64, 0.6, 0.9
LR, WEIGHT_DECAY = 1e-3, 5e-4
MEMBERS = 100
BLOCK = 10
# Every epoch can be selected, and so is evaluated.
TRAINING = Training(epochs=2000, lr=LR, weight_decay=WEIGHT_DECAY, select_from=0)


class RivalField(nn.Module):
    """The paper's field, of PyG layers; masks redrawn, or those it was given."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(GCNConv(HIDDEN, HIDDEN, cached=True) for _ in range(layers))
        self.masks: list[Tensor] | None = None
        self.edge_index: Tensor | None = None

    def draw(self, like: Tensor) -> None:
        """Masks that stay for a solve."""
        self.masks = [
            functional.dropout(torch.ones_like(like), FIELD_DROPOUT, self.training)
            for _ in self.layers
        ]

    def forward(self, t: Tensor, h: Tensor) -> Tensor:
        """C² ∘ softplus ∘ C¹, or softplus ∘ C¹ alone."""
        for index, layer in enumerate(self.layers):
            if self.masks is None:
                h = functional.dropout(h, FIELD_DROPOUT, self.training)
            else:
                h = h * self.masks[index]
            h = layer(h, self.edge_index)
            if index == 0:
                h = functional.softplus(h)
        return h


class Rival(nn.Module):
    """GCN-in, `odeint`, GCN-out."""

    def __init__(self, features: int, classes: int, layers: int, method: str, fixed: bool) -> None:
        super().__init__()
        self.encoder = GCNConv(features, HIDDEN, cached=True)
        self.field = RivalField(layers)
        self.readout = GCNConv(HIDDEN, classes, cached=True)
        self.method, self.fixed = method, fixed

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits."""
        h = functional.dropout(x, INPUT_DROPOUT, self.training)
        h = functional.relu(self.encoder(h, edge_index))
        self.field.edge_index = edge_index
        if self.fixed:
            self.field.draw(h)
        times = torch.tensor([0.0, 1.0], device=h.device)
        h = odeint(self.field, h, times, rtol=1e-3, atol=1e-4, method=self.method)[-1]
        return self.readout(h, edge_index)


def rival_epoch(
    objective: NodeObjective, edge_index: Tensor, method: str, fixed: bool
) -> Callable[[], None]:
    """An epoch of one run, as it is written by most."""
    x, labels = objective.x.to_dense(), objective.labels
    layers = 2 if method == "rk4" else 1
    model = Rival(x.shape[1], int(labels.max()) + 1, layers, method, fixed).to(x.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR, weight_decay=WEIGHT_DECAY)

    def epoch() -> None:
        model.train()
        optimizer.zero_grad()
        logits = model(x, edge_index)
        functional.cross_entropy(logits[objective.train], labels[objective.train]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            logits = model(x, edge_index)
            functional.cross_entropy(logits[objective.val], labels[objective.val]).item()
            right = logits.argmax(-1) == labels
            right[objective.val].float().mean().item()
            right[objective.test].float().mean().item()

    return epoch


def our_epochs(
    objective: NodeObjective, model: str, members: int, device: str, **options: Any
) -> Callable[[], None]:
    """An epoch of the library's training for so many members; on a GPU a block of them."""
    features, classes = objective.x.shape[1], int(objective.labels.max()) + 1
    make = {"rk4": gd.GCDE.rk4, "dopri5": gd.GCDE.dpr5}[model]
    ensemble = gd.Ensemble(
        lambda seed: make(features, HIDDEN, classes, **options), range(members)
    ).to(device)
    trainer = Trainer(ensemble, objective, TRAINING)
    if device == "cpu":
        return trainer.step
    recording = Recording(trainer, functools.partial(gd.capture, device=device))
    return lambda: recording(BLOCK)


def sides(model: str, device: str) -> tuple[list[str], dict[str, Callable[[], Callable[[], None]]]]:
    """The names of the rivals, and how to make an epoch of each side, by name."""
    objective, edge_index = cora(device)
    masks = {"redrawn": False} if model == "rk4" else {"fixed": True, "redrawn": False}
    made: dict[str, Callable[[], Callable[[], None]]] = {
        f"torchdiffeq_{name}": functools.partial(rival_epoch, objective, edge_index, model, fixed)
        for name, fixed in masks.items()
    }
    rivals = list(made)
    # As the paper's code does: a fixed-step solver sees new masks at every evaluation.
    options = {"redraw": "per_eval"} if model == "rk4" else {}
    for count in (1, MEMBERS) if device == "cuda" else (1,):
        made[f"graphode_{count}"] = functools.partial(
            our_epochs, objective, model, count, device, **options
        )
    return rivals, made


def one_memory(model: str, name: str) -> dict[str, float]:
    """Peak memory of one side on a CPU; what is loaded once per process is no part of it."""
    make = sides(model, "cpu")[1][name]
    make()()
    return {"mib": with_peak_memory(make, "cpu")[1]}


def compared(model: str, device: str, repeats: int) -> dict[str, Any]:
    """Times and peak memory of the rivals and of ours at each number of members."""
    rivals, made = sides(model, device)
    members = [int(name.split("_")[1]) for name in made if name not in rivals]
    runs, peaks = {}, {}
    for name, make in made.items():
        runs[name], peaks[name] = with_peak_memory(make, device)
        if device == "cpu":
            apart = in_fresh_process(__file__, "--one-memory", f"{model}:{name}")
            peaks[name] = apart["mib"]
    times = per_epoch(side_by_side(runs, device, repeats=repeats, warmup=5), rivals, device)
    return {
        "milliseconds": times,
        "peak_mib": peaks,
        "times_faster_per_member": {
            f"{rival}/graphode_{count}": times[rival] * count / times[f"graphode_{count}"]
            for rival in rivals
            for count in members
        },
    }


def per_epoch(times: dict[str, float], rivals: Iterable[str], device: str) -> dict[str, float]:
    """Milliseconds of an epoch, where a call of ours was a block of them."""
    epochs = BLOCK if device == "cuda" else 1
    return {name: time if name in rivals else time / epochs for name, time in times.items()}


def with_peak_memory(
    make: Callable[[], Callable[[], None]], device: str
) -> tuple[Callable[[], None], float]:
    """An epoch, and the most memory that making and running it took.

    A recorded program owns its memory from the recording on, so that its replays show none.
    """
    kept: list[Callable[[], None]] = []

    def made_and_run() -> None:
        kept.append(make())
        kept[0]()

    peak = peak_memory_mib(made_and_run, device)
    return kept[0], peak


def in_one_and_two(
    objective: NodeObjective, edge_index: Tensor, repeats: int
) -> dict[str, dict[str, float]]:
    """Milliseconds of epochs recorded with a convolution in one kernel and in two."""
    rival = rival_epoch(objective, edge_index, "rk4", False)
    runs: dict[str, Callable[[], object]] = {"torchdiffeq_rk4": rival}
    narrowest = fused_convolution._NARROWEST_IN_ONE
    for name, bound in (("one", narrowest), ("two", fused_convolution._WIDEST_IN_ONE + 1)):
        fused_convolution._NARROWEST_IN_ONE = bound
        for model, count in (("rk4", MEMBERS), ("rk4", 1), ("dopri5", MEMBERS)):
            options = {"redraw": "per_eval"} if model == "rk4" else {}
            run = our_epochs(objective, model, count, "cuda", **options)
            run()  # recorded while the choice stands
            runs[f"{name}_{model}_{count}"] = run
    fused_convolution._NARROWEST_IN_ONE = narrowest
    times = side_by_side(runs, "cuda", repeats, warmup=3)
    return {"milliseconds": per_epoch(times, ["torchdiffeq_rk4"], "cuda")}


def grown(device: str, repeats: int) -> dict[str, Any]:
    """Time of an epoch against members and against nodes."""
    objective, _ = cora(device)
    counts = (1, 2, 5, 10, 20, 50, 100, 200, 400) if device == "cuda" else (1, 2, 5, 10)
    result: dict[str, Any] = {"members": {}, "nodes": {}}
    for count in counts:
        make = functools.partial(our_epochs, objective, "rk4", count, device)
        result["members"][count] = _timed(make, device, repeats)
    sizes = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000)
    for nodes in sizes if device == "cuda" else sizes[:4]:
        make = functools.partial(our_epochs, random_problem(nodes, device), "rk4", 1, device)
        result["nodes"][nodes] = _timed(make, device, repeats)
    return result


def _timed(make: Callable[[], Callable[[], None]], device: str, repeats: int) -> dict[str, float]:
    run, peak = with_peak_memory(make, device)
    times = per_epoch(side_by_side({"ours": run}, device, repeats, warmup=5), (), device)
    return {"milliseconds": times["ours"], "peak_mib": peak}


def random_problem(nodes: int, device: str) -> NodeObjective:
    """A random graph of Cora's density and features."""
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(nodes, (2, 2 * nodes), generator=generator)
    ends = ends[:, ends[0] != ends[1]]
    pairs = torch.cat([ends, ends.flip(0)], 1).unique(dim=1)
    graph = gd.Graph(pairs, num_nodes=nodes).normalize("sym").to(device)
    places = torch.stack(
        [torch.arange(nodes).repeat_interleave(18), torch.randint(1433, (18 * nodes,))]
    )
    sizes = (nodes, 1433)
    x = torch.sparse_coo_tensor(places, torch.full((18 * nodes,), 1 / 18), sizes)
    labels = torch.randint(7, (nodes,), generator=generator).to(device)
    train, val, test = (
        torch.randperm(nodes, generator=generator)
        .to(device)
        .split([nodes // 20, nodes // 5, nodes - nodes // 20 - nodes // 5])
    )
    return NodeObjective(gd.SparseFeatures(x).to(device), graph, labels, train, val, test)


def figure(path: Path) -> None:
    """Draw the growth that the committed GPU result holds."""
    import matplotlib.pyplot as plt

    found = json.loads((RESULTS / "ensemble-cuda.json").read_text())
    growth = found["growth"]
    drawing, panels = plt.subplots(1, 2, figsize=(7.5, 2.9), layout="constrained")
    for axes, name in zip(panels, ("members", "nodes"), strict=True):
        counts = [int(count) for count in growth[name]]
        times = [each["milliseconds"] for each in growth[name].values()]
        axes.loglog(counts, times, "o-", color="#4c72b0", ms=4)
        last = times[-1] / counts[-1]
        axes.loglog(counts, [last * count for count in counts], "--", color="0.6", label="linear")
        axes.set_ylim(min(times) / 2, max(times) * 2)
        axes.set_xlabel(
            "members of an ensemble on Cora" if name == "members" else "nodes of a lone run"
        )
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    drawing.suptitle(f"GCDE-rk4 on one {found['machine']['gpu']}", fontsize=10)
    panels[0].set_ylabel("ms per epoch")
    panels[0].legend(frameon=False)
    drawing.savefig(path, dpi=160)


def cora(device: str) -> tuple[NodeObjective, Tensor]:
    """Cora on a device, and its edges as PyG takes them."""
    data = load_node_data("cora_linqs")
    return NodeObjective.of(data, torch.device(device)), data.graph.edge_index.to(device)


def main() -> None:
    """Measure what was asked for, and print it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only", nargs="*", default=PARTS, choices=PARTS)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--out", type=Path, help="a folder to write the result to")
    parser.add_argument("--one-memory", default="", help=argparse.SUPPRESS)
    parser.add_argument("--figure", type=Path, help="draw the committed growth, measure nothing")
    arguments = parser.parse_args()
    if arguments.figure:
        figure(arguments.figure)
        return
    device = arguments.device
    torch.manual_seed(0)
    if arguments.one_memory:
        print(json.dumps(one_memory(*arguments.one_memory.split(":"))))
        return
    result: dict[str, Any] = {"benchmark": "ensemble", "machine": machine(device)}
    if "rk4" in arguments.only:
        result["rk4"] = compared("rk4", device, arguments.repeats)
    if "dopri5" in arguments.only:
        result["dopri5"] = compared("dopri5", device, max(5, arguments.repeats // 3))
    if "growth" in arguments.only:
        result["growth"] = grown(device, max(5, arguments.repeats // 3))
    if "kernels" in arguments.only and device == "cuda":
        result["kernels"] = in_one_and_two(*cora(device), arguments.repeats)
    for part in ("rk4", "dopri5", "kernels"):
        if part in result:
            print(part, json.dumps(result[part], indent=2))
    if arguments.out:
        write(result, arguments.out / f"ensemble-{device}.json")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
