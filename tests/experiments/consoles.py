"""Consoles that write into memory, and what was written there; a display that stops a run."""

import io

from rich.console import Console

from graphode.experiments.progress import PlainDisplay


def plain(width: int = 200) -> Console:
    """No terminal; wide, so that no line is broken."""
    return Console(file=io.StringIO(), width=width)


def said(console: Console) -> str:
    """All that was printed."""
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


class CutDisplay(PlainDisplay):
    """Stops the run, as Ctrl-C does, when so many epochs are over."""

    at = 6

    def update(self, row):
        super().update(row)
        if row["epoch"] + 1 == self.at:
            raise KeyboardInterrupt
