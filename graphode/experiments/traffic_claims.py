"""What must be seen in table 2, checked on its results: which claim holds, and the numbers.

A verdict is that a claim holds, holds partly, fails, or is not judged where nothing could have
spoken against it. A result is that of a run folder; errors by gap are read from its arrays.
"""

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from graphode.experiments.run_folder import ARRAYS

Results = Mapping[tuple[str, str], dict[str, Any]]  # by line and column
Verdict = Literal["holds", "partly", "fails", "not judged"]
Finding = tuple[Verdict, list[str]]
RIVALS = ("GCGRU", "GRU", "Persistence", "Historical average")
# Errors in a group, at least, for its mean to be looked at; and as a share of all.
FEWEST, SMALLEST_SHARE = 300, 0.002
# Correlation of ranks from which on a margin is said to grow; one that falls and grows has less.
GROWS = 0.8


def claims(results: Results, minutes: float) -> list[dict[str, Any]]:
    """Each claim that can be checked, its verdict, whether it holds, and the numbers.

    Args:
        minutes: Length of an interval.
    """
    found = []
    words = {"one": f"{minutes:g}", "two": f"{2 * minutes:g}", "s": "s" * (minutes != 1)}
    for claim, check in _CLAIMS:
        finding = check(results)
        if finding is not None:
            verdict, where = finding
            facts = {"verdict": verdict, "holds": verdict == "holds", "where": where}
            found.append({"claim": claim.format(**words), **facts})
    return found


