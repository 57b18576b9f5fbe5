"""What is committed under results/, and how a page shows it."""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DEVICES = {"CPU": "cpu", "GPU": "cuda"}
Row = tuple[str, ...]


def result(name: str) -> Any:
    """A committed result."""
    return json.loads((ROOT / "results" / f"{name}.json").read_text())


def results(name: str) -> dict[str, dict[str, Any]]:
    """The committed results of a benchmark, by device; those that were taken."""
    return {
        label: result(f"{name}-{device}")
        for label, device in DEVICES.items()
        if (ROOT / "results" / f"{name}-{device}.json").exists()
    }


def taken_on(found: dict[str, dict[str, Any]]) -> str:
    """Where and when each was taken."""
    return f"*{' '.join(f'{label}: {hardware(each)}.' for label, each in found.items())}*"


def hardware(found: dict[str, Any]) -> str:
    """Where and when a result was taken; rows that were made later have dates of their own."""
    machine = found["machine"]
    name = machine.get("gpu") or f"{machine['cores']} cores of {machine['cpu']}"
    later = [row["date"] for row in found.get("rows", []) if row.get("date")]
    return f"{name}, torch {machine['torch']}, {span([machine['date'], *later])}"


def span(dates: list[str]) -> str:
    """The first and the last of some dates."""
    first, last = min(dates), max(dates)
    return first if first == last else f"{first} to {last}"


def markdown(header: Row, rows: list[Row]) -> str:
    """A table."""
    lines = [header, ("---", *["---:"] * (len(header) - 1)), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
