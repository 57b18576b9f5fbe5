"""The command line by itself: what it offers, and how it says no."""

import os
import runpy
import subprocess
import sys

import pytest

import graphode
from graphode import cli
from graphode.experiments.heat import Heat


def test_without_a_command_all_are_listed(capsys):
    cli.main([])
    assert capsys.readouterr().out == cli.USAGE


def test_the_package_is_a_command_too():
    program = [sys.executable, "-m", "graphode", "--version"]
    said = subprocess.run(program, timeout=120, capture_output=True, text=True)
    assert said.stdout == f"graphode {graphode.__version__}\n"


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


def test_the_module_is_the_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["graphode", "--version"])
    runpy.run_path(cli.__file__, run_name="__main__")  # as `python -m graphode.cli` does
    assert capsys.readouterr().out.startswith("graphode ")


def test_an_unknown_command_is_answered_with_the_known_ones(capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["walk", "heat"])
    error = capsys.readouterr().err
    assert "Unknown command 'walk heat'" in error
    assert "run heat" in error


def said(arguments: list[str], capsys) -> str:
    """What is said where a command is refused, as one line."""
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("reproduce table_1", "reproduce table-1"),
        ("run node_classification", "run node-classification"),
        ("heat", "run heat"),
    ],
)
def test_the_nearest_command_is_suggested(asked, near, capsys):
    assert f"Did you mean `graphode {near}`?" in said(asked.split(), capsys)


def test_half_a_command_is_answered_with_those_that_begin_alike(capsys):
    error = said(["run", "frob"], capsys)
    assert error.startswith("graphode: Unknown command 'run frob'. Choose one of: run heat, ")
    assert "reproduce" not in error


def test_help_says_what_the_command_does(capsys):
    for name in cli._commands():
        with pytest.raises(SystemExit, match="0"):
            cli.main([*name, "--help"])
        shown = capsys.readouterr().out
        assert shown.startswith(f"usage: graphode {' '.join(name)} ")
        what = shown.splitlines()[2]
        assert what.endswith(".")
        assert not any(word in what for word in ("Settings", "`", "_"))


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("reproduce table-1 --models frob", "graphode: Unknown model 'frob' in the printed table."),
        ("reproduce table-1 --chunk 0", "graphode: `chunk` must be 1 or more, but is 0."),
        ("run node-classification --chunk -1", "graphode: `chunk` must be 1 or more, but is -1. "),
        ("run node-classification --patience 0", "graphode: `patience` must be 1 or more, but"),
        ("run node-classification --lr -1", "graphode: `lr` must be a number above 0, but is -1."),
        ("run multi-agent --lr nan", "graphode: `lr` must be a number above 0, but is nan."),
        ("run traffic --chunk -1", "graphode: `chunk` must be 1 or more, but is -1. Leave it out"),
        ("run traffic --lr 0", "graphode: `lr` must be a number above 0, but is 0.0."),
        ("reproduce table-2 --chunk 0", "graphode: `chunk` must be 1 or more, but is 0."),
        ("reproduce table-3 --epochs -2", "graphode: `epochs` must be 1 or more, but is -2."),
    ],
)
def test_settings_are_refused_in_the_words_of_the_command_line(command, reason, capsys):
    assert said(command.split(), capsys).startswith(reason)


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        ("node-classification", "--epochs abc"),
        ("node-classification", "--epochs"),
        ("traffic", "--model"),
    ],
)
def test_a_flag_that_cannot_be_read_is_named_by_its_own_command(command, flag, capsys):
    error = said(["run", command, *flag.split()], capsys)
    assert flag.split()[0] in error
    assert f"graphode run {command} --help" in error
    assert "usage:" not in error


def test_a_solve_that_fails_is_no_traceback(monkeypatch, capsys):
    def fails(settings: Heat) -> None:
        raise graphode.SolveError("The field returned NaN.")

    monkeypatch.setattr(cli, "_commands", lambda: {("run", "heat"): (Heat, fails)})
    assert said(["run", "heat"], capsys) == "graphode: The field returned NaN."


def test_a_path_is_whole_where_a_command_is_refused(tmp_path, capsys):
    there = tmp_path / ("deep" * 30)
    there.write_text("not a folder")
    with pytest.raises(SystemExit, match="2"):
        cli.main(["run", "node-classification", "--dataset", "cora_linqs", "--out", str(there)])
    assert f"The run folder {there} cannot be used: " in capsys.readouterr().err


@pytest.mark.parametrize("command", ["--version", "run heat --help", "data list"])
def test_a_reader_who_has_gone_ends_the_program_quietly(command, monkeypatch, capsys):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as closed:
        monkeypatch.setattr("sys.stdout", closed)
        with pytest.raises(SystemExit) as end:
            cli.main(command.split())
    assert end.value.code == 141  # as shells report SIGPIPE
    assert capsys.readouterr().err == ""


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
