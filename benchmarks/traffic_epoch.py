"""What an epoch of each model of table 2 costs on PEMS08, five members at once.

    python benchmarks/traffic_epoch.py --device cuda --out results/traffic-epoch-cuda.json
    python benchmarks/traffic_epoch.py --device cuda --only gcde_gru-100

Models and settings are those of preset `tuned`; GRAPHODE_DATA names the folder of the data. An
epoch is its updates, recorded and replayed on a GPU, and the evaluation of the validation data.
One is run before the clock starts. The goal is a second for each member of GCDE-GRU.
"""

import functools
import time
from typing import Any

import torch
from measure import script

from graphode.ensembles import Ensemble
from graphode.experiments.recording import capture_on, runner
from graphode.experiments.table_2 import KEEPS, LINES
from graphode.experiments.traffic import BASELINES, TrafficForecast
from graphode.experiments.traffic_data import graph_of, load_series, num_outputs
from graphode.experiments.traffic_models import builder
from graphode.experiments.traffic_objective import TrafficTask
from graphode.experiments.traffic_presets import Model
from graphode.experiments.trainer import Trainer, Training

MEMBERS = 5
MODELS: list[Model] = [
    line.model for line in LINES if line.preset == "tuned" and line.model not in BASELINES
]


def epoch(model: Model, keep: float, name: str) -> dict[str, Any]:
    """Seconds of an epoch on a device of this name."""
    device = torch.device(name)
    config = TrafficForecast.of(model, "pems08", keep=keep, members=MEMBERS, device=name)
    series = load_series(config)
    graph = graph_of(series, config).normalize("sym").to(device, torch.get_default_dtype())
    task = TrafficTask(series, config, graph, device).for_members(config.seeds)
    build = builder(config, series.num_sensors, num_outputs(config))
    training = Training(epochs=2, lr=config.lr, schedule=config.schedule, log_every=1)
    trainer = Trainer(Ensemble(build, config.seeds).to(device), task, training)
    run = runner(trainer, capture_on(device))
    run(1)
    trainer.read(0, 1)  # waits for the device
    began = time.perf_counter()
    run(1)
    trainer.read(1, 1)
    seconds = time.perf_counter() - began
    return {
        "updates": trainer.num_batches,
        "epoch_seconds": seconds,
        "member_epoch_seconds": seconds / MEMBERS,
    }


FACTS = {"members": MEMBERS, "goals": {"member_epoch_seconds": {"cuda": 1}}}
PARTS = {
    f"{model}-{round(100 * keep)}": functools.partial(epoch, model, keep)
    for model in MODELS
    for keep in KEEPS
}

if __name__ == "__main__":
    script(__doc__, "traffic-epoch", FACTS, PARTS, tuple(PARTS))
