"""One page in which the particles move: truth and models side by side, from run folders.

The page is one file without a link to any other: data and script are inside, and it opens offline.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphode.experiments.run_folder import ARRAYS, RESULT, read_json
from graphode.experiments.table_3 import HORIZONS, PAPER

TEMPLATE = Path(__file__).with_name("demo_page.html")
COLORS = {
    "Harmonic motion": "#8a94a6",
    "Static": "#e4572e",
    "Neural ODE": "#b565d8",
    "GDE": "#17a398",
    "GDE-II": "#2f6fed",
}
MODES = {"free": "never", "forecast_50": "every 50 steps"}
FRAMES = 160


def write_page(folders: Mapping[str, Path], path: Path) -> Path:
    """Write the page.

    Args:
        folders: Runs by the name of their model, those of `COLORS`.
        path: Of the page.
    """
    content = json.dumps(page_data(folders), separators=(",", ":")).replace("</", "<\\/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(TEMPLATE.read_text().replace("__DATA__", content))
    return path


def page_data(folders: Mapping[str, Path]) -> dict[str, Any]:
    """What the page shows: frames in thousandths, errors, growth of MAPE with K."""
    models = [_model(name, folders[name]) for name in COLORS if name in folders]
    if not models:
        raise ValueError(
            f"The page shows runs of {', '.join(COLORS)}, but none of these came. Run them first."
        )
    result = read_json(next(iter(folders.values())) / RESULT)
    with np.load(next(iter(folders.values())) / ARRAYS) as arrays:
        true = arrays["true"]
    modes = {mode: text for mode, text in MODES.items() if mode in models[0]["paths"]}
    step, stride = result["config"]["dt"], _stride(true)
    first = (round(result["config"]["duration"] / step) - len(true) + 1) * step
    return {
        "dt": stride * step,
        "times": [round(first + k * step, 5) for k in range(0, len(true), stride)],
        "true": _frames(true),
        "reach": result["config"]["r"] / 2,
        "modes": modes,
        "mode": "free",
        "members": result["members"],
        "horizons": result["horizons"],
        "models": models,
        "note": f"The moving particles are the system of seed {result['system_seeds'][0]}. Models "
        f"rebuild the graph from the positions they predict. Harmonic motion is exact for "
        f"particles that meet nobody, and knows of no meeting.",
    }


def _model(name: str, folder: Path) -> dict[str, Any]:
    result = read_json(folder / RESULT)
    horizons = result["horizons"]
    with np.load(folder / ARRAYS) as arrays:
        true = arrays["true"]
        paths = {mode: arrays[mode] for mode in MODES if mode in arrays}
    errors = {
        mode: np.sqrt(np.square(path - true).mean((1, 2)))[:: _stride(true)]
        for mode, path in paths.items()
    }
    paper = PAPER.get(result["config"]["model"])
    return {
        "name": name,
        "color": COLORS[name],
        "paths": {mode: _frames(path) for mode, path in paths.items()},
        "errors": {mode: [float(f"{e:.3g}") for e in error] for mode, error in errors.items()},
        "growth": [value["mean"] for value in result["metrics"]["mape"]],
        "paper": list(paper) if paper and tuple(horizons) == HORIZONS else None,
    }


def _stride(states: np.ndarray) -> int:
    return max(1, (len(states) - 1) // FRAMES)


def _frames(states: np.ndarray) -> list[Any]:
    positions = np.nan_to_num(states[:: _stride(states), :, :2], nan=1e3, posinf=1e3, neginf=-1e3)
    return np.rint(1000 * positions.clip(-1e3, 1e3)).astype(int).tolist()
