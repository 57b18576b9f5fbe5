"""Progress is a live bar on a terminal and plain lines elsewhere."""

import io

import pytest
from rich.console import Console

from graphode.experiments import progress
from graphode.experiments.progress import LiveDisplay, PlainDisplay, counted, display, summary
from tests.experiments.consoles import plain, said

ROW = {
    "members": 3,
    "train_loss": 0.5,
    "validation_loss": 0.75,
    "validation_accuracy": 0.8123,
    "validation_accuracy_std": 0.0042,
    "evaluations": 20.5,
}


def show(console: Console, epochs: int, start: int = 0) -> str:
    with display(console, "model on data", epochs) as shown:
        shown.begin(0, 1, start)
        for epoch in range(start, epochs):
            shown.update({**ROW, "epoch": epoch})
    return said(console)


def test_elsewhere_there_are_ten_plain_lines():
    lines = show(plain(40), 200).splitlines()
    assert lines[0] == "model on data: 200 epochs"
    assert len(lines) == 11
    assert lines[1].startswith("  epoch 20/200 | 0:00 left | loss 0.500, validation 0.750 | ")
    assert lines[1].endswith("| validation accuracy 81.2 ± 0.4 % | 20.5 evaluations")


def test_a_resumed_run_says_so():
    lines = show(plain(), 200, 150).splitlines()
    assert lines[0] == "model on data: 200 epochs, going on from epoch 150"
    assert [line.split(" | ")[0] for line in lines[1:]] == ["  epoch 160/200", "  epoch 180/200",
                                                            "  epoch 200/200"]  # fmt: skip


def test_fewer_epochs_than_lines_are_shown_one_by_one():
    assert len(show(plain(), 3).splitlines()) == 4


def test_small_losses_are_not_shown_as_zero():
    row = {**ROW, "train_loss": 0.000321, "validation_loss": 25.567}
    assert summary(row).startswith("loss 0.000321, validation 25.6 | ")


def test_on_a_terminal_there_is_a_bar():
    console = Console(file=io.StringIO(), force_terminal=True, width=160)
    shown = show(console, 5)
    assert isinstance(display(console, "", 5), LiveDisplay)
    assert isinstance(display(plain(), "", 5), PlainDisplay)
    dumb = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "dumb"})
    assert isinstance(display(dumb, "", 5), PlainDisplay)  # which cannot draw a bar anew
    assert "5/5" in shown
    assert "validation accuracy 81.2 ± 0.4 %" in shown


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_narrow_terminal_shows_all_that_a_wide_one_does(width):
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    shown = LiveDisplay(console, "gcde_rk4 on cora_linqs, 100 members", 2000)
    shown.begin(1, 4, 0)
    shown.update({**ROW, "epoch": 41})
    with console.capture() as drawn:
        console.print(shown.progress.get_renderable())
    lines = drawn.get().splitlines()
    assert max(map(len, lines)) <= width
    words = " ".join(" ".join(lines).split())
    for word in (
        "gcde_rk4 on cora_linqs, 100 members, part 2 of 4",
        "2042/8000 -:--:-- left",
        "loss 0.500, validation 0.750",
        "validation accuracy 81.2 ± 0.4 %",
        "20.5 evaluations",
    ):
        assert word in words


def test_chunks_are_numbered():
    console = plain()
    with display(console, "model", 10) as shown:
        shown.begin(1, 4, 0)
    words = "model: 10 epochs in each of 4 parts, going on from part 2 of 4, epoch 0\n"
    assert said(console) == words


def test_lines_and_time_left_are_of_all_parts(monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(progress.time, "perf_counter", lambda: float(next(clock)))
    console = plain()
    with display(console, "model", 10) as shown:
        for part in range(5):
            shown.begin(part, 5, 0)
            for epoch in range(10):
                shown.update({**ROW, "epoch": epoch})
    first, *lines = said(console).splitlines()
    assert first == "model: 10 epochs in each of 5 parts"
    assert len(lines) == 10
    # The clock moves by a second a line: after two of ten tenths eight more.
    assert lines[1].startswith("  part 1 of 5, epoch 10/10 | 0:08 left | ")
    assert lines[-1].startswith("  part 5 of 5, epoch 10/10 | 0:00 left | ")


def test_the_bar_goes_on_from_part_to_part():
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    shown = LiveDisplay(console, "model", 10)
    shown.begin(0, 2, 0)
    shown.update({**ROW, "epoch": 9})
    shown.begin(1, 2, 0)
    (task,) = shown.progress.tasks
    assert (task.completed, task.total, task.fields["summary"]) == (10, 20, "")
    shown.update({**ROW, "epoch": 4})
    assert task.completed == 15


def test_one_of_a_kind_is_no_plural():
    assert [counted(n, "member") for n in (0, 1, 2)] == ["0 members", "1 member", "2 members"]
