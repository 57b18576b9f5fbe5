"""Flags of a command line that decide what the others are by default, read before the others."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def peek(arguments: Sequence[str], kinds: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    """The values of these flags, by name; one that cannot be read is left to who reads them all.

    Args:
        arguments: Of a command line.
        kinds: From the name of a flag to what makes a value of its word.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in kinds:
        parser.add_argument(f"--{name}", nargs="?")
    found = {}
    for name, word in vars(parser.parse_known_args(arguments)[0]).items():
        if word is not None:
            try:
                found[name] = kinds[name](word)
            except ValueError:
                continue
    return found
