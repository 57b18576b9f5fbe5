"""What solves cost, where the caller sees states alone: inside models and training loops."""

from collections.abc import Iterator
from contextlib import contextmanager

from graphode.flows.solution import Stats

_listeners: list[list[Stats]] = []


@contextmanager
def record_stats() -> Iterator[list[Stats]]:
    """Collect the `Stats` of every solve inside, in their order.

        with gd.record_stats() as stats:
            model(x, graph).sum().backward()
        print(stats[0].evaluations, stats[0].backward_evaluations)

    Solves of fixed steps in a CUDA graph or in compiled code are not seen; of adaptive ones in a
    captured program the tensors in their stats follow the replays.
    """
    collected: list[Stats] = []
    _listeners.append(collected)
    try:
        yield collected
    finally:
        _listeners[:] = [listener for listener in _listeners if listener is not collected]


def report(stats: Stats) -> None:
    """Tell whoever records."""
    for listener in _listeners:
        listener.append(stats)
