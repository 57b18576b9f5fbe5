"""What the settings of node classification are when they are not given: preset × model × data set.

printed   The paper's text: GCN-in → 64, ReLU, dropout 0.6; field 64 → 64 with softplus and dropout
          0.9; GCN-out; Adam; 2000 epochs, lowest validation loss in epochs 1000–2000. The text does
          not say when masks are drawn. Under fixed-step solvers they are drawn at every evaluation,
          as in the authors' code; under dopri5 once per solve, without which its error estimate has
          no meaning.
authors   Their released code: dopri5 too redraws its masks at every evaluation. Their Cora is in
          LINQS order with a split of its own (`--dataset cora_linqs`).
tuned     Ours: one family, settings chosen by validation data.

GCN has the settings of Kipf and Welling (2017), whatever the preset.
"""

from typing import Any, Literal, get_args

Model = Literal["gcn", "gcn_star", "gcde_rk2", "gcde_rk4", "gcde_dpr5", "cgcde_dpr5"]
Preset = Literal["printed", "authors"]

PAPER: dict[str, Any] = {
    "hidden": 64,
    "layers": 2,
    "input_dropout": 0.6,
    "field_dropout": 0.9,
    "readout_dropout": 0.0,
    "lr": 1e-3,
    "weight_decay": 5e-4,
    "decay": "all",
    "epochs": 2000,
    "select_from": 1000,
    "solver": "rk4_38",
    "rtol": 1e-3,
    "atol": 1e-4,
    "redraw": "per_solve",
    "force": False,
    "t1": 1.0,
}

# "due to its training set size"
PUBMED: dict[str, Any] = {"lr": 1e-2, "weight_decay": 1e-3}

KIPF: dict[str, Any] = {
    "hidden": 16,
    "input_dropout": 0.5,
    "field_dropout": 0.5,
    "readout_dropout": 0.5,
    "lr": 1e-2,
    "weight_decay": 5e-4,
    "decay": "first_layer",
    "epochs": 200,
    "select_from": 0,
}

# fmt: off
MODELS: dict[Model, dict[str, Any]] = {
    "gcn":        KIPF,
    "gcn_star":   {},
    "gcde_rk2":   {"solver": "midpoint", "redraw": "per_eval"},
    "gcde_rk4":   {"solver": "rk4_38",   "redraw": "per_eval"},
    "gcde_dpr5":  {"solver": "dopri5",   "layers": 1},
    "cgcde_dpr5": {"solver": "dopri5",   "layers": 1},
}
AUTHORS: dict[Model, dict[str, Any]] = {
    "gcde_dpr5":  {"redraw": "per_eval", "force": True},
    "cgcde_dpr5": {"redraw": "per_eval", "force": True},
}
# fmt: on


def settings(preset: Preset, model: Model, dataset: str) -> dict[str, Any]:
    """All settings of a model on a data set."""
    if preset not in get_args(Preset):
        raise ValueError(
            f"Unknown preset {preset!r}. Choose one of: {', '.join(get_args(Preset))}."
        )
    if model not in MODELS:
        raise ValueError(f"Unknown model {model!r}. Choose one of: {', '.join(MODELS)}.")
    of_dataset = PUBMED if dataset == "pubmed" else {}
    of_preset = AUTHORS.get(model, {}) if preset == "authors" else {}
    return {**PAPER, **of_dataset, **MODELS[model], **of_preset}