def rmse_by(folder: Path, what: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """RMSE in groups, "gap" or "day": mean and deviation over members, and how many errors.

    Returns:
        Three arrays `[groups]`; NaN where nothing was measured.
    """
    with np.load(folder / ARRAYS, allow_pickle=False) as arrays:
        squares, counts = arrays[f"{what}_squares"], arrays[f"{what}_counts"]
    rmse = np.sqrt(np.divide(squares, counts, out=np.full_like(squares, np.nan), where=counts > 0))
    return rmse.mean(0), rmse.std(0), counts.mean(0)


def enough(count: np.ndarray) -> np.ndarray:
    """The groups whose means can be looked at."""
    return np.flatnonzero(count >= max(FEWEST, SMALLEST_SHARE * count.sum()))


def _columns(results: Results, *lines: str) -> list[str]:
    """Those that all of these lines have, from the sparsest on."""
    columns = [column for line, column in results if line == lines[0] and column.endswith("%")]
    shared = [c for c in columns if all((line, c) in results for line in lines)]
    return sorted(shared, key=lambda column: float(column.removesuffix(" %")))


def _beats(results: Results) -> Finding | None:
    pairs = [(rival, column) for rival in RIVALS for column in _columns(results, "GCDE-GRU", rival)]
    if not pairs:
        return None
    better = [
        _rmse(results, "GCDE-GRU", column) < _rmse(results, rival, column)
        for rival, column in pairs
    ]
    where = [
        f"{rival} at {column}: {_rmse(results, rival, column):.3f} against "
        f"{_rmse(results, 'GCDE-GRU', column):.3f}"
        for rival, column in pairs
    ]
    return _told(all(better)), where


def _clearly(results: Results) -> Finding | None:
    where, all_clear = [], True
    for rival in RIVALS:
        for column in _columns(results, "GCDE-GRU", rival):
            if float(column.removesuffix(" %")) > 50:
                continue
            margin = _rmse(results, rival, column) - _rmse(results, "GCDE-GRU", column)
            spread = max(
                results[line, column]["metrics"]["rmse"]["std"] or 0.0
                for line in (rival, "GCDE-GRU")
            )
            all_clear &= margin > spread
            paired = _paired_deviation(results, rival, column)
            where.append(
                f"{rival} at {column}: by {margin:.3f}, deviation {spread:.3f}, "
                f"of the difference mask by mask {paired:.3f}"
            )
    return (_told(all_clear), where) if where else None


def _paired_deviation(results: Results, rival: str, column: str) -> float:
    """Over the masks, which all models are tested on: of the margin of the members' means."""
    ours, theirs = (_by_mask(results[line, column]) for line in ("GCDE-GRU", rival))
    return float((theirs - ours).std())


def _by_mask(result: dict[str, Any]) -> np.ndarray:
    """RMSE on each mask, over the members that did not fail."""
    config, failed = result["config"], result["failed_seeds"]
    kept = [k for k in range(config["members"]) if config["seed"] + k not in failed]
    return np.array(result["test"]["rmse"], dtype=float)[kept].mean(0)


def _sparser(results: Results) -> Finding | None:
    columns = _columns(results, "GCDE-GRU", "GCGRU")
    if len(columns) < 2:
        return None
    margins = [_margin(results, column) for column in columns]
    where = [f"{100 * m:.1f} % at {column}" for m, column in zip(margins, columns, strict=True)]
    grows = all(a > b for a, b in itertools.pairwise(margins))
    return _told(margins[0] > 0 and grows), where


def _longer(results: Results) -> Finding | None:
    """The margin over GCGRU at each gap, by the sparsest data; does it grow with the gap?"""
    columns = _columns(results, "GCDE-GRU", "GCGRU")
    if not columns:
        return None
    ours, theirs = (
        rmse_by(Path(results[line, columns[0]]["config"]["out"]), "gap")
        for line in ("GCDE-GRU", "GCGRU")
    )
    gaps = enough(ours[2])
    if len(gaps) < 3:
        return None
    return growth(gaps, 1 - ours[0][gaps] / theirs[0][gaps])


def growth(gaps: np.ndarray, margins: np.ndarray) -> Finding:
    """Whether margins grow with the gap; partly, if they do from their lowest on, for most gaps."""
    where = [f"{100 * m:.1f} % at {gap}" for gap, m in zip(gaps, margins, strict=True)]
    rise, lowest = _rank_correlation(margins), int(margins.argmin())
    found = f"rank correlation {rise:.2f}"
    if rise > GROWS:
        return "holds", [found, *where]
    rest = margins[lowest:]
    later = _rank_correlation(rest) if len(rest) > max(2, len(margins) / 2) else 0.0
    if later <= GROWS:
        return "fails", [found, *where]
    turn = f"it falls to {gaps[lowest]} and grows from there, rank correlation {later:.2f}"
    return "partly", [turn, f"of all gaps {rise:.2f}", *where]


def _rank_correlation(values: np.ndarray) -> float:
    """1 where each is larger than the one before; ranks, since the last gaps have few errors."""
    return float(np.corrcoef(np.arange(len(values)), values.argsort().argsort())[0, 1])


def _unseen(results: Results) -> Finding | None:
    result = results.get(("GCDE-GRU", "unseen times"))
    if result is None:
        return None
    found = result["unseen_times"]
    ours, between, last = (
        found[name]["1"]["mean"] for name in ("forecast", "interpolated", "persistence")
    )
    where = [
        f"RMSE {ours:.4f} (deviation over members {found['forecast']['1']['std']:.4f}), "
        f"interpolated {between:.4f}, persistence {last:.4f}"
    ]
    return _told(ours <= between and ours < last), where


def _churn(results: Results) -> Finding | None:
    tests = {
        column: found
        for column in _columns(results, "GCDE-GRU")
        if (found := results["GCDE-GRU", column].get("churn"))
    }
    if not tests:
        return None
    if not any(found.get("edges_cut", 1) for found in tests.values()):
        return "not judged", ["no sensor that leaves has an edge to one that stays"]
    rises = {column: found["rise_percent"]["mean"] for column, found in tests.items()}
    where = [f"{rise:+.2f} % at {column}" for column, rise in rises.items()]
    return _told(max(rises.values()) <= 5), where


def _told(holds: bool) -> Verdict:
    return "holds" if holds else "fails"


def _rmse(results: Results, line: str, column: str) -> float:
    mean = results[line, column]["metrics"]["rmse"]["mean"]
    return float("nan") if mean is None else mean


def _margin(results: Results, column: str) -> float:
    return 1 - _rmse(results, "GCDE-GRU", column) / _rmse(results, "GCGRU", column)


_CLAIMS: tuple[tuple[str, Callable[[Results], Finding | None]], ...] = (
    (
        "Tuned, GCDE-GRU has a lower RMSE than GCGRU, GRU and both baselines wherever all ran",
        _beats,
    ),
    ("Of 30 and 50 %, where they ran, it does so by more than one standard deviation", _clearly),
    ("Its margin over GCGRU grows as data gets sparser", _sparser),
    ("Its margin over GCGRU grows with the gap to the forecast ({one}-minute intervals)", _longer),
    (
        "{one} minute{s} ahead, trained at multiples of {two}, it is no worse than interpolation "
        "between its own forecasts and better than persistence",
        _unseen,
    ),
    ("When a tenth of the sensors come and go, the others' RMSE rises by 5 % at most", _churn),
)
