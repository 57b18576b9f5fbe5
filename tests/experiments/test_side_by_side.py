"""Runs of a table as programs of their own: the same numbers, whoever makes them."""

import dataclasses
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from graphode.experiments import side_by_side
from graphode.experiments.side_by_side import make_side_by_side
from graphode.experiments.table_1 import Table1
from graphode.experiments.table_2 import Table2
from graphode.experiments.table_2 import run as run_table_2
from graphode.experiments.table_3 import Table3


@dataclasses.dataclass(frozen=True)
class Squared:
    number: int
    out: Path
    fresh: bool = False


def square(config: Squared, console: Console) -> None:
    console.print(f"squaring {config.number}")
    if config.number < 0:
        raise ValueError("It is negative.")
    if config.number == 13:
        raise KeyboardInterrupt
    config.out.mkdir(parents=True)
    (config.out / "result.json").write_text(json.dumps(config.number**2))


def plain() -> Console:
    return Console(file=io.StringIO(), width=200)


def said(console: Console) -> str:
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def test_a_table_is_the_same_however_many_runs_are_made_at_a_time(tmp_path, without_type_checks):
    changes = {
        "quick": True, "models": ("persistence", "gcgru"), "keeps": (0.5,), "studies": False,
        "epochs": 1, "device": "cpu", "preset": "tuned",
    }  # fmt: skip
    one = run_table_2(Table2(**changes, out=tmp_path / "one"), plain())
    console = plain()
    two = run_table_2(Table2(**changes, jobs=2, fresh=True, out=tmp_path / "two"), console)
    assert "2 runs, 2 at a time" in said(console)
    assert "[2/2]" in said(console)
    assert [(row.model, row.metric) for row in one] == [(row.model, row.metric) for row in two]
    assert [row.mean for row in one] == pytest.approx([row.mean for row in two], rel=1e-9)
    assert "epoch 1/1" in (tmp_path / "two" / "gcgru-tuned-50.log").read_text()


def test_what_is_finished_is_not_made_again(tmp_path, monkeypatch):
    cells = [(str(k), Squared(k, tmp_path / str(k), fresh=k == 2)) for k in (1, 2)]
    for _, config in cells:
        config.out.mkdir()
        (config.out / "result.json").write_text("0")
    begun = []

    class Pool:
        def __init__(self, workers, *rest):
            begun.append(workers)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def submit(self, make, run, config, *rest):
            begun.append(config.number)
            done = side_by_side.Future()
            done.set_result(True)
            return done

    monkeypatch.setattr(side_by_side, "ProcessPoolExecutor", Pool)
    found = make_side_by_side(square, cells, 4, plain())
    assert begun == [1, 2]  # one worker, for the one that is to be made afresh
    assert [config.fresh for config in found] == [False, False]


@pytest.mark.parametrize(("number", "error"), [(-1, ValueError), (13, KeyboardInterrupt)])
def test_a_run_that_fails_is_named_and_one_that_is_stopped_stops_all(tmp_path, number, error):
    cells = [("bad", Squared(number, tmp_path / "bad"))]
    console = plain()
    with pytest.raises(error) as found:
        make_side_by_side(square, cells, 2, console)
    assert ("goes on from the runs' last checkpoints" in said(console)) == (number == 13)
    if error is ValueError:
        assert "bad failed: It is negative." in str(found.value)
        assert str(tmp_path / "bad.log") in str(found.value)
    assert "squaring" in (tmp_path / "bad.log").read_text()


@pytest.mark.parametrize("table", [Table1, Table2, Table3])
def test_no_job_is_refused(table, without_type_checks):
    with pytest.raises(ValueError, match="`jobs` must be 1 or more, but is 0"):
        table(jobs=0)
