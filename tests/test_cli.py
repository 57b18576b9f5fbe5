"""The command line by itself: what it offers, and how it says no."""

import subprocess
import sys

import pytest

import graphode
from graphode import cli


def test_without_a_command_all_are_listed(capsys):
    cli.main([])
    assert capsys.readouterr().out == cli.USAGE


@pytest.mark.parametrize("arguments", [["run"], ["run", "--help"], ["run", "-h"]])
def test_half_a_command_lists_what_can_follow(arguments, capsys):
    cli.main(arguments)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "usage: graphode run …"
    assert {line.split()[0] for line in lines[1:]} == {"run"}
    assert len(lines) == 1 + sum(name[0] == "run" for name in cli._commands())


def test_the_list_has_every_command():
    for name in cli._commands():
        assert f"  {' '.join(name)} " in cli.USAGE


def test_the_version_is_that_of_the_package(capsys):
    cli.main(["--version"])
    assert capsys.readouterr().out == f"graphode {graphode.__version__}\n"


def test_an_unknown_command_is_answered_with_the_known_ones(capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["walk", "heat"])
    error = capsys.readouterr().err
    assert "Unknown command 'walk heat'" in error
    assert "run heat" in error


def test_an_interrupt_at_any_moment_is_no_traceback(monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_commands", interrupted)
    with pytest.raises(SystemExit, match="130"):
        cli.main(["run", "heat"])


def test_experiments_need_nothing_that_only_the_command_line_needs():
    modules = ("node_run", "table_1", "table_2", "table_3", "figures", "traffic_run")
    names = ", ".join(f"graphode.experiments.{name}" for name in modules)
    program = f"import sys; sys.modules['tyro'] = None; import {names}"
    assert subprocess.run([sys.executable, "-c", program], timeout=120).returncode == 0
