"""`graphode data list | fetch | verify`: what is here, get it, check it."""

import dataclasses
import sys
from pathlib import Path

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from graphode.data.catalogue import SOURCES, DataSource, find_source
from graphode.data.store import check_bytes, difference, fetch_file, find_file


@dataclasses.dataclass(frozen=True, kw_only=True)
class List:
    """List the data sets, and say where each was found.

    Args:
        data_root: A folder of data sets, searched before GRAPHODE_DATA and the cache.
    """

    data_root: Path | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fetch:
    """Download data sets into the cache; what is whole already is left alone.

    Args:
        names: Data sets, as `graphode data list` names them.
        data_root: A folder of data sets, searched before GRAPHODE_DATA and the cache.
    """

    names: tyro.conf.Positional[tuple[str, ...]]
    data_root: Path | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verify:
    """Compare the checksums of data sets; exit status 1 if a file is damaged, or missing.

    Args:
        names: Data sets; without any, all those that are here.
        data_root: A folder of data sets, searched before GRAPHODE_DATA and the cache.
    """

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    data_root: Path | None = None


def show_list(settings: List) -> None:
    """Print the table."""
    table = Table(title="Data sets")
    for column in ("name", "what", "where"):
        table.add_column(column)
    table.add_column("size", justify="right")
    for source in SOURCES.values():
        where = _where(source, settings.data_root)
        table.add_row(source.name, source.what, where, f"{source.size / 1e6:.2f} MB")
    console = Console()
    console.print(table)
    console.print(
        "`graphode data fetch NAME` downloads, `graphode data verify` compares checksums."
    )


def fetch(settings: Fetch) -> None:
    """Get what is missing or damaged."""
    sources = [find_source(name) for name in settings.names]
    console = Console(soft_wrap=True, highlight=False)
    if not sources:
        raise ValueError(f"Which? Name one or more of: {', '.join(SOURCES)}.")
    for source in sources:
        for file in source.files:
            found = find_file(source, file, settings.data_root)
            if found is not None:
                place, path = found
                content = path.read_bytes()
                if place != "cache":
                    # Damaged, it would still be found before a fresh copy in the cache.
                    check_bytes(content, source, file, path)
                if not difference(content, file):
                    console.print(f"{source.name}: {file.name} is here ({escape(str(path))})")
                    continue
            size = len(fetch_file(source, file, settings.data_root))
            console.print(f"{source.name}: {file.name} fetched, {size} bytes")


def verify(settings: Verify) -> None:
    """Compare; exits with status 1 if anything is wrong."""
    sources = [find_source(name) for name in settings.names] or list(SOURCES.values())
    console = Console(soft_wrap=True, highlight=False)
    wrong = 0
    for source in sources:
        for file in source.files:
            found = find_file(source, file, settings.data_root)
            if found is None:
                # Only what was asked for by name must be here.
                wrong += bool(settings.names)
                console.print(f"not here  {source.name}/{file.name}")
            elif differs := difference(found[1].read_bytes(), file):
                wrong += 1
                console.print(f"[red]damaged[/red]   {escape(str(found[1]))}: {differs}")
            else:
                console.print(f"[green]whole[/green]     {escape(str(found[1]))}")
    if wrong:
        sys.exit(1)


def _where(source: DataSource, root: Path | None) -> str:
    found = [find_file(source, file, root) for file in source.files]
    here = {place[0] for place in found if place is not None}
    if not here:
        return "not here" if any(file.urls for file in source.files) else "not here, no download"
    missing = sum(place is None for place in found)
    return ", ".join(sorted(here)) + (f", {missing} of {len(found)} files missing" * bool(missing))
