"""Files are found in their order, trusted by checksum, and downloaded whole or not at all."""

import dataclasses
import hashlib
import http.server
import threading
from pathlib import Path

import pytest

from graphode.data.catalogue import SOURCES, DataFile, DataSource
from graphode.data.store import (
    DamagedFileError,
    MissingFileError,
    cache_folder,
    fetch_file,
    find_file,
    read_file,
)

CONTENT = bytes(range(256)) * 400  # more than one chunk


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.delenv("GRAPHODE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "graphode"


def source_with(*urls: str) -> DataSource:
    file = DataFile("numbers.bin", len(CONTENT), hashlib.sha256(CONTENT).hexdigest(), urls)
    return DataSource("numbers", "for tests", (file,), "none", "nobody", note="Ask nobody.")


def put(folder: Path, content: bytes = CONTENT) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "numbers.bin").write_bytes(content)
    return folder / "numbers.bin"


def left_over(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_root_that_is_not_there_is_refused_by_its_name(tmp_path):
    source = source_with()
    with pytest.raises(NotADirectoryError, match=r"no folder .*nowhere.*--data-root"):
        find_file(source, source.files[0], tmp_path / "nowhere")


def test_a_file_is_found_in_the_order_root_variable_cache(tmp_path, own_cache, monkeypatch):
    source = source_with()
    monkeypatch.setenv("GRAPHODE_DATA", str(tmp_path / "variable"))
    (tmp_path / "root").mkdir()
    assert find_file(source, source.files[0], tmp_path / "root") is None
    paths = {
        "cache": put(own_cache / "numbers"),
        "GRAPHODE_DATA": put(tmp_path / "variable" / "numbers"),
        "root": put(tmp_path / "root" / "numbers"),
    }
    for place, path in reversed(paths.items()):
        assert find_file(source, source.files[0], tmp_path / "root") == (place, path)
        path.unlink()
    flat = put(tmp_path / "root")
    assert find_file(source, source.files[0], tmp_path / "root") == ("root", flat)
    assert read_file(source, "numbers.bin", tmp_path / "root") == CONTENT


def test_the_cache_follows_the_specification(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cache_folder() == tmp_path / ".cache" / "graphode"


def test_a_damaged_file_is_not_passed_over(tmp_path, own_cache):
    put(own_cache / "numbers")
    damaged = put(tmp_path / "root" / "numbers", CONTENT[:-1])
    with pytest.raises(DamagedFileError) as refused:
        read_file(source_with(), "numbers.bin", tmp_path / "root")
    message = str(refused.value)
    for part in (
        str(damaged),
        hashlib.sha256(CONTENT).hexdigest(),
        hashlib.sha256(CONTENT[:-1]).hexdigest(),
        f"{len(CONTENT) - 1} bytes, not {len(CONTENT)}",
        "Ask nobody.",
    ):
        assert part in message


def test_a_download_lands_in_the_cache_and_is_used_again(tmp_path, own_cache):
    origin = put(tmp_path / "public")
    source = source_with(origin.as_uri())
    assert read_file(source, "numbers.bin") == CONTENT
    assert left_over(own_cache) == [own_cache / "numbers" / "numbers.bin"]
    origin.unlink()
    assert read_file(source, "numbers.bin") == CONTENT


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT + b"!", b"", b"?" * len(CONTENT)])
def test_a_wrong_download_leaves_nothing(tmp_path, own_cache, content):
    origin = put(tmp_path / "public", content)
    with pytest.raises(MissingFileError, match=r"numbers\.bin of numbers.*its sha256 must be"):
        read_file(source_with(origin.as_uri()), "numbers.bin")
    assert left_over(own_cache) == []


def test_the_second_address_is_tried_when_the_first_fails(tmp_path):
    good, bad = put(tmp_path / "good"), put(tmp_path / "bad", b"error page")
    source = source_with((tmp_path / "nowhere").as_uri(), bad.as_uri(), good.as_uri())
    assert read_file(source, "numbers.bin") == CONTENT


def test_offline_the_error_says_where_to_put_the_file(own_cache):
    source = source_with("http://127.0.0.1:9/numbers.bin")  # nobody listens on "discard"
    with pytest.raises(MissingFileError) as missing:
        read_file(source, "numbers.bin")
    message = str(missing.value)
    for part in ("127.0.0.1:9", str(own_cache / "numbers" / "numbers.bin"), "--data-root"):
        assert part in message
    assert hashlib.sha256(CONTENT).hexdigest() in message


def test_a_file_without_an_address_says_how_to_come_by_it():
    with pytest.raises(MissingFileError, match=r"numbers/numbers\.bin.*Ask nobody"):
        read_file(source_with(), "numbers.bin")
    with pytest.raises(MissingFileError, match="Ask nobody"):
        fetch_file(source_with(), source_with().files[0])


def test_nothing_is_downloaded_when_it_is_not_allowed(tmp_path):
    origin = put(tmp_path / "public")
    with pytest.raises(MissingFileError, match="`graphode data fetch numbers` downloads it"):
        read_file(source_with(origin.as_uri()), "numbers.bin", allow_download=False)


class Server(http.server.BaseHTTPRequestHandler):
    """/whole answers in full, /broken stops half-way, anything else is 404."""

    def do_GET(self):
        if self.path not in ("/whole", "/broken"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT if self.path == "/whole" else CONTENT[: len(CONTENT) // 2])

    def log_message(self, format, *args):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


def test_a_file_comes_over_http(server):
    assert read_file(source_with(f"{server}/whole"), "numbers.bin") == CONTENT


@pytest.mark.parametrize(("path", "said"), [("broken", "sha256|broke off"), ("no", "404")])
def test_a_broken_answer_is_refused(server, own_cache, path, said):
    with pytest.raises(MissingFileError, match=said):
        read_file(source_with(f"{server}/{path}"), "numbers.bin")
    assert left_over(own_cache) == []


def test_a_cache_that_cannot_be_written_is_an_error(tmp_path, own_cache):
    origin = put(tmp_path / "public")
    own_cache.parent.mkdir()
    own_cache.write_text("a file where the folder should be")
    with pytest.raises(OSError, match="graphode"):
        read_file(source_with(origin.as_uri()), "numbers.bin")


def test_the_catalogue_is_complete():
    for source in SOURCES.values():
        assert source.citation
        assert source.licence
        for file in source.files:
            assert len(bytes.fromhex(file.sha256)) == 32
            assert file.size > 0
            assert file.urls or source.embedded or source.note
            for url in file.urls:
                assert url.startswith("https://")
    assert dataclasses.asdict(SOURCES["cora"])["name"] == "cora"
    with pytest.raises(ValueError, match=r"cora has no file 'x'. It has: ind\.cora\.x"):
        SOURCES["cora"].file("x")


def test_the_catalogue_describes_the_data_at_hand(data_root):
    for source in SOURCES.values():
        for file in source.files:
            assert find_file(source, file, data_root) is not None
            read_file(source, file.name, data_root, allow_download=False)
