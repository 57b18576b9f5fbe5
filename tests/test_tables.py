"""The tables in the documentation are those of the committed results."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
import tabulate  # noqa: E402


@pytest.mark.parametrize("page", tabulate.TABLES)
def test_tables_are_those_of_the_results(page: str):
    text = (ROOT / page).read_text()
    for name in tabulate.TABLES[page]:
        assert f"<!-- {name} -->" in text
    assert tabulate.filled(text, tabulate.TABLES[page]) == text
