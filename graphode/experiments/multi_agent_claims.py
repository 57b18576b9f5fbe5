"""What must be seen in table 3, checked on its rows: which claim holds, and where one fails."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from graphode.experiments.tables import Row

METRICS = ("MAPE, %", "RMSE")
MEDIAN = "MAPE, median over systems, %"
Means = dict[tuple[str, str, int], float]
Check = Callable[[Means], list[str] | None]  # where a claim fails; None if nothing was measured


def claims(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Each claim whose lines and columns are there, whether it holds, and where it does not."""
    means: Means = {
        (row.model, row.metric, int(row.column.removeprefix("K = "))): _number(row.mean)
        for row in rows
    }
    models = {row.model for row in rows}
    found = []
    for claim, needed, check in _CLAIMS:
        where = check(means) if needed <= models else None
        if where is not None:
            found.append({"claim": claim, "holds": not where, "where": where})
    return found


def _number(mean: float | None) -> float:
    """One that is not finite is smaller than none, and none is smaller than it."""
    return math.nan if mean is None else mean


def _smaller(means: Means, small: str, large: str, metrics: Sequence[str], above: int) -> list[str]:
    """Where `small` is not below `large`: a line for each metric, with the last K in numbers."""
    found = []
    for metric in metrics:
        failed = [
            K
            for model, name, K in means
            if (model, name) == (small, metric)
            and above <= K
            and not means[small, metric, K] < means[large, metric, K]
        ]
        if failed:
            last = failed[-1]
            found.append(
                f"{metric.removesuffix(', %')} of {small} against {large} at "
                f"K = {', '.join(map(str, failed))} ({means[small, metric, last]:.3g} against "
                f"{means[large, metric, last]:.3g} at K = {last})"
            )
    return found


def _order(second: str) -> Check:
    def where(means: Means) -> list[str] | None:
        if not any(K >= 3 for _, _, K in means):
            return None
        better = {
            ("better of both", metric, K): min(
                (value, means["Static", metric, K]), key=lambda mean: (math.isnan(mean), mean)
            )
            for (model, metric, K), value in means.items()
            if model == "Neural ODE"
        }
        found = _smaller(means, second, "GDE", METRICS, 3)
        return found + _smaller({**means, **better}, "GDE", "better of both", METRICS, 3)

    return where


def _beats(model: str, metrics: Sequence[str]) -> Check:
    return lambda means: [
        failure
        for other in ("Persistence", "Harmonic motion")
        for failure in _smaller(means, model, other, metrics, 1)
    ]


def _quarter(means: Means) -> list[str]:
    last = max(K for _, _, K in means)
    ours, theirs = (
        means[model, "RMSE", last] for model in ("Pair force (tuned)", "Harmonic motion")
    )
    return [] if ours <= theirs / 4 else [f"K = {last}: {ours:.3g}, a quarter is {theirs / 4:.3g}"]


def _carries_over(means: Means) -> list[str] | None:
    last = max(K for _, _, K in means)
    both = {
        metric: (value, means["Harmonic motion", metric, K] / 4)
        for (model, metric, K), value in means.items()
        if model == "Pair force (tuned)" and last == K and metric.startswith("RMSE, ")
    }
    failed = [
        f"{metric}: {value:.3g}, a quarter is {quarter:.3g}"
        for metric, (value, quarter) in both.items()
        if not value <= quarter
    ]
    return failed if both else None


def _better_than(*variants: str) -> Check:
    """Static and Neural ODE as they are, than with the changes of side studies."""
    return lambda means: [
        failure
        for model in ("Static", "Neural ODE")
        for variant in variants
        for failure in _smaller(means, model, f"{model}, {variant}", ("MAPE, %",), 1)
    ]


_BASELINES = {"Persistence", "Harmonic motion"}
_FLAT = {"Static", "Neural ODE"}
_CLAIMS: tuple[tuple[str, set[str], Check], ...] = (
    *(
        (
            f"{second} < GDE < the better of Neural ODE and Static, in MAPE and RMSE at every "
            f"K ≥ 3",
            {second, "GDE", *_FLAT},
            _order(second),
        )
        for second in ("GDE-II", "GDE-II, self-loops")  # the latter is trained as GDE is
    ),
    *(
        (
            f"{model} beats persistence and harmonic motion, in {words} at every K",
            {model, *_BASELINES},
            _beats(model, metrics),
        )
        for model in ("GDE", "GDE-II", "GDE-II, self-loops", "GMDE-II", "Pair force (tuned)")
        for words, metrics in (
            ("RMSE", ("RMSE",)),
            ("MAPE, mean and median over systems", ("MAPE, %", MEDIAN)),
            ("median APE", ("median APE, %",)),
        )
    ),
    (
        "the tuned pair force has at the largest K at most a quarter of harmonic motion's RMSE",
        {"Pair force (tuned)", "Harmonic motion"},
        _quarter,
    ),
    (
        "the tuned pair force does so too, without retraining, from other starts and with more "
        "particles, equally dense and denser",
        {"Pair force (tuned)", "Harmonic motion"},
        _carries_over,
    ),
    (
        "the paper's side study: hidden layers of 8n are better than 16n and 32n, in MAPE",
        {f"{model}, {width}" for model in _FLAT for width in ("16n", "32n")} | _FLAT,
        _better_than("16n", "32n"),
    ),
    (
        "the paper's side study: Static and Neural ODE are worse when A is fed to them, in MAPE",
        {f"{model}, A fed" for model in _FLAT} | _FLAT,
        _better_than("A fed"),
    ),
)
