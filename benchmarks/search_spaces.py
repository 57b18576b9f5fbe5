"""What `search_table_1.py` searches: for each family its published settings and its choices.

A choice is a list of settings of which one is taken; settings that only make sense together are
one choice.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from graphode.experiments.presets import CHEN, LIU, Model

Settings = dict[str, Any]
Choices = dict[str, list[Settings]]


@dataclasses.dataclass(frozen=True)
class Family:
    """Models that one search covers.

    Args:
        model: Their name in the experiment.
        searched: The settings that the search decides.
        known: The settings to begin with on each data set: those of its authors, then by hand.
        choices: What is chosen, from widths.
        finished: The settings of a trial from those that were chosen.
    """

    model: Model
    searched: tuple[str, ...]
    known: dict[str, list[Settings]]
    choices: Callable[[list[int]], Choices]
    finished: Callable[[Settings], Settings] = dict

    def first(self, dataset: str) -> list[Settings]:
        """The settings to begin with; where none are known for a data set, Cora's."""
        found = self.known.get(dataset, self.known["cora"])
        return [{name: settings[name] for name in self.searched} for settings in found]


def _each(name: str, *values: Any) -> list[Settings]:
    return [{name: value} for value in values]


# Diffusion with a gate along its path.

DEPTHS = (5, 7, 9, 11, 14, 17, 21)


def _diffusion(widths: list[int]) -> Choices:
    # Euler's method of length 1 sums powers of the matrix; shorter steps and the midpoint rule, of
    # two evaluations a step, are closer to the integral.
    flows = [
        {"solver": solver, "num_steps": depth * per_unit, "t1": float(depth)}
        for depth in DEPTHS
        for solver, per_unit in (("euler", 1), ("euler", 2), ("midpoint", 1))
    ]
    return {
        "layers": [{"layers": 1, "hidden": widths[0]}]
        + [{"layers": 2, "hidden": width} for width in widths],
        "flow": flows,
        "alpha": _each("alpha", 0.0, 0.05, 0.1),
        "input_dropout": _each("input_dropout", *(tenth / 10 for tenth in range(10))),
        "dropout": _each("readout_dropout", *(tenth / 10 for tenth in range(2, 9))),
        "node_dropout": _each("node_dropout", 0.0, 0.1, 0.2, 0.3, 0.5),
        "lr": _each("lr", 0.005, 0.01, 0.02),
        "weight_decay": _each("weight_decay", 1e-3, 2e-3, 5e-3, 1e-2, 1.5e-2, 2e-2, 3e-2, 4e-2),
        "gate_decay": _each("field_decay", 0.0, 5e-4, 5e-3, 2e-2),
    }


LIU_CORA = {"hidden": 64, **LIU, "field_decay": 5e-3}
LIU_CITESEER = {**LIU_CORA, "weight_decay": 2e-2, "field_decay": 2e-2}
LIU_PUBMED = {**LIU_CORA, "num_steps": 21, "t1": 21.0}

DIFFUSION = Family(
    model="diffusion",
    searched=(
        "hidden", "layers", "solver", "num_steps", "t1", "alpha", "input_dropout",
        "readout_dropout", "node_dropout", "lr", "weight_decay", "field_decay",
    ),
    known={
        "cora": [LIU_CORA, {**LIU_CORA, "node_dropout": 0.3}],
        "citeseer": [LIU_CITESEER, {**LIU_CITESEER, "input_dropout": 0.2, "readout_dropout": 0.5}],
        "pubmed": [LIU_PUBMED, {**LIU_PUBMED, "input_dropout": 0.5, "readout_dropout": 0.5}],
    },
    choices=_diffusion,
)  # fmt: skip


# The flow of GCNII.

EVALUATIONS = (8, 16)
STAGES = {"euler": 1, "midpoint": 2, "rk4": 4}
MANY = 2  # stands for one weight for each unit of depth


def _gcnii(widths: list[int]) -> Choices:
    steps = [(s, max(1, e // stages)) for s, stages in STAGES.items() for e in EVALUATIONS]
    return {
        "width": _each("hidden", *widths),
        # Explicit methods are stable up to steps of 1 (Euler's 1.05, rk4's 1.4).
        "flow": [
            {"solver": solver, "num_steps": count, "t1": count * length}
            for solver, count in steps
            for length in (0.5, 1.0)
        ],
        "alpha": _each("alpha", 0.05, 0.1, 0.15, 0.2, 0.3),
        "mixing": _each("mixing", 0.25, 0.5, 1.0),
        "variation": _each("depth_terms", 0, 2),
        # One mask for the whole solve, multiplied at every step, drives members apart (tried).
        "redraw": _each("redraw", "per_eval", "per_step"),
        "input_dropout": _each("input_dropout", 0.4, 0.5, 0.6, 0.7, 0.8),
        "dropout": [
            {"field_dropout": rate, "readout_dropout": rate} for rate in (0.4, 0.5, 0.6, 0.7, 0.8)
        ],
        "lr": _each("lr", 0.01, 0.02, 0.03),
        "weight_decay": _each("weight_decay", 2e-4, 5e-4, 1e-3, 2e-3, 5e-3),
        # One weight for all depths, or one for each unit of depth, which feels less of the loss.
        "weights": [
            *({"layers": 1, "field_decay": decay} for decay in (0.03, 0.1, 0.3, 1.0)),
            *({"layers": MANY, "field_decay": decay} for decay in (0.003, 0.01, 0.03, 0.1)),
        ],
    }


def _weights_of_gcnii(settings: Settings) -> Settings:
    many = settings["layers"] > 1
    return {**settings, "layers": max(1, round(settings["t1"])) if many else 1}


def _dropping(rate: float) -> Settings:
    return dict.fromkeys(("input_dropout", "field_dropout", "readout_dropout"), rate)


CHEN_CORA = {"hidden": 64, **CHEN}

GCNII = Family(
    model="gcnii",
    searched=(
        "hidden", "solver", "num_steps", "t1", "layers", "depth_terms", "alpha", "mixing", "redraw",
        "input_dropout", "field_dropout", "readout_dropout", "lr", "weight_decay", "field_decay",
    ),
    known={
        "cora": [CHEN_CORA],
        "citeseer": [{**CHEN_CORA, **_dropping(0.7), "mixing": 0.6}],
        "pubmed": [{**CHEN_CORA, **_dropping(0.5), "mixing": 0.4, "field_decay": 5e-4}],
    },
    choices=_gcnii,
    finished=_weights_of_gcnii,
)  # fmt: skip

FAMILIES = {family.model: family for family in (DIFFUSION, GCNII)}
