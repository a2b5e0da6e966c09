"""Test downloads from a server that misbehaves on purpose, and processes that are killed."""

import errno
import io
import os
import random
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest import mock

import pytest

import lib.checkpoints.download as module
from lib.checkpoints import files
from lib.checkpoints.download import download
from lib.checkpoints.files import atomic, folder_lock
from tests.commands import until

ROOT = Path(__file__).parents[2]
DATA = random.Random(0).randbytes(300_000)


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
        if fault == "no ranges":
            return self.send(200, "application/data", DATA, len(DATA))
        if start >= len(DATA):
            return self.send_error(416)
        if fault == "page":
            page = b"<html>please log in</html>"
            return self.send(206, "text/html", page, len(page))
        body = DATA[start:]
        n_sent = {"cut": len(body) // 2, "nothing": 0}.get(fault, len(body))
        self.send(206, "application/data", body, n_sent)

    def send(self, status, content_type, body, n_sent):
        """Announce the whole body and send n_sent bytes of it, with a pause in the middle."""
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
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
    """Return the path of a download, in an empty folder."""
    return tmp_path / "data"


def names_beside(path):
    """Return the names of the files in the folder of a path."""
    return sorted(file.name for file in path.parent.iterdir())


@pytest.mark.parametrize("faults", [
    [], ["cut"], ["cut", "cut", "cut"], [503], [429, 500], ["cut", 503], ["nothing"],
    ["cut", "no ranges"]], ids=str)
def test_a_fault_that_passes_is_overcome(server, path, faults):
    server.faults = list(faults)
    download(server.url, path)
    assert path.read_bytes() == DATA and names_beside(path) == ["data"] and server.faults == []


@pytest.mark.parametrize("faults, words", [
    ([404], "404"), ([500] * 9, "500"), (["page"], "web page"), (["nothing"] * 9, "after 0 bytes")])
def test_a_fault_that_stays_is_one_clear_error_and_leaves_nothing(server, path, faults, words):
    server.faults = list(faults)
    with pytest.raises(OSError, match=words):
        download(server.url, path)
    assert not [file for file in path.parent.iterdir() if file.stat().st_size]


def test_a_server_that_falls_silent_is_left(server, path, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT", 0.1)
    server.pause = 1
    with pytest.raises(OSError, match="run it again to resume"):
        download(server.url, path)
    assert names_beside(path) == ["data.part"]


def test_a_file_that_is_shorter_than_the_server_said_is_not_whole(path, monkeypatch):
    """HTTP libraries do not have to count."""
    response = mock.MagicMock(status_code=206, headers={"Content-Length": "9"})
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


DOWNLOAD = """
import sys
from pathlib import Path
from lib.checkpoints.download import download
from lib.checkpoints.files import folder_lock
path = Path(sys.argv[2])
with folder_lock(path.parent):
    download(sys.argv[1], path)
"""


def test_a_killed_download_leaves_no_file_and_holds_no_lock_and_resumes(server, path):
    server.pause = 5
    path = path.parent / "folder" / "data"
    part = path.with_name("data.part")
    process = subprocess.Popen([sys.executable, "-c", DOWNLOAD, server.url, path], cwd=ROOT)
    until(lambda: part.exists() and part.stat().st_size)
    process.kill()
    process.wait(timeout=30)
    assert not path.exists() and part.stat().st_size > 0
    server.pause = 0
    with folder_lock(path.parent):
        download(server.url, path)
    assert path.read_bytes() == DATA and names_beside(path) == ["data"]
    assert server.requests[-1] != "bytes=0-"


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
        for writer in (module, files):  # their `open` is Python's, which they do not define
            disk.setattr(writer, "open", FileOnSmallDisk, raising=False)
        with pytest.raises(OSError, match="No space left on device.*data") as caught:
            download(server.url, path)
        assert caught.value.errno == errno.ENOSPC and names_beside(path) == ["data.part"]
        big = path.with_name("big")
        with pytest.raises(OSError, match="No space left.*big"), atomic(big) as file:
            file.write(bytes(2**20))
        assert names_beside(path) == ["data.part"]
    download(server.url, path)
    assert path.read_bytes() == DATA and names_beside(path) == ["data"]
    assert server.requests[-1] == f"bytes={FileOnSmallDisk.SPACE}-"


def test_a_file_appears_whole_or_not_at_all(path):
    path.write_bytes(b"old")
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), atomic(path) as file:
            file.write(b"new")
            file.flush()
            raise error
        assert path.read_bytes() == b"old" and names_beside(path) == ["data"]
    with atomic(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new" and names_beside(path) == ["data"]
