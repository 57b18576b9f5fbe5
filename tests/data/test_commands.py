"""`graphode data list | fetch | verify`, as a user runs them."""

import dataclasses

import pytest

from graphode.cli import main
from graphode.data.catalogue import SOURCES


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.delenv("GRAPHODE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "cache" / "graphode"


@pytest.fixture
def texas_copy(data_root, tmp_path):
    path = tmp_path / "root" / "texas" / "texas.npz"
    path.parent.mkdir(parents=True)
    path.write_bytes((data_root / "texas" / "texas.npz").read_bytes())
    return path


def test_list_says_what_is_where(capsys, texas_copy):
    main(["data", "list", "--data-root", str(texas_copy.parents[1])])
    lines = capsys.readouterr().out.splitlines()
    (embedded,) = (line for line in lines if " cora_linqs " in line)
    (found,) = (line for line in lines if " texas " in line)
    (absent,) = (line for line in lines if " pubmed " in line)
    assert "embedded" in embedded
    assert "root" in found
    assert "0.03 MB" in found
    assert "not here" in absent
    for name in SOURCES:
        assert any(f" {name} " in line for line in lines)


def test_list_says_when_a_set_is_not_complete(capsys, own_cache):
    (own_cache / "cora").mkdir(parents=True)
    (own_cache / "cora" / "ind.cora.x").write_bytes(b"")
    main(["data", "list"])
    assert "cache, 7 of 8 files missing" in capsys.readouterr().out


def test_verify_passes_on_what_is_whole(capsys, texas_copy):
    main(["data", "verify", "--data-root", str(texas_copy.parents[1])])
    out = capsys.readouterr().out
    assert f"whole     {texas_copy}" in out
    assert "cora_linqs.npz" in out
    assert "not here  pubmed/ind.pubmed.x" in out


def test_verify_exits_with_1_and_names_the_damaged_file(capsys, texas_copy):
    content = bytearray(texas_copy.read_bytes())
    content[-1] ^= 1
    texas_copy.write_bytes(content)
    with pytest.raises(SystemExit) as ended:
        main(["data", "verify", "--data-root", str(texas_copy.parents[1])])
    assert ended.value.code == 1
    assert f"damaged   {texas_copy}" in capsys.readouterr().out


def test_verify_of_a_named_set_wants_it_here(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["data", "verify", "texas"])
    assert ended.value.code == 1
    assert "not here  texas/texas.npz" in capsys.readouterr().out


def public(monkeypatch, path) -> None:
    """Let texas's public address be `path`."""
    source = SOURCES["texas"]
    file = dataclasses.replace(source.files[0], urls=(path.as_uri(),))
    monkeypatch.setitem(SOURCES, "texas", dataclasses.replace(source, files=(file,)))


def test_fetch_downloads_once_and_mends_the_cache(capsys, texas_copy, own_cache, monkeypatch):
    public(monkeypatch, texas_copy)
    main(["data", "fetch", "texas", "cora_linqs"])
    assert "texas.npz fetched, 28586 bytes" in capsys.readouterr().out
    cached = own_cache / "texas" / "texas.npz"
    main(["data", "fetch", "texas"])
    assert f"texas.npz is here ({cached})" in capsys.readouterr().out
    cached.write_bytes(b"damaged")
    main(["data", "fetch", "texas"])
    assert cached.read_bytes() == texas_copy.read_bytes()


def test_fetch_does_not_touch_a_damaged_file_of_the_users(capsys, texas_copy, monkeypatch):
    public(monkeypatch, texas_copy)
    texas_copy.write_bytes(b"mine")
    with pytest.raises(SystemExit) as ended:
        main(["data", "fetch", "texas", "--data-root", str(texas_copy.parents[1])])
    assert ended.value.code == 2
    assert texas_copy.read_bytes() == b"mine"
    assert "Delete it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], "Which?"),
        (["nothing"], "Unknown data set 'nothing'"),
        (["amazon_photo"], "saved again"),
    ],
)
def test_fetch_says_what_it_cannot_fetch(capsys, names, said):
    with pytest.raises(SystemExit) as ended:
        main(["data", "fetch", *names])
    assert ended.value.code == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_the_usage_lists_the_commands(capsys):
    main([])
    usage = capsys.readouterr().out
    assert all(f"data {command}" in usage for command in ("list", "fetch", "verify"))
