"""Ragged, irregular series as one padded batch, for a torch `DataLoader`.

loader = DataLoader(series, batch_size=64, collate_fn=gd.collate)
for batch in loader:
    y = system(batch.x, batch.times, graph, batch.query_times, mask=batch.mask)
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphode.hybrid.stream import is_several, joined
from graphode.hybrid.validation import check_order
from graphode.hybrid.window import as_tensor, times_tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Series:
    """One sample: observations of a network at its own times; a dictionary of these does too.

    Attributes:
        x: `[steps, nodes, channels]`
        times: `[steps]`, strictly increasing.
        mask: True where observed, `[steps]` or `[steps, nodes]`; everything by default.
        graphs: A graph, or one per step.
        query_times: `[queries]`
        targets: What is to be predicted there, `[queries, nodes, out_channels]`.
    """

    x: Any
    times: Any
    mask: Any = None
    graphs: Any = None
    query_times: Any = None
    targets: Any = None


@dataclass(frozen=True, kw_only=True, eq=False)
class SeriesBatch:
    """Series side by side, padded to the longest; what a series has not given is None.

    Attributes:
        x: `[batch, steps, nodes, channels]`, padded with zeros.
        times: `[batch, steps]`, float64, padded with the last time.
        mask: False in padded steps: `[batch, steps]`, or `[batch, steps, nodes]` if a series has
            a mask of nodes.
        graphs: One graph, if all series share it; else one batch of graphs, or one per step.
        query_times: `[batch, queries]`, float64, padded with the last query.
        query_mask: `[batch, queries]`, False where padded.
        targets: `[batch, queries, nodes, out_channels]`, padded with zeros.
    """

    x: Tensor
    times: Tensor
    mask: Tensor
    graphs: Any = None
    query_times: Tensor | None = None
    query_mask: Tensor | None = None
    targets: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "SeriesBatch":
        """The same batch on another device."""

        def moved(value: Any) -> Any:
            if isinstance(value, Tensor):
                return value.to(device, non_blocking=non_blocking)
            if isinstance(value, list):
                return [moved(part) for part in value]
            return value.to(device) if hasattr(value, "to") else value

        return self._with(moved)

    def pin_memory(self) -> "SeriesBatch":
        """The same batch in pinned memory; `DataLoader(pin_memory=True)` calls it."""
        return self._with(lambda value: value.pin_memory() if isinstance(value, Tensor) else value)

    def _with(self, change: Any) -> "SeriesBatch":
        values = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        return SeriesBatch(**{name: change(value) for name, value in values.items()})


def collate(series: Sequence[Series | Mapping[str, Any]]) -> SeriesBatch:
    """Pad series of different lengths to one batch.

    Times must increase within each series: sort them, and merge observations with equal times,
    before. Nothing is dropped: values that are not finite must be under the series' mask.

    Args:
        series: `Series`, or dictionaries with the same keys.
    """
    if len(series) == 0:
        raise ValueError("A batch needs at least one series, but there are none.")
    samples = [_read(sample, number) for number, sample in enumerate(series)]
    _check_alike(samples)
    steps = max(len(sample.times) for sample in samples)
    by_node = any(sample.mask.ndim == 2 for sample in samples)
    masks = [
        sample.mask[:, None].expand(sample.x.shape[:2])
        if by_node and sample.mask.ndim == 1
        else sample.mask
        for sample in samples
    ]
    queries = _queries(samples)
    return SeriesBatch(
        x=torch.stack([_padded(sample.x, steps, 0.0) for sample in samples]),
        times=torch.stack([_padded(s.times, steps, s.times[-1].item()) for s in samples]),
        mask=torch.stack([_padded(mask, steps, False) for mask in masks]),
        graphs=_graphs([sample.graphs for sample in samples], steps),
        **queries,
    )


def _read(sample: Series | Mapping[str, Any], number: int) -> Series:
    """A series of tensors, checked; its mask is always there."""
    if isinstance(sample, Mapping):
        names = [item.name for item in dataclasses.fields(Series)]
        unknown = sorted(set(sample) - set(names))
        if unknown or not {"x", "times"} <= set(sample):
            raise ValueError(
                f"A series must have `x` and `times`, and may have {', '.join(names[2:])}, but "
                f"series {number} has {', '.join(map(str, sample))}."
            )
        sample = Series(**sample)
    if not isinstance(sample, Series):
        raise TypeError(
            f"`collate` takes `Series` or dictionaries, but series {number} is a "
            f"{type(sample).__name__}."
        )
    x = as_tensor(sample.x)
    times = times_tensor("times", sample.times).to(torch.float64)
    if x.ndim != 3 or times.shape != x.shape[:1] or 0 in x.shape:
        raise ValueError(
            f"A series must have observations [steps, nodes, channels], at least one of them, and "
            f"a time for each step, but series {number} has x of shape {list(x.shape)} and times "
            f"of shape {list(times.shape)}. Leave empty windows out."
        )
    mask = torch.ones(len(times), dtype=torch.bool) if sample.mask is None else sample.mask
    mask = as_tensor(mask)
    if mask.dtype != torch.bool or mask.shape not in (x.shape[:1], x.shape[:2]):
        raise ValueError(
            f"A mask must be boolean, True where observed, of shape {[len(times)]} or "
            f"{list(x.shape[:2])}, but that of series {number} is {mask.dtype} of shape "
            f"{list(mask.shape)}."
        )
    try:
        valid = mask if mask.ndim == 1 else mask.any(1)
        check_order(times.numpy(force=True)[None], valid.numpy(force=True)[None], None)
    except ValueError as error:
        raise ValueError(f"Series {number}: {error}") from None
    spread = mask if mask.ndim == 2 else mask[:, None]
    if not bool(torch.where(spread[..., None], x, 0).isfinite().all()):
        raise ValueError(
            f"Series {number} has observations that are not finite. If they are missing, say so: "
            f"`mask=x.isfinite().all(-1)`."
        )
    graphs = sample.graphs
    if is_several(graphs) and len(graphs) != len(times):
        raise ValueError(
            f"A series must have one graph, or one per step, {len(times)}, but series {number} has "
            f"{len(graphs)}. Repeat a graph for as long as it stays."
        )
    if sample.targets is not None and sample.query_times is None:
        raise ValueError(
            f"A series with `targets` must say when they are, but series {number} has no "
            f"`query_times`. Give a time for each target."
        )
    return dataclasses.replace(sample, x=x, times=times, mask=mask)


def _check_alike(samples: Sequence[Series]) -> None:
    first = samples[0]
    for number, sample in enumerate(samples):
        if sample.x.shape[1:] != first.x.shape[1:]:
            raise ValueError(
                f"The series of a batch must have the same nodes and channels, but series 0 has "
                f"{list(first.x.shape[1:])} and series {number} {list(sample.x.shape[1:])}. Put "
                f"networks of other sizes into batches of their own."
            )
        for name in ("graphs", "query_times", "targets"):
            if (getattr(sample, name) is None) != (getattr(first, name) is None):
                raise ValueError(
                    f"Either all series of a batch have `{name}` or none, but series 0 and "
                    f"{number} differ."
                )


def _queries(samples: Sequence[Series]) -> dict[str, Tensor]:
    if samples[0].query_times is None:
        return {}
    times = [times_tensor("query_times", s.query_times).double().reshape(-1) for s in samples]
    if not all(len(own) for own in times):
        raise ValueError("Every series of a batch must have a query, but one has none.")
    count = max(len(own) for own in times)
    found = {
        "query_times": torch.stack([_padded(own, count, own[-1].item()) for own in times]),
        "query_mask": torch.stack(
            [_padded(torch.ones(len(own), dtype=torch.bool), count, False) for own in times]
        ),
    }
    if samples[0].targets is not None:
        targets = [as_tensor(sample.targets) for sample in samples]
        for number, (own, when) in enumerate(zip(targets, times, strict=True)):
            if own.shape[:1] != when.shape:
                raise ValueError(
                    f"A series must have a target for each query, but series {number} has "
                    f"{len(own) if own.ndim else 'a number'} for {len(when)}."
                )
            if own.shape[1:] != targets[0].shape[1:]:
                raise ValueError(
                    f"The targets of a batch must be alike, [queries, nodes, out_channels], but "
                    f"those of series 0 have shape {list(targets[0].shape)}, those of series "
                    f"{number} {list(own.shape)}."
                )
        found["targets"] = torch.stack([_padded(own, count, 0.0) for own in targets])
    return found


def _padded(values: Tensor, length: int, fill: float | bool) -> Tensor:
    missing = length - len(values)
    if not missing:
        return values
    return torch.cat([values, values.new_full((missing, *values.shape[1:]), fill)])


def _graphs(graphs: list[Any], steps: int) -> Any:
    if not any(map(is_several, graphs)):
        return joined(graphs)
    rows = [
        [*own, *[own[-1]] * (steps - len(own))] if is_several(own) else [own] * steps
        for own in graphs
    ]
    return [joined(step) for step in zip(*rows, strict=True)]
