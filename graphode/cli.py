"""The command line, `graphode run EXPERIMENT`. Flags come from the experiments' dataclasses."""

import difflib
import functools
import inspect
import os
import re
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from rich.console import Console
from rich.markup import escape

from graphode import __version__
from graphode.experiments.heap import keep_freed_memory
from graphode.flows import SolveError

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
  reproduce all             all of these
  predict                   what comes after the last rows of your own table, by a finished run
  data list                 the data sets, and where each was found
  data fetch                download data sets into the user's cache
  data verify               compare the checksums of data sets

Each command explains its flags with --help.
"""


def _commands() -> dict[tuple[str, ...], tuple[type, Callable[[Any], object]]]:
    """Settings and action of every command; imported here, as the list of them needs none."""
    from graphode.data import commands as data
    from graphode.experiments import (
        demo,
        everything,
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
        traffic_prediction,
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
        ("reproduce", "all"): (everything.Everything, everything.run),
        ("predict",): (traffic_prediction.TrafficPrediction, traffic_prediction.predict),
        ("data", "list"): (data.List, data.show_list),
        ("data", "fetch"): (data.Fetch, data.fetch),
        ("data", "verify"): (data.Verify, data.verify),
    }


def main(arguments: list[str] | None = None) -> None:
    """Read the command line and run what it names."""
    try:
        try:
            _main(sys.argv[1:] if arguments is None else arguments)
        finally:
            sys.stdout.flush()  # a closed pipe is noticed here, not when Python ends
    except KeyboardInterrupt:
        sys.exit(130)  # as shells report it; a run has said how to go on
    except (BrokenPipeError, SystemExit) as end:
        # Whoever read what is printed, such as `head`, has gone; Rich then exits in its own way.
        if isinstance(end, SystemExit) and not isinstance(end.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # where the rest is to go
        sys.exit(141)  # as shells report it
    except (ValueError, OSError, SolveError) as error:
        _refuse(str(error))


def _main(arguments: list[str]) -> None:
    if not arguments or arguments[0] in HELP:
        print(USAGE, end="")
        return
    if arguments[0] == "--version":
        print(f"graphode {__version__}")
        return
    if len(arguments) == 1 or arguments[1] in HELP:
        first = rf"  {re.escape(arguments[0])} \S"  # of a group: another word follows
        group = [line for line in USAGE.splitlines() if re.match(first, line)]
        if group:
            print(f"usage: graphode {arguments[0]} …", *group, sep="\n")
            return
    commands = _commands()
    name = next((name for name in commands if name == tuple(arguments[: len(name)])), None)
    if name is None:
        _refuse(_unknown(arguments[:2], list(commands)))
    keep_freed_memory()
    settings, action = commands[name]
    action(_read(settings, name, arguments[len(name) :]))


def _read(settings: type, name: tuple[str, ...], words: list[str]) -> Any:
    """The settings that flags say."""
    import tyro

    defaults = getattr(settings, "defaults", None)
    description, known = inspect.getdoc(settings) or "", {}
    description = description.partition("\n\n")[0]
    if defaults:  # where flags such as --preset decide what the others are by default
        description += " The defaults shown are those of the model and preset that flags name."
        known = vars(defaults(words))
    # Of a partial, unlike of a class, tyro leaves errors to us.
    maker = functools.partial(settings, **known)
    return tyro.cli(
        maker,
        prog=f"graphode {' '.join(name)}",
        description=description,
        args=words,
        config=(tyro.conf.PositionalRequiredArgs,),
    )


def _unknown(asked: list[str], known: list[tuple[str, ...]]) -> str:
    """Name the nearest command, and those that begin alike."""
    group = [name for name in known if name[0] == asked[0]] or known
    words = [f"Unknown command {' '.join(asked)!r}."]
    endings = {name[-1]: name for name in group}
    for ending in difflib.get_close_matches(asked[-1], endings, n=1):
        words.append(f"Did you mean `graphode {' '.join(endings[ending])}`?")
    words.append(f"Choose one of: {', '.join(map(' '.join, group))}.")
    return " ".join(words)


def _refuse(reason: str) -> NoReturn:
    # Not cut into lines, as paths and commands in it are there to be copied.
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print(f"[red]graphode:[/red] {escape(reason)}")
    sys.exit(2)


if __name__ == "__main__":
    main()
