"""Errors of forecasts of particles.

    MAPE           mean over everything of |ŷ − y| / |y|, in %: ours
    printed MAPE   100/(pT) ‖Σ_t (y_t − ŷ_t) ⊘ y_t‖₁: the paper's formula, in which errors of
                   opposite sign cancel over time
    median APE     the median of what MAPE is the mean of
    MAE, RMSE      in the unit of the state

A component that crosses zero makes MAPE as large as it likes; hence the others beside it.
"""

from jaxtyping import Float
from torch import Tensor

METRICS = ("mape", "printed_mape", "median_ape", "mae", "rmse")


def metrics(
    predicted: Float[Tensor, "members time n channels"],
    true: Float[Tensor, "members time n channels"],
) -> dict[str, Float[Tensor, " members"]]:
    """Each of `METRICS`, of each member."""
    error = (predicted - true).double()
    relative = 100 * error / true.double()
    size, percentages = error.abs().flatten(1), relative.abs().flatten(1)
    return {
        "mape": percentages.mean(1),
        "printed_mape": relative.mean(1).abs().flatten(1).mean(1),
        "median_ape": _median(percentages),
        "mae": size.mean(1),
        "rmse": size.square().mean(1).sqrt(),
    }


def _median(values: Tensor) -> Tensor:
    """The mean of the two middle values where their number is even; torch takes the lower one."""
    ordered, last = values.sort(1).values, values.shape[1] - 1
    return (ordered[:, last // 2] + ordered[:, last - last // 2]) / 2


def spread(values: Float[Tensor, " members"]) -> dict[str, float]:
    """Mean and standard deviation over members."""
    return {"mean": float(values.mean()), "std": float(values.std(correction=0))}
