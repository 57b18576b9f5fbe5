"""The tables in the documentation are those of the committed results."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
import tables  # noqa: E402


@pytest.mark.parametrize("page", tables.TABLES)
def test_tables_are_those_of_the_results(page: str):
    text = (ROOT / page).read_text()
    for name in tables.TABLES[page]:
        assert f"<!-- {name} -->" in text
    assert tables.filled(text, tables.TABLES[page]) == text
