"""What the solves of a run cost, from its metrics."""

import statistics
from collections.abc import Sequence
from typing import Any

from graphode.experiments.trainer import COSTS


def mean_costs(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Evaluations per solve, each of `COSTS`, over members and the epochs that have a value.

    Args:
        rows: Lines of the metrics. Epochs that were not evaluated lack what evaluation costs.
    """
    found = {}
    for name in COSTS:
        held = [row for row in rows if name in row]
        weights = [row["members"] for row in held]
        found[name] = statistics.fmean([row[name] for row in held], weights) if held else 0.0
    return found
