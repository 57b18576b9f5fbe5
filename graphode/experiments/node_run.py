"""A run of node classification from settings to result: data, members, training, folder."""

import dataclasses
import math
import statistics
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional

from graphode.data import NodeData, load_node_data
from graphode.ensembles import Ensemble, members_that_fit
from graphode.experiments.devices import determinism, find_device
from graphode.experiments.node_classification import NodeClassification
from graphode.experiments.node_models import builder
from graphode.experiments.progress import counted, display
from graphode.experiments.provenance import provenance
from graphode.experiments.recording import capture_on
from graphode.experiments.run_costs import mean_costs
from graphode.experiments.run_folder import RunFolder, read_metrics, settings_of
from graphode.experiments.sitting import sit
from graphode.experiments.trainer import Training
from graphode.experiments.training import Outcome, train
from graphode.experiments.trajectories import followed
from graphode.graphs import Graph
from graphode.models import SparseFeatures

ADAM_TENSORS = 3  # a checkpoint holds every parameter and its two moments
ARRAYS_SPACE = 1 << 20  # bytes; see `followed`


@dataclasses.dataclass
class NodeObjective:
    """Cross-entropy of labelled nodes, and accuracies.

    Shapes:
        - **labels:** `[nodes]`
        - **train**, **val**, **test:** indices of nodes
    """

    x: SparseFeatures
    graph: Graph
    labels: Tensor
    train: Tensor
    val: Tensor
    test: Tensor
    measures: tuple[str, ...] = ("validation_loss", "validation_accuracy", "test_accuracy")

    @classmethod
    def of(cls, data: NodeData, device: torch.device) -> "NodeObjective":
        """The tensors of a data set on a device; the graph normalised as the paper has it."""
        labels, train, val, test = (
            part.to(device) for part in (data.labels, data.train, data.val, data.test)
        )
        graph = data.graph.normalize("sym").to(device, torch.get_default_dtype())
        x = SparseFeatures(data.features).to(device, torch.get_default_dtype())
        return cls(x, graph, labels, train, val, test)

    def loss(self, ensemble: nn.Module) -> Tensor:
        """The mean cross-entropy of the training nodes, `[members]`."""
        return self._cross_entropy(ensemble(self.x, self.graph), self.train)

    def measure(self, ensemble: nn.Module) -> dict[str, Tensor]:
        """Validation loss, validation and test accuracy, each `[members]`."""
        logits = ensemble(self.x, self.graph)
        return {
            "validation_loss": self._cross_entropy(logits, self.val),
            "validation_accuracy": self._accuracy(logits, self.val),
            "test_accuracy": self._accuracy(logits, self.test),
        }

    def _cross_entropy(self, logits: Tensor, nodes: Tensor) -> Tensor:
        # Backward of `index_select` adds each row once: the same bits every time, also on a GPU.
        chosen = logits.index_select(1, nodes).movedim(-1, 1)
        labels = self.labels[nodes].expand(len(logits), -1)
        return functional.cross_entropy(chosen, labels, reduction="none").mean(-1)

    def _accuracy(self, logits: Tensor, nodes: Tensor) -> Tensor:
        guessed = logits.index_select(1, nodes).argmax(-1)
        return (guessed == self.labels[nodes]).to(logits.dtype).mean(-1)


def run(config: NodeClassification, console: Console | None = None) -> dict[str, Any]:
    """Train the members, or go on, or read what was finished; prints and returns the result."""
    return sit(config, console, _made, _line)


def _made(config: NodeClassification, folder: RunFolder, console: Console) -> None:
    with determinism(config.deterministic):
        _trained(config, folder, console)


