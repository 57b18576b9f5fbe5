"""What the documentation prints, runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))


def test_there_are_pages():
    assert PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_runs_as_printed(page: Path):
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
    assert blocks, f"{page.name} shows no code"
    script = "\n".join(blocks)
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", script],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr


def test_every_page_is_linked_from_the_readme():
    links = set(re.findall(r"\]\((docs/\w+\.md)", (ROOT / "README.md").read_text()))
    assert {f"docs/{page.name}" for page in PAGES} <= links


def test_every_picture_is_shown_by_a_page_and_every_shown_picture_is_there():
    shown = {
        (page.parent / path).resolve()
        for page in (ROOT / "README.md", ROOT / "benchmarks" / "README.md", *PAGES)
        for path in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text())
    }
    assert shown == set((ROOT / "docs" / "figures").resolve().iterdir())


def test_links_lead_to_files_and_headings_that_are_there():
    for page in (*ROOT.glob("*.md"), ROOT / "benchmarks" / "README.md", *PAGES):
        for path, heading in re.findall(r"\]\((?!http)([^)#]*)#?([^)]*)\)", page.read_text()):
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), f"{page.name} links to {path}"
            if heading:
                titles = re.findall(r"^#+ (.*)$", target.read_text(), flags=re.MULTILINE)
                anchors = [re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles]
                assert heading in anchors, f"{page.name} links to {path}#{heading}"


def test_the_list_of_fields_names_every_field():
    import graphode.fields

    page = (ROOT / "docs" / "graphs.md").read_text()
    classes = {name for name, value in vars(graphode.fields).items() if isinstance(value, type)}
    assert {name for name in classes if f"`{name}" not in page} == set()
