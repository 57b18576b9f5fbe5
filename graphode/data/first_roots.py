"""The first zero of each of many functions known by values and slopes on a grid, as cubics."""

import numpy as np

_ITERATIONS = 60  # enough for bisection alone; Newton's method needs about 6


def first_crossings(
    values: np.ndarray, slopes: np.ndarray, who: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Where, on [0, 1], the first function of each sample falls below zero, and which it is.

    All functions start at zero or above: a start below zero is rounding, and read as zero.

    Args:
        values: Functions on a grid of equal parts `[parts + 1, samples, functions]`.
        slopes: Their derivatives, times the length of a part.
        who: Which samples are asked for.

    Returns:
        The place `[samples]`, 1 where there is none, and the function, −1 where there is none.
    """
    parts, samples = len(values) - 1, values.shape[1]
    values[0] = np.maximum(values[0], 0)
    where, which = np.ones(samples), np.full(samples, -1)
    below = (values[1:] < 0) & who[:, None]
    end = np.where(below, 1.0, 0.0)
    # Above zero at both ends of a part, but falling and then rising: perhaps below in between.
    dips = np.nonzero(~below & (slopes[:-1] < 0) & (slopes[1:] > 0) & who[:, None])
    end[dips] = _lowest(_cubic(values, slopes, dips))
    found = end > 0
    if not found.any():
        return where, which
    first = found.any(2).argmax(0)
    sample, function = np.nonzero(found[first, np.arange(samples)])
    place = (first[sample], sample, function)
    root = (first[sample] + _root(_cubic(values, slopes, place), end[place])) / parts
    for k in np.argsort(-root, kind="stable"):
        where[sample[k]], which[sample[k]] = root[k], function[k]
    return where, which


def _cubic(values: np.ndarray, slopes: np.ndarray, place: tuple[np.ndarray, ...]) -> np.ndarray:
    """Coefficients [4, count] of the cubics with these values and slopes at 0 and 1."""
    part, *rest = place
    after = (part + 1, *rest)
    start, slope = values[place], slopes[place]
    rise = values[after] - start
    return np.stack(
        [start, slope, 3 * rise - 2 * slope - slopes[after], slope + slopes[after] - 2 * rise]
    )


def _at(c: np.ndarray, s: np.ndarray) -> np.ndarray:
    return c[0] + s * (c[1] + s * (c[2] + s * c[3]))


def _lowest(c: np.ndarray) -> np.ndarray:
    """Where cubics that fall at 0 and rise at 1 are lowest, if below zero; else 0."""
    s = -c[1] / (c[2] + np.sqrt(np.maximum(c[2] ** 2 - 3 * c[3] * c[1], 0)))
    return np.where(_at(c, s) < 0, s, 0.0)


def _root(c: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The zero in [0, end] of cubics that are above zero at 0 and below at `end`."""
    low, high, s = np.zeros_like(end), end.copy(), end.copy()
    for _ in range(_ITERATIONS):
        value = _at(c, s)
        slope = c[1] + s * (2 * c[2] + s * 3 * c[3])
        low, high = np.where(value < 0, low, s), np.where(value < 0, s, high)
        newton = s - value / np.where(slope == 0, np.inf, slope)
        inside = (newton > low) & (newton < high)
        after = np.where(inside, newton, (low + high) / 2)
        moved, s = np.abs(after - s), after
        if (moved < 1e-15).all():
            break
    return s
