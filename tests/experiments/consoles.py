"""Consoles that write into memory, and what was written there."""

import io

from rich.console import Console


def plain() -> Console:
    """Wide, so that no line is broken."""
    return Console(file=io.StringIO(), width=200)


def said(console: Console) -> str:
    """All that was printed."""
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
