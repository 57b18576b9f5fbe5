"""The command line, `graphode run EXPERIMENT`. Flags come from the experiments' dataclasses."""

import sys
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.markup import escape

from graphode import __version__
from graphode.experiments.heap import keep_freed_memory

HELP = ("-h", "--help")
USAGE = """\
usage: graphode COMMAND …

commands:
  run heat                  heat on the karate club: every solver against the exact answer
  run node-classification   train an ensemble on a citation graph
  run multi-agent           train an ensemble on simulated particles
  run traffic               train an ensemble on irregular observations of traffic
  run demo                  particles that move: four models, a table, a page for the browser
  reproduce table-1         the paper's node classification, ours beside theirs
  reproduce table-2         its traffic forecasting, likewise
  reproduce table-3         its multi-agent experiment, likewise
  reproduce figures         its pictures of node classification
  data list                 the data sets, and where each was found
  data fetch                download data sets into the user's cache
  data verify               compare the checksums of data sets

Each command explains its flags with --help.
"""


def _commands() -> dict[tuple[str, ...], tuple[type, Callable[[Any], object]]]:
    """Settings and action of every command; imported here so that --help stays quick."""
    from graphode.data import commands as data
    from graphode.experiments import (
        demo,
        figures,
        heat,
        multi_agent,
        multi_agent_run,
        node_classification,
        node_run,
        table_1,
        table_2,
        table_3,
        traffic,
        traffic_run,
    )

    return {
        ("run", "heat"): (heat.Heat, heat.run),
        ("run", "node-classification"): (node_classification.NodeClassification, node_run.run),
        ("run", "multi-agent"): (multi_agent.MultiAgent, multi_agent_run.run),
        ("run", "traffic"): (traffic.TrafficForecast, traffic_run.run),
        ("run", "demo"): (demo.Demo, demo.run),
        ("reproduce", "table-1"): (table_1.Table1, table_1.run),
        ("reproduce", "table-2"): (table_2.Table2, table_2.run),
        ("reproduce", "table-3"): (table_3.Table3, table_3.run),
        ("reproduce", "figures"): (figures.Figures, figures.run),
        ("data", "list"): (data.List, data.show_list),
        ("data", "fetch"): (data.Fetch, data.fetch),
        ("data", "verify"): (data.Verify, data.verify),
    }


def main(arguments: list[str] | None = None) -> None:
    """Read the command line and run what it names."""
    try:
        _main(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        sys.exit(130)  # as shells report it; a run has said how to go on


def _main(arguments: list[str]) -> None:
    errors = Console(stderr=True)
    if not arguments or arguments[0] in HELP:
        print(USAGE, end="")
        return
    if arguments[0] == "--version":
        print(f"graphode {__version__}")
        return
    if len(arguments) == 1 or arguments[1] in HELP:
        group = [line for line in USAGE.splitlines() if line.startswith(f"  {arguments[0]} ")]
        if group:
            print(f"usage: graphode {arguments[0]} …", *group, sep="\n")
            return
    commands = _commands()
    keep_freed_memory()
    for name, (settings, action) in commands.items():
        if tuple(arguments[: len(name)]) == name:
            import tyro

            try:
                rest = arguments[len(name) :]
                # Where flags such as --preset decide what the others are by default.
                defaults = getattr(settings, "defaults", None)
                default = defaults(rest) if defaults else tyro.MISSING_NONPROP
                action(
                    tyro.cli(
                        settings, prog=f"graphode {' '.join(name)}", args=rest, default=default
                    )
                )
            except (ValueError, OSError) as error:
                errors.print(f"[red]graphode:[/red] {escape(str(error))}", highlight=False)
                sys.exit(2)
            return
    asked = " ".join(arguments[:2])
    known = ", ".join(" ".join(name) for name in commands)
    errors.print(
        f"[red]graphode:[/red] Unknown command {escape(asked)!r}. Choose one of: {known}.",
        highlight=False,
    )
    sys.exit(2)
