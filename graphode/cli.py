"""The command line, `graphode run EXPERIMENT`. Flags come from the experiments' dataclasses."""

import sys
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.markup import escape

USAGE = """\
usage: graphode COMMAND …

commands:
  run heat    diffuse heat over the karate-club graph, every solver against the exact answer

Each command explains its flags with --help.
"""


def _commands() -> dict[tuple[str, ...], tuple[type, Callable[[Any], object]]]:
    """Settings and action of every command; imported here so that --help stays quick."""
    from graphode.experiments import heat

    return {("run", "heat"): (heat.Heat, heat.run)}


def main(arguments: list[str] | None = None) -> None:
    """Read the command line and run what it names."""
    arguments = sys.argv[1:] if arguments is None else arguments
    errors = Console(stderr=True)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, end="")
        return
    commands = _commands()
    for name, (settings, action) in commands.items():
        if tuple(arguments[: len(name)]) == name:
            import tyro

            try:
                rest = arguments[len(name) :]
                action(tyro.cli(settings, prog=f"graphode {' '.join(name)}", args=rest))
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
