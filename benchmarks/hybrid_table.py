"""The rows of the hybrid systems' table in benchmarks/README.md."""

from typing import Any

CASES = {
    "irregular": "irregular times",
    "grid_keep_30": "a grid, 30 % kept",
    "grid_keep_100": "a grid, all kept",
}
RIVALS = {
    "shared_field": "torchdiffeq, on our cell and field",
    "pyg": "torchdiffeq and PyG, edge indices",
    "pyg_sparse": "torchdiffeq and PyG, sparse matrices",
}


def hybrid_rows(
    found: dict[str, dict[str, Any]],
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows; what was not taken on any device is left out.

    Args:
        found: The committed results, by what to call their device.
    """
    rows = []
    for case, times in CASES.items():
        for rival, name in RIVALS.items():
            ratios = [
                each.get("training", {}).get(case, {}).get(f"{rival}_over_ours")
                for each in found.values()
            ]
            if any(ratios):
                shown = (f"{ratio:.1f} ×" if ratio else "" for ratio in ratios)
                rows.append((f"training step, {times}: {name}", "≥ 5 ×", *shown))
        eager = [_eager_ratio(each.get("training", {}).get(case, {})) for each in found.values()]
        if any(eager):
            label = f"… {RIVALS['pyg']}, ours eager, not recorded"
            rows.append((label, "", *(f"{ratio:.1f} ×" if ratio else "" for ratio in eager)))
    for model in ("GCDE-GRU", "GCGRU"):
        taken = [
            each.get("streaming", {}).get(model, {}).get("milliseconds") for each in found.values()
        ]
        if any(taken):
            goal = "CPU ≤ 5 ms" if model == "GCDE-GRU" else ""
            shown = (f"{value:.1f} ms" if value else "" for value in taken)
            rows.append((f"streaming, {model}: `observe` and `forecast`", goal, *shown))
    return ("rival's time over ours, or time", "goal", *found), rows


def _eager_ratio(row: dict[str, Any]) -> float | None:
    if "eager_milliseconds" not in row:
        return None
    return row["pyg_milliseconds"] / row["eager_milliseconds"]
