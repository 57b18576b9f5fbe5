"""One command makes every table and figure, each in a folder of its name."""

import io

import pytest
from rich.console import Console

from graphode import cli
from graphode.data.store import MissingFileError
from graphode.experiments import everything, figures, table_1, table_2, table_3
from graphode.experiments.everything import Everything, parts_of

TABLES = {
    "table-1": table_1,
    "table-1-tuned": table_1,
    "figures": figures,
    "table-2": table_2,
    "table-3": table_3,
}


@pytest.fixture
def made(monkeypatch):
    """The settings with which parts are made, which make nothing."""
    settings = []
    for module in set(TABLES.values()):
        monkeypatch.setattr(module, "run", lambda config, console: settings.append(config))
    return settings


def test_every_part_is_made_in_a_folder_of_its_name(tmp_path, made, capsys):
    flags = ["--quick", "--seeds", "3", "--device", "cpu", "--data-root", str(tmp_path)]
    cli.main(["reproduce", "all", *flags, "--jobs", "2", "--out", str(tmp_path / "all")])
    assert [config.out for config in made] == [tmp_path / "all" / name for name in TABLES]
    for config in made:
        assert (config.quick, config.seeds, config.device) == (True, 3, "cpu")
        assert getattr(config, "jobs", 2) == 2
        assert getattr(config, "data_root", tmp_path) == tmp_path
    assert [config.preset for config in made[:2]] == ["printed", "tuned"]
    assert "[5/5] table-3" in capsys.readouterr().out


def test_pictures_are_of_the_runs_of_the_table(tmp_path, made):
    for part in parts_of(Everything(), tmp_path).values():
        part(Console(file=io.StringIO()))
    assert made[2].runs == made[0].out


def test_a_part_without_data_is_left_out_and_the_others_are_made(tmp_path, made, monkeypatch):
    def missing(config, console):
        raise MissingFileError("pems08_speed.npz is nowhere.")

    monkeypatch.setattr(table_2, "run", missing)
    said = io.StringIO()
    found = everything.run(Everything(out=tmp_path), Console(file=said, width=200))
    assert found == {name: str(tmp_path / name) for name in TABLES} | {
        "table-2": "left out for want of data"
    }
    assert "table-2 is left out: pems08_speed.npz is nowhere." in said.getvalue()


def test_mistakes_are_refused_before_anything_begins(made):
    with pytest.raises(ValueError, match="`seeds` must be 1 or more, but is 0"):
        Everything(seeds=0)
    assert made == []
