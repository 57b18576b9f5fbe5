"""The search behind preset `tuned` of table 2, before it begins."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import search_table_2


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (["gcde_gru", "gru"], "targets makes no difference to gru"),
        (["gcde_gru", "arima"], "no model 'arima'"),
    ],
)
def test_all_models_are_checked_before_the_first_is_searched(capsys, monkeypatch, models, message):
    begun = []
    monkeypatch.setattr(search_table_2, "Search", lambda model, args: begun.append(model))
    monkeypatch.setattr(sys, "argv", ["search", "--model", *models, "--only", "targets"])
    with pytest.raises(SystemExit):
        search_table_2.main()
    assert message in capsys.readouterr().err
    assert begun == []
