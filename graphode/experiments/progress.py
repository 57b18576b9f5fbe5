"""What a run shows while it trains: a live bar on a terminal that can, plain lines elsewhere.

Both say epoch, time left, losses, validation accuracy of the members and evaluations per solve.
Test metrics are not shown before the end: nobody should stop a run by them.
"""

import time
from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from graphode.experiments.sitting import say

LINES = 10  # plain lines per run, at most


@runtime_checkable
class Display(Protocol):
    """Where progress goes; a context, open during training."""

    def begin(self, chunk: int, chunks: int, epoch: int) -> None:
        """A chunk of members starts, or goes on, at an epoch."""
        ...

    def update(self, row: dict[str, Any]) -> None:
        """The last line of the metrics."""
        ...

    def note(self, line: str) -> None:
        """Something to know at once."""
        ...

    def __enter__(self) -> "Display": ...

    def __exit__(self, *error: object) -> None: ...


def display(console: Console, title: str, epochs: int) -> Display:
    """The display that fits the console.

    Args:
        console: A terminal, or a file.
        title: What is run.
        epochs: Of each chunk of members.
    """
    can_move = console.is_terminal and not console.is_dumb_terminal
    return (LiveDisplay if can_move else PlainDisplay)(console, title, epochs)


def counted(number: int, noun: str) -> str:
    """In words: 1 member, 5 members."""
    return f"{number} {noun}" + "s" * (number != 1)


def summary(row: dict[str, Any]) -> str:
    """Losses, accuracy and evaluations of an epoch in a few words."""
    # Three digits, however small: the error of a particle's step falls far below 0.001.
    words = [f"loss {row['train_loss']:#.3g}, validation {row['validation_loss']:#.3g}"]
    if "validation_accuracy" in row:
        mean, deviation = (100 * row[f"validation_accuracy{end}"] for end in ("", "_std"))
        spread = f" ± {deviation:.1f}" if row["members"] > 1 else ""
        words.append(f"validation accuracy {mean:.1f}{spread} %")
    if row["evaluations"]:
        words.append(f"{row['evaluations']:.4g} evaluations")
    return " | ".join(words)


class _LineByLine(Progress):
    """What is run, where it stands, what was measured: a line each, for narrow terminals too."""

    def get_renderables(self) -> Iterable[RenderableType]:
        for task in self.tasks:
            yield Text(task.description)
            yield self.make_tasks_table([task])
            yield Text(task.fields["summary"])


class LiveDisplay:
    """A bar that moves."""

    def __init__(self, console: Console, title: str, epochs: int) -> None:
        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("left"))
        self.progress = _LineByLine(*columns, console=console)
        self.title, self.epochs, self.before = title, epochs, 0
        self.task = self.progress.add_task(title, total=None, summary="")

    def begin(self, chunk: int, chunks: int, epoch: int) -> None:
        """Start the bar where the run stands."""
        is_first = self.progress.tasks[self.task].total is None
        self.before, total = chunk * self.epochs, chunks * self.epochs
        done = self.before + epoch
        if is_first:  # what was done before does not tell how fast it goes
            self.progress.reset(self.task, total=total, completed=done)
        title = _titled(self.title, chunk, chunks)
        self.progress.update(self.task, completed=done, description=title, summary="")

    def update(self, row: dict[str, Any]) -> None:
        """Move the bar."""
        done = self.before + row["epoch"] + 1
        self.progress.update(self.task, completed=done, summary=summary(row))

    def note(self, line: str) -> None:
        """A line above the bar, which stays."""
        say(self.progress.console, line)

    def __enter__(self) -> "LiveDisplay":
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()


class PlainDisplay:
    """Ten lines, each on its own."""

    def __init__(self, console: Console, title: str, epochs: int) -> None:
        self.console, self.title, self.epochs = console, title, epochs
        self.chunk, self.chunks = 0, 0
        self.start = self.shown = 0
        self.began = 0.0

    def begin(self, chunk: int, chunks: int, epoch: int) -> None:
        """Say what starts; of later chunks the lines of their epochs do."""
        is_first = self.chunks == 0
        self.chunk, self.chunks = chunk, chunks
        if not is_first:
            return
        self.start = self.shown = chunk * self.epochs + epoch
        self.began = time.perf_counter()
        epochs = counted(self.epochs, "epoch")
        parts = f" in each of {chunks} parts" if chunks > 1 else ""
        going_on = f", going on from {self._place(epoch)}" if self.start else ""
        say(self.console, f"{self.title}: {epochs}{parts}{going_on}")

    def update(self, row: dict[str, Any]) -> None:
        """A line each time another tenth of all is done."""
        done, total = self.chunk * self.epochs + row["epoch"] + 1, self.chunks * self.epochs
        if done * LINES // total == self.shown * LINES // total:
            return
        self.shown = done
        spent = time.perf_counter() - self.began
        left = spent / (done - self.start) * (total - done)
        place = self._place(f"{row['epoch'] + 1}/{self.epochs}")
        say(self.console, f"  {place} | {clock(left)} left | {summary(row)}")

    def _place(self, epoch: object) -> str:
        part = f"part {self.chunk + 1} of {self.chunks}, " if self.chunks > 1 else ""
        return f"{part}epoch {epoch}"

    def note(self, line: str) -> None:
        """A line between the others."""
        say(self.console, f"  {line}")

    def __enter__(self) -> "PlainDisplay":
        return self

    def __exit__(self, *error: object) -> None: ...


def _titled(title: str, chunk: int, chunks: int) -> str:
    return title if chunks == 1 else f"{title}, part {chunk + 1} of {chunks}"


def clock(seconds: float) -> str:
    """As minutes:seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
