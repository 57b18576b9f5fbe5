"""What the settings of node classification are when they are not given: preset × model × data set.

printed   The paper's text: GCN-in → 64, ReLU, dropout 0.6; field 64 → 64 with softplus and dropout
          0.9; GCN-out; Adam; 2000 epochs, lowest validation loss in epochs 1000–2000. The text does
          not say when masks are drawn. Under fixed-step solvers they are drawn at every evaluation,
          as in the authors' code; under dopri5 once per solve, without which its error estimate has
          no meaning.
authors   Their released code: dopri5 too redraws its masks at every evaluation. Their Cora is in
          LINQS order with a split of its own (`--dataset cora_linqs`).
tuned     Ours: diffusion with a gate along its path, with settings found on validation data of the
          public splits by `benchmarks/search_table_1.py`.

GCN has the settings of Kipf and Welling (2017), whatever the preset; GCNII those that Chen et al.
(2020) have for Cora, at a quarter of their depth; diffusion outside `tuned` those that Liu et al.
(2020) have for Cora.
"""

from typing import Any, Literal, get_args

from graphode.experiments.checks import check_choice

Model = Literal[
    "gcn", "gcn_star", "gcde_rk2", "gcde_rk4", "gcde_dpr5", "cgcde_dpr5", "gcnii", "diffusion"
]  # fmt: skip
Preset = Literal["printed", "authors", "tuned"]

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

CHEN: dict[str, Any] = {
    "solver": "euler",
    "num_steps": 16,
    "t1": 16.0,
    "layers": 16,
    "alpha": 0.1,
    "mixing": 0.5,
    "depth_terms": 0,
    "input_dropout": 0.6,
    "field_dropout": 0.6,
    "readout_dropout": 0.6,
    "redraw": "per_eval",
    "lr": 1e-2,
    "weight_decay": 5e-4,
    "field_decay": 1e-2,
    "epochs": 1500,
    "select_from": 0,
    "patience": 100,
}

LIU: dict[str, Any] = {
    "solver": "euler",
    "num_steps": 11,
    "t1": 11.0,
    "layers": 2,
    "alpha": 0.0,
    "input_dropout": 0.8,
    "field_dropout": 0.0,
    "readout_dropout": 0.8,
    "node_dropout": 0.0,
    "lr": 1e-2,
    "weight_decay": 5e-3,
    "epochs": 1000,
    "select_from": 0,
    "patience": 100,
}

# fmt: off
MODELS: dict[Model, dict[str, Any]] = {
    "gcn":        KIPF,
    "gcn_star":   {},
    "gcde_rk2":   {"solver": "midpoint", "redraw": "per_eval"},
    "gcde_rk4":   {"solver": "rk4_38",   "redraw": "per_eval"},
    "gcde_dpr5":  {"solver": "dopri5",   "layers": 1},
    "cgcde_dpr5": {"solver": "dopri5",   "layers": 1},
    "gcnii":      CHEN,
    "diffusion":  LIU,
}
# Settings that only some models have.
_FLOWS = tuple(model for model in MODELS if model not in ("gcn", "gcn_star"))
_OF_FLOWS = (
    "solver", "rtol", "atol", "control", "num_steps", "gradient", "t1", "redraw", "force",
    "field_decay",
)  # fmt: skip
ONLY_OF: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_OF_FLOWS, _FLOWS),
    "alpha": ("gcnii", "diffusion"),
    "mixing": ("gcnii",),
    "depth_terms": ("gcnii",),
    "node_dropout": ("diffusion",),
}
# torchdiffeq's dopri5 estimates two thirds of the error that Dormand's and Prince's does: these
# tolerances make the same test of the authors' 1e-3 and 1e-4. With its control of steps a solve has
# as many evaluations as theirs.
REDRAWN: dict[str, Any] = {
    "redraw": "per_eval",
    "force": True,
    "rtol": 1.5e-3,
    "atol": 1.5e-4,
    "control": "torchdiffeq",
}
AUTHORS: dict[Model, dict[str, Any]] = {
    "gcde_dpr5":  REDRAWN,
    "cgcde_dpr5": REDRAWN,
}
# fmt: on

# The best of results/table-1-search.json; Citeseer's patience that of results/early-stopping.json.
TUNED: dict[str, dict[str, Any]] = {
    "cora": {
        "field_decay": 0.005,
        "node_dropout": 0.3,
        "solver": "midpoint",
    },
    "citeseer": {
        "field_decay": 0.02,
        "input_dropout": 0.2,
        "patience": 400,
        "readout_dropout": 0.5,
        "weight_decay": 0.02,
    },
    "pubmed": {
        "field_decay": 0.005,
        "input_dropout": 0.9,
        "lr": 0.005,
        "num_steps": 21,
        "solver": "midpoint",
        "t1": 21.0,
        "weight_decay": 0.01,
    },
}


def settings(preset: Preset, model: Model, dataset: str) -> dict[str, Any]:
    """All settings of a model on a data set."""
    check_choice("preset", preset, get_args(Preset))
    check_choice("model", model, MODELS)
    of_dataset = PUBMED if dataset == "pubmed" else {}
    of_preset = AUTHORS.get(model, {}) if preset == "authors" else {}
    if preset == "tuned":
        if model != "diffusion":
            raise ValueError(
                f"Preset 'tuned' has settings of diffusion only, but the model is {model!r}. "
                f"Choose --model diffusion, or another preset: printed, authors."
            )
        of_preset = TUNED.get(dataset, TUNED["cora"])
    return {**PAPER, **of_dataset, **MODELS[model], **of_preset}
