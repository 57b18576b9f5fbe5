"""What a hybrid system refuses in times, said once: what was expected, what came, what to do."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphode.hybrid.parts import StateParts


def check_dtype(x: Tensor, jump: Any) -> None:
    """Refuse observations of another dtype than the weights of a cell of ours.

    A jump of the user's own may convert what it is given.
    """
    if not isinstance(getattr(jump, "parts", None), StateParts):
        return
    weight = next(jump.parameters(), x)
    if weight.dtype == x.dtype or torch.is_autocast_enabled(x.device.type):
        return
    method = {torch.float32: "float", torch.float64: "double", torch.float16: "half"}
    own, models = (str(dtype).removeprefix("torch.") for dtype in (x.dtype, weight.dtype))
    raise TypeError(
        f"`x` must have the dtype of the model, but `x` is {own}, the model {models}. Use "
        f"`x.{method.get(weight.dtype, models)}()` (of an array, `x.astype('{models}')`), or "
        f"`model.{method.get(x.dtype, own)}()`."
    )


def check_order(times: np.ndarray, valid: np.ndarray, origin: np.ndarray | None) -> None:
    """Refuse samples without a step, and times that are not finite or do not increase.

    Args:
        times: `[samples, steps]`
        valid: Which of them count.
        origin: When a state that came with the observations was last observed.
    """
    if times.shape[1] == 0:
        return
    empty = ~valid.any(1)
    if empty.any() and origin is None:
        sample = int(np.flatnonzero(empty)[0])
        raise ValueError(
            f"Every sample must have at least one observation, but the mask leaves none to sample "
            f"{sample}. Leave empty windows out."
        )
    wrong = valid & ~np.isfinite(times)
    if wrong.any():
        sample, step = (int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(
            f"`times` must be finite, but step {step} of sample {sample} is "
            f"{times[sample, step]}. Mask the steps that a sample does not have."
        )
    start = np.full(len(times), -np.inf) if origin is None else origin
    own = np.concatenate([start[:, None], np.where(valid, times, -np.inf)], 1)
    known = np.maximum.accumulate(own, 1)[:, :-1]
    wrong = valid & (times <= known)
    if wrong.any():
        sample, step = (int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(
            f"`times` must increase strictly from observation to observation, but step {step} of "
            f"sample {sample} comes at {times[sample, step]:.15g}, after "
            f"{known[sample, step]:.15g}. Sort the observations, and merge those with equal times."
        )


def check_queries(queries: np.ndarray, origin: np.ndarray, from_state: bool) -> None:
    """Refuse queries before there is a state.

    Args:
        queries: `[samples, queries]`
        origin: From when on there is one, `[samples]`.
        from_state: Whether it was given, and not made from the first observation.
    """
    wrong = ~(np.isfinite(queries) & (queries >= origin[:, None]))
    if wrong.any():
        sample, query = (int(i) for i in np.argwhere(wrong)[0])
        if from_state:
            raise ValueError(
                f"A query must be finite and not before the last observation in the state, but "
                f"query {query} of sample {sample} is at {queries[sample, query]:.15g}, and that "
                f"observation at {origin[sample]:.15g}. A state holds no history: ask the state of "
                f"an earlier time, or call the system with the whole window."
            )
        raise ValueError(
            f"`query_times` must be finite and not before the first observation, but query "
            f"{query} of sample {sample} is at {queries[sample, query]:.15g}, and its first "
            f"observation at {origin[sample]:.15g}. There is no state before it."
        )
