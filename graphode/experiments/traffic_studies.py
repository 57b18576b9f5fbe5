"""Two further tests of trained members: times never seen in training, and sensors that come and go.

`unseen_errors`   Training saw every second timestamp. Forecasts for the others are compared with
                  the interpolation between the member's own forecasts for the times it knows.
`churn_errors`    A tenth of the sensors are away every other six hours. The others' error is
                  compared with what it is when nobody leaves.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphode.experiments.traffic_data import UNSEEN_HORIZONS, MemberBatch
from graphode.experiments.traffic_errors import ErrorSums
from graphode.experiments.traffic_evaluation import HeldOutData
from graphode.experiments.traffic_forecasters import Forecaster, MemberForecaster, Persistence
from graphode.graphs import Graph
from graphode.hybrid import NodeMap

AWAY_PER_DAY = 2  # times that the leaving sensors go and come back
CHURN_MASKS = 5  # repetitions of the test that are enough for a ratio


@torch.no_grad()
def unseen_errors(forecaster: Forecaster, data: HeldOutData) -> dict[str, Any]:
    """RMSE at each horizon, in intervals: the members', interpolated, and persistence.

    Interpolated is the mean of the forecasts an interval before and after; before the first
    horizon that is the last observation.
    """
    rivals = {"forecast": forecaster, "persistence": Persistence(data.series, data.device)}
    names = (*rivals, "interpolated")
    members, horizons = len(data.normalizers), len(UNSEEN_HORIZONS)
    shape = (members, horizons, data.series.num_sensors)
    sums = {name: ErrorSums(shape, data.device) for name in names}
    for number in range(data.config.num_masks):
        windows = data.of_mask(number)
        for rows in data.batches(windows):
            answers = {name: rival(windows, rows) for name, rival in rivals.items()}
            answers["interpolated"] = interpolated(answers["forecast"], answers["persistence"])
            truth, mask = data.truth(windows[0], rows)
            for name, answer in answers.items():
                sums[name].add(answer, truth, mask)
    found = {name: sums[name].metrics()["rmse"] for name in names}
    return {
        name: {
            f"{ahead}": {
                "mean": rmse[:, k].mean().item(),
                "std": rmse[:, k].std(correction=0).item(),
            }
            for k, ahead in enumerate(UNSEEN_HORIZONS)
            if name != "interpolated" or ahead % 2
        }
        for name, rmse in found.items()
    }


def interpolated(forecast: Tensor, last: Tensor) -> Tensor:
    """At each odd horizon the mean of its neighbours; as they are at the even ones.

    Shapes:
        - **forecast, last:** `[members, batch, horizons, sensors]`, horizons 1, 2, 3, …
    """
    before = torch.cat([last[:, :, :1], forecast[:, :, :-1]], 2)
    after = torch.cat([forecast[:, :, 1:], forecast[:, :, -1:]], 2)
    odd = torch.arange(forecast.shape[2], device=forecast.device) % 2 == 0
    return torch.where(odd[:, None], (before + after) / 2, forecast)


@torch.no_grad()
def churn_errors(forecaster: MemberForecaster, roads: Graph, data: HeldOutData) -> dict[str, Any]:
    """RMSE of the sensors that stay, with and without the coming and going of the others.

    Args:
        forecaster: Trained members.
        roads: The graph of all sensors, not normalised.
        data: Of the test.
    """
    sensors = data.series.num_sensors
    leaving = round(data.config.churn * sensors)
    if leaving == 0:
        return {}
    generator = torch.Generator().manual_seed(data.config.seed)
    away = torch.randperm(sensors, generator=generator)[:leaving].sort().values
    stay = torch.ones(sensors, dtype=torch.bool)
    stay[away] = False
    here = stay.nonzero()[:, 0]
    scene = Scene(forecaster, roads, here, away, data.device)
    members = len(data.normalizers)
    queries = data.of_mask(0)[0].queries.shape[1]
    sums = {n: ErrorSums((members, queries, len(here)), data.device) for n in ("churn", "all")}
    on_device = here.to(data.device)
    for number in range(min(CHURN_MASKS, data.config.num_masks)):
        windows = data.of_mask(number)
        own = windows[0]
        absent = is_away(own.times, data.series.steps_per_day)
        patterns = absent[own.inputs]  # [windows, steps]
        code = (patterns.long() * 2 ** torch.arange(patterns.shape[1], device=data.device)).sum(1)
        seen = _any_seen(data.observed, own.inputs, patterns, on_device)
        for value in code[seen].unique().tolist():
            chosen = ((code == value) & seen).nonzero()[:, 0]
            pattern = patterns[chosen[0]].tolist()
            size = len(next(data.batches(windows)))
            for rows in chosen.split(size):
                truth, mask = data.truth(own, rows)
                truth = truth[..., on_device]
                mask = None if mask is None else mask[..., on_device]
                batch = forecaster.gather(windows, rows)
                moved = scene.forecast(batch, pattern)
                usual = batch.forecast(forecaster.ensemble, forecaster.graph)[..., on_device]
                for name, z in (("churn", moved), ("all", usual)):
                    speeds = forecaster.restored(z, batch.moments, on_device)
                    sums[name].add(speeds, truth, mask)
    rmse = {name: part.metrics()["rmse"].mean(1) for name, part in sums.items()}
    rise = rmse["churn"] / rmse["all"] - 1
    start, end = roads.edge_index.cpu()
    return {
        "leaving": leaving,
        "edges_cut": int((stay[start] != stay[end]).sum()),
        "rmse": rmse["churn"].tolist(),
        "rmse_without_churn": rmse["all"].tolist(),
        "rise_percent": {
            "mean": 100 * rise.mean().item(),
            "std": 100 * rise.std(correction=0).item(),
        },
    }


def _any_seen(observed: Tensor | None, inputs: Tensor, absent: Tensor, here: Tensor) -> Tensor:
    """The windows in which something was measured at a sensor that was there `[windows]`.

    Shapes:
        - **inputs, absent:** rows, and whether the leaving sensors are away, `[windows, steps]`
    """
    if observed is None:
        return torch.ones(len(inputs), dtype=torch.bool, device=inputs.device)
    measured = observed[inputs]
    return torch.where(absent, measured[..., here].any(-1), measured.any(-1)).any(-1)


def is_away(times: Tensor, steps_per_day: int) -> Tensor:
    """Whether the leaving sensors are away: every other of 2 · `AWAY_PER_DAY` parts of a day."""
    return times * (2 * AWAY_PER_DAY) // steps_per_day % 2 == 1


class Scene:
    """A graph of which some sensors leave and come back, each time as new ones.

    Args:
        forecaster: Trained members.
        roads: The graph of all sensors, not normalised.
        here: The sensors that stay.
        away: Those that leave.
    """

    def __init__(
        self,
        forecaster: MemberForecaster,
        roads: Graph,
        here: Tensor,
        away: Tensor,
        device: torch.device,
    ) -> None:
        self.forecaster, self.here = forecaster, here.to(device)
        like = forecaster.graph.edge_weight
        rest = roads.subgraph(here).normalize("sym").to(like.device, like.dtype)
        self.graphs = {False: forecaster.graph, True: rest}
        index = torch.full((roads.num_nodes,), -1)
        index[here] = torch.arange(len(here))
        self.maps = {
            True: NodeMap(here.to(device), roads.num_nodes, away.to(device)),
            False: NodeMap(index.to(device), len(here)),
        }

    def forecast(self, batch: MemberBatch, absent: list[bool]) -> Tensor:
        """Forecasts for the sensors that stay, of windows in whose steps the others are absent.

        Shapes:
            - **result:** `[members, batch, queries, staying sensors]`, standardised
        """
        changes = [k > 0 and absent[k] != absent[k - 1] for k in range(len(absent))]
        steps, masks = [], []
        for k, gone in enumerate(absent):
            part = batch.x[:, :, k]
            steps.append(part[:, :, self.here] if gone else part)
            if batch.mask is not None:
                mask = batch.mask[:, :, k]
                masks.append(mask[:, :, self.here] if gone else mask)
        y = self.forecaster.ensemble(
            steps,
            batch.times,
            [self.graphs[gone] for gone in absent],
            batch.query_times,
            mask=masks or None,
            node_maps=[self.maps[absent[k]] if changes[k] else None for k in range(len(absent))],
            per_member=True,
        )[..., 0]
        return y if absent[-1] else y[..., self.here]
