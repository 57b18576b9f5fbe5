"""The demo and its page, in a real browser where there is one."""

import json
import re

import jaxtyping
import pytest

from graphode.experiments.demo import Demo, run
from graphode.experiments.demo_page import COLORS, page_data, write_page
from tests.experiments.browser import Page, find_browser
from tests.experiments.consoles import plain, said

PANELS = ("Truth", *COLORS)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A demo of a few epochs: its folder, and what it printed."""
    out = tmp_path_factory.mktemp("demo")
    console = plain(100)
    config = Demo(members=2, epochs=3, duration=0.5, horizons=(1, 5, 50), device="cpu", out=out)
    jaxtyping.config.update("jaxtyping_disable", True)  # thousands of small calls
    assert run(config, console) == out / "demo.html"
    jaxtyping.config.update("jaxtyping_disable", False)
    return out, said(console)


def test_the_demo_prints_the_papers_numbers_beside_ours(demo):
    _, printed = demo
    assert re.search(r"\n GDE-II( +[\d.e+-]+){3} *\n", printed)
    assert re.search(r"paper +13\.5 +17\.8 +73\.8", printed)
    for word in (
        "Simulating 2 systems",
        "neural_ode of 10 particles",
        "Page: ",
        "harmonic motion, in RMSE",
    ):
        assert word in printed


def test_the_demo_writes_its_table(demo):
    out, _ = demo
    rows = json.loads((out / "table.json").read_text())
    assert {row["model"] for row in rows} == {"Persistence", *COLORS}


def test_the_page_is_one_file_that_needs_no_other(demo):
    text = (demo[0] / "demo.html").read_text()
    assert "__DATA__" not in text
    assert not re.findall(r"https?://|src=|@import|url\(", text)


def test_the_page_holds_the_forecasts(demo):
    out, _ = demo
    data = page_data({"GDE-II": out / "gde_ii", "Harmonic motion": out / "harmonic"})
    assert [model["name"] for model in data["models"]] == ["Harmonic motion", "GDE-II"]
    assert data["times"][0] == 0.25
    assert data["times"][-1] == 0.5
    frames = len(data["times"])
    for model in data["models"]:
        assert list(model["paths"]) == ["free", "forecast_50"]
        assert all(len(path) == frames for path in model["paths"].values())
        assert model["paths"]["free"][0] == data["true"][0]
        assert model["errors"]["free"][0] == 0


def test_a_page_of_nothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match="shows runs of Harmonic motion, Static"):
        write_page({}, tmp_path / "page.html")


@pytest.fixture
def page(demo, tmp_path):
    """The page, open."""
    browser = find_browser()
    if browser is None:
        pytest.skip("no Chromium was found; Debian's package is `chromium`")
    opened = Page(browser, (demo[0] / "demo.html").as_uri(), tmp_path / "profile")
    yield opened
    opened.close()


def pictures(page):
    return page.ask("[...document.querySelectorAll('[data-panel]')].map(c => c.toDataURL())")


def move_to(page, frame):
    page.ask(
        f"(() => {{ const s = document.getElementById('time'); s.value = {frame};"
        " s.dispatchEvent(new Event('input')); })()"
    )


def test_particles_move_with_the_slider_and_the_console_is_silent(page):
    names = page.ask("[...document.querySelectorAll('[data-panel]')].map(c => c.dataset.panel)")
    assert names == list(PANELS)
    last = int(page.ask("document.getElementById('time').max"))
    move_to(page, 0)
    start = pictures(page)
    move_to(page, last)
    end = pictures(page)
    assert all(len(picture) > 1000 for picture in start)
    assert all(before != after for before, after in zip(start, end, strict=True))
    move_to(page, 0)
    assert pictures(page) == start
    assert page.ask("document.getElementById('clock').textContent") == "t = 0.25"
    assert page.ask("document.getElementById('play').textContent") == "Play"
    move_to(page, last)
    free = pictures(page)
    page.ask(
        "(() => { const m = document.getElementById('mode'); m.value = 'forecast_50';"
        " m.dispatchEvent(new Event('change')); })()"
    )
    restarted = pictures(page)
    changed = [a != b for a, b in zip(free, restarted, strict=True)]
    assert changed[0] is False
    assert any(changed[1:])
    assert page.complaints == []
    assert all(url.startswith(("file:", "data:")) for url in page.requests)


def test_it_plays_and_pauses(page):
    move_to(page, 0)
    page.ask("document.getElementById('play').click()")
    page.wait("Number(document.getElementById('time').value) > 0")
    assert page.ask("document.getElementById('play').textContent") == "Pause"
    page.ask("document.getElementById('play').click()")
    stopped = page.ask("document.getElementById('time').value")
    page.ask("new Promise(done => setTimeout(done, 100))")
    assert page.ask("document.getElementById('time').value") == stopped
    assert page.complaints == []