def _trained(config: NodeClassification, folder: RunFolder, console: Console) -> None:
    device = find_device(config.device)
    data = load_node_data(config.dataset, config.data_root)
    objective = NodeObjective.of(data, device)
    build = builder(config, data.num_features, data.num_classes)
    size = sum(p.numel() * p.element_size() for p in build(0).parameters())
    # On a CPU one member after the other is faster: its tensors stay in the cache.
    chunk = config.chunk or (1 if device.type == "cpu" else None)
    at_once = chunk or config.members
    folder.open(
        fresh=config.fresh,
        space=ADAM_TENSORS * size * at_once,
        lines=config.epochs * math.ceil(config.members / at_once),
        arrays=ARRAYS_SPACE,
    )
    if chunk is None:
        chunk = min(config.members, members_that_fit(build, objective.loss, device))
    training = Training(
        epochs=config.epochs,
        lr=config.lr,
        weight_decay=config.decays,
        select_from=config.select_from,
        patience=config.patience,
        log_every=config.log_every,
        checkpoint_seconds=config.checkpoint_seconds,
    )
    title = f"{config.model} on {config.dataset}, {counted(config.members, 'member')}"
    with display(console, title, config.epochs) as shown:
        outcome = train(
            lambda seeds: Ensemble(build, seeds).to(device),
            objective,
            training,
            range(config.seed, config.seed + config.members),
            folder,
            shown,
            chunk=chunk,
            capture=capture_on(device, config.gradient),
        )
    arrays = followed(outcome.ensemble, objective.x, objective.graph, data, config.trajectories)
    if arrays:
        folder.save_arrays(arrays)
    parameters = size // torch.get_default_dtype().itemsize
    folder.finish(_result(config, data, outcome, folder, parameters))


def _result(
    config: NodeClassification,
    data: NodeData,
    outcome: Outcome,
    folder: RunFolder,
    parameters: int,
) -> dict[str, Any]:
    selected = outcome.selected
    kept = [k for k, epoch in enumerate(selected["epoch"]) if epoch >= 0]
    device = torch.device(config.device)
    measures = [name for name in selected if name not in ("seed", "epoch")]
    return {
        "experiment": "node-classification",
        "config": settings_of(config),
        **provenance(device),
        "data": {
            "name": data.name,
            "split": data.split.name,
            "nodes": data.num_nodes,
            "edges": data.num_edges,
            "checksums": dict(data.checksums),
        },
        "members": len(kept),
        # Members whose validation loss was at no epoch a number.
        "failed_seeds": [
            s for s, e in zip(selected["seed"], selected["epoch"], strict=True) if e < 0
        ],
        "diverged": outcome.diverged,
        "parameters": parameters,
        "metrics": {name: _spread([selected[name][k] for k in kept]) for name in measures},
        "selected": selected,
        # Field evaluations per solve, over epochs and members: in training, in its backward pass,
        # and, over the epochs that were evaluated, in evaluation, where nothing is dropped.
        "evaluations": mean_costs(read_metrics(folder.path)),
        "seconds": outcome.seconds,
        "peak_memory_bytes": torch.cuda.max_memory_allocated() if device.type == "cuda" else None,
    }


def _spread(values: list[float]) -> dict[str, float | None]:
    """Mean and standard deviation over members."""
    if not values:
        return {"mean": None, "std": None}
    return {"mean": statistics.fmean(values), "std": statistics.pstdev(values)}


def _line(result: dict[str, Any]) -> str:
    config, metrics = result["config"], result["metrics"]
    name = f"{config['model']} on {config['dataset']} ({result['data']['split']} split)"
    if not result["members"]:
        return f"{name}: no member had a finite validation loss. Lower --lr."
    accuracy = metrics["test_accuracy"]
    words = [
        f"{name}: test accuracy {100 * accuracy['mean']:.2f} ± {100 * accuracy['std']:.2f} % "
        f"over {counted(result['members'], 'member')}",
    ]
    if result["failed_seeds"]:
        words.append(f"{counted(len(result['failed_seeds']), 'member')} failed and left out")
    if evaluations := result["evaluations"]["evaluations"]:
        words.append(f"{evaluations:.4g} evaluations per solve")
    return ", ".join([*words, f"{result['seconds']:.0f} s"])
