"""Tables of numbers from CSV files, whose mistakes are named with the file."""

import io
from typing import Any

import numpy as np
import pandas as pd


def read_csv(content: bytes, name: str, **options: Any) -> pd.DataFrame:
    """pandas' `read_csv`; a file that is empty, or not separated by commas, is refused.

    Blanks before a cell are no part of it: one of blanks alone is empty.
    """
    head = first_line(content)
    for separator, called in ((";", "semicolons"), ("\t", "tabs")):
        if separator in head and "," not in head.replace(", ", " "):
            raise ValueError(
                f"{name} must have commas between its cells, but has {called}: {head[:60]!r}. Save "
                "it with commas, and with points in its numbers."
            )
    try:
        table = pd.read_csv(io.BytesIO(content), skipinitialspace=True, **options)
    except pd.errors.EmptyDataError as error:
        raise ValueError(
            f"{name} is empty. It must hold cells with commas between them."
        ) from error
    except (pd.errors.ParserError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{name} is no table with commas between its cells: {str(error).strip()}. Every line "
            "must have the same number of cells, in UTF-8."
        ) from error
    if not isinstance(table.index, pd.RangeIndex):
        # pandas would take the cells that are too many for names of the rows.
        raise ValueError(
            f"The first line of {name} has fewer cells than those below it: {head[:60]!r}. Every "
            "line must have the same number of cells; head a column of times `time`."
        )
    return table


def first_line(content: bytes) -> str:
    """The first line, without the mark that some programs put before it."""
    return content.split(b"\n", 1)[0].decode("utf-8-sig", "replace").strip("\r")


def read_numbers(content: bytes, name: str) -> np.ndarray:
    """A CSV of numbers alone, no names, no dates."""
    table = read_csv(content, name, header=None)
    for column in table.columns:
        if not pd.api.types.is_numeric_dtype(table[column]):
            held = next(cell for cell in table[column] if not is_number(cell))
            raise ValueError(f"{name} must hold numbers only, but column {column} holds {held!r}.")
    # A copy, since what pandas gives may not be writable, of which torch warns.
    return table.to_numpy(dtype=np.float64, copy=True)


def plain_name(name: object) -> str:
    """A column's name as names are compared: `Station_Name` is `stationname`."""
    return str(name).lower().translate(str.maketrans("", "", " _-"))


def is_number(cell: object) -> bool:
    """Whether a cell is a number, or empty."""
    try:
        float(str(cell) or "nan")
    except ValueError:
        return False
    return True
