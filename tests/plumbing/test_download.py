"""Downloads from a real server that misbehaves on purpose, and real processes that are killed."""

import contextlib
import errno
import os
import random
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import lib.checkpoints.download as module
from lib.checkpoints.files import atomic, download, folder_lock

ROOT = Path(__file__).parents[2]
OLD, NEW = (random.Random(seed).randbytes(300_000) for seed in (0, 1))
PAGE = b"  <!DOCTYPE html><html>please log in</html>"


class Handler(BaseHTTPRequestHandler):
    """Serves `server.data` with ranges; each request takes the next of `server.faults`, if any."""

    def log_message(self, *args):
        pass

    def do_GET(self):
        server = self.server
        server.requests.append(self.headers.get("Range"))
        fault = server.faults.pop(0) if server.faults else None
        if self.path == "/elsewhere":
            return self.reply(302, {"Location": "/data", "Content-Length": 0}, b"")
        if isinstance(fault, int):
            return self.send_error(fault)
        if fault == "hang":
            return time.sleep(1)
        if fault == "drop":
            return None
        data, tag, start = server.data, server.tag, 0
        wants, version = self.headers.get("Range"), self.headers.get("If-Range")
        headers, status = {"Content-Type": "application/octet-stream"} | server.tags, 200
        if wants and version in (tag, server.tags.get("Last-Modified")) and fault != "no ranges":
            start = int(wants.removeprefix("bytes=").rstrip("-"))
            if fault == "wrong range":
                start = 0
            if start >= len(data):
                return self.reply(416, {"Content-Range": f"bytes */{len(data)}"}, b"")
            end = min(start + 100_000, len(data)) if fault == "piece" else len(data)
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
            data, status = data[:end], 206
        if fault == "unasked part":
            status, headers["Content-Range"] = 206, f"bytes 0-99/{len(data)}"
        body = data[start:]
        headers["Content-Length"] = len(body) + 1000 * (fault == "long length")
        if fault == "page":
            body, headers["Content-Type"], headers["Content-Length"] = PAGE, "text/html", len(PAGE)
        if fault == "page as data":
            body, headers["Content-Length"] = PAGE, len(PAGE)
        if fault == "no length":
            del headers["Content-Length"]
        if fault in ("cut", "stall"):
            body = body[: len(body) // 2]
        if fault == "nothing":
            body = b""
        self.reply(status, headers, body)
        if fault == "stall":
            time.sleep(1)
        if fault == "slow":
            time.sleep(0.2)

    def reply(self, status, headers, body):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()
        half = len(body) // 2
        try:
            self.wfile.write(body[:half])
            if self.server.pause:
                self.wfile.flush()
                time.sleep(self.server.pause)
            self.wfile.write(body[half:])
        except OSError:
            pass  # the client was killed


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(module, "WAITS", (0.01, 0.01, 0.01))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.data, server.tag, server.faults, server.requests, server.pause = OLD, '"v1"', [], [], 0
    server.tags = {"ETag": server.tag}
    server.url = f"http://127.0.0.1:{server.server_port}/data"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data"


def left(path):
    return sorted(file.name for file in path.parent.iterdir())


# ---- what is overcome

OVERCOME = {
    "no fault": [],
    "cut once": ["cut"],
    "cut three times": ["cut"] * 3,
    "cut four times, each with progress": ["cut"] * 4,
    "stalls in the middle": ["stall"],
    "hangs before the answer": ["hang"],
    "drops the connection": ["drop"],
    "500 once": [500], "502 twice": [502, 502], "503": [503], "504": [504], "429": [429],
    "cut, then knows no ranges": ["cut", "no ranges"],
    "cut, then another range": ["cut", "wrong range"],
    "cut, then only pieces": ["cut", "piece", "piece"],
    "cut, then 503": ["cut", 503],
    "nothing at first": ["nothing"],
    "length too large": ["long length"],
    "no length": ["no length"],
}


def shorten(monkeypatch, faults):
    """No long wait where the server makes the client wait; elsewhere a busy machine may be slow."""
    if {"hang", "stall"} & set(faults):
        monkeypatch.setattr(module, "TIMEOUT", 0.3)


@pytest.mark.parametrize("fault", OVERCOME)
def test_a_fault_that_passes_is_overcome(server, path, fault, monkeypatch):
    server.faults = list(OVERCOME[fault])
    shorten(monkeypatch, server.faults)
    download(server.url, path)
    assert path.read_bytes() == OLD and left(path) == ["data"] and server.faults == []


def test_a_cut_download_asks_for_the_rest_only(server, path):
    server.faults = ["cut"]
    download(server.url, path)
    first, second = server.requests
    assert first is None and int(second[6:-1]) > 80_000


def test_redirects_are_followed(server, path):
    download(server.url.replace("data", "elsewhere"), path)
    assert path.read_bytes() == OLD


@pytest.mark.parametrize("tags", [{"ETag": '"v1"'},
                                  {"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}])
def test_a_later_process_goes_on_where_the_former_stopped(server, path, tags):
    server.tags, server.faults = tags, ["cut", 404]
    with pytest.raises(OSError):
        download(server.url, path)
    assert left(path) == ["data.part", "data.part.tag"]
    server.requests.clear()
    download(server.url, path)
    assert path.read_bytes() == OLD and left(path) == ["data"]
    assert server.requests[0].startswith("bytes=") and server.requests[0] != "bytes=0-"


def test_a_file_that_changed_meanwhile_is_fetched_anew(server, path):
    server.faults = ["cut", 404]
    with pytest.raises(OSError):
        download(server.url, path)
    server.data, server.tag, server.tags = NEW, '"v2"', {"ETag": '"v2"'}
    download(server.url, path)
    assert path.read_bytes() == NEW and left(path) == ["data"]


@pytest.mark.parametrize("tags", [{}, {"ETag": 'W/"weak"'}])
def test_without_a_version_nothing_is_resumed(server, path, tags):
    server.tags, server.faults = tags, ["cut"]
    download(server.url, path)
    assert path.read_bytes() == OLD and server.requests == [None, None]


@pytest.mark.parametrize("tag", [b"", b"\xff\xfe", b"\"v1\"\r\nX-Evil: 1", None])
def test_a_part_of_unknown_version_is_not_gone_on_from(server, path, tag):
    path.with_name("data.part").write_bytes(NEW[:1000])
    if tag is not None:
        path.with_name("data.part.tag").write_bytes(tag)
    download(server.url, path)
    assert path.read_bytes() == OLD and server.requests == [None]


@pytest.mark.parametrize("part", [OLD, OLD + b"x"])
def test_a_part_that_is_whole_or_too_long_ends_well(server, path, part):
    path.with_name("data.part").write_bytes(part)
    path.with_name("data.part.tag").write_text('"v1"')
    download(server.url, path)
    assert path.read_bytes() == OLD and left(path) == ["data"]


# ---- what is refused

REFUSED = {
    "404": ([404], "404"),
    "403": ([403], "403"),
    "500 for ever": ([500] * 9, "500"),
    "hangs for ever": (["hang"] * 9, "timed out"),
    "drops for ever": (["drop"] * 9, "aborted|disconnected"),
    "a web page": (["page"], "web page"),
    "a web page that calls itself data": (["page as data"], "web page"),
    "nothing for ever": (["nothing"] * 9, "got 0 bytes"),
    "a part that nobody asked for": (["unasked part"], "not asked for"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_a_fault_that_stays_is_one_clear_error_and_leaves_nothing(server, path, fault, monkeypatch):
    server.faults, words = list(REFUSED[fault][0]), REFUSED[fault][1]
    shorten(monkeypatch, server.faults)
    with pytest.raises(OSError, match=words):
        download(server.url, path)
    assert left(path) == []


def test_cuts_without_progress_end(server, path):
    server.tags, server.faults = {}, ["cut"] * 9  # nothing to resume by: each attempt starts anew
    with pytest.raises(OSError, match="need all of"):
        download(server.url, path)
    assert len(server.faults) == 5 and "data" not in left(path)


def test_no_server_is_an_error_within_seconds(path):
    start = time.perf_counter()
    with pytest.raises(OSError):
        download("http://127.0.0.1:9/data", path)
    assert time.perf_counter() - start < 5 and left(path) == []


@pytest.mark.parametrize("url", ["nonsense", "ftp://127.0.0.1/data", "http://",
                                 "file:///etc/passwd"])
def test_an_address_of_another_kind_is_refused(path, url):
    with pytest.raises(OSError):
        download(url, path)
    assert left(path) == []


# ---- disks and links

def test_a_full_disk_is_named_and_the_part_can_be_gone_on_from(server, path, monkeypatch):
    """A real file system of 128 KiB."""
    small = path.parent / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", small],
                             capture_output=True).returncode == 0
    if not mounted:
        pytest.skip("mounting needs root")
    try:
        with pytest.raises(OSError, match="need more room on the disk") as caught:
            download(server.url, small / "data")
        assert caught.value.errno == errno.ENOSPC and not (small / "data").exists()
        subprocess.run(["mount", "-o", "remount,size=1m", small], check=True)
        download(server.url, small / "data")
        assert (small / "data").read_bytes() == OLD and server.requests[-1] is not None
        with pytest.raises(OSError, match="need more room"), atomic(small / "big") as file:
            file.write(bytes(2**20))
        assert [file.name for file in small.iterdir()] == ["data"]
    finally:
        subprocess.run(["umount", small], check=True)


def test_a_write_that_finds_no_room_is_named(tmp_path):
    with pytest.raises(OSError, match="need more room on the disk"), atomic(tmp_path / "file"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["data.part", "data.part.tag"])
def test_nothing_is_written_through_a_link(server, path, name):
    victim = path.parent / "victim"
    victim.write_bytes(b"precious")
    path.with_name(name).symlink_to(victim)
    try:
        download(server.url, path)
    except OSError:
        pass
    assert victim.read_bytes() == b"precious"


def test_a_link_in_the_place_of_a_file_is_replaced_not_followed(server, path):
    victim = path.parent / "victim"
    victim.write_bytes(b"precious")
    path.symlink_to(victim)
    download(server.url, path)
    assert victim.read_bytes() == b"precious" and path.read_bytes() == OLD and not path.is_symlink()


# ---- whole or not at all

@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_file_appears_whole_or_not_at_all(path, error):
    path.write_bytes(b"old")
    with pytest.raises(error), atomic(path) as file:
        file.write(b"ne")
        file.flush()
        assert path.read_bytes() == b"old"
        raise error
    assert path.read_bytes() == b"old" and left(path) == ["data"]
    with atomic(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new" and left(path) == ["data"]


# Whoever started these tests may ignore Ctrl-C, as a background job of a shell does; a child would
# inherit that.
SIGNALS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"


def start(code, *args):
    """A process that runs the code in the repository, and says a line when it is in its midst."""
    code = SIGNALS + code
    return subprocess.Popen([sys.executable, "-c", code, *map(str, args)], cwd=ROOT, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


DOWNLOAD = """
import sys
from pathlib import Path
from lib.checkpoints.download import download, folder_lock
path = Path(sys.argv[2])
with folder_lock(path.parent):
    if not path.exists():
        print("downloads", flush=True)
        download(sys.argv[1], path)
"""


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_killed_download_leaves_the_old_state_and_is_gone_on_from(server, path, sign):
    path = path.parent / "folder" / "data"
    server.pause = 5
    process = start(DOWNLOAD, server.url, path)
    part = path.with_name("data.part")
    deadline = time.monotonic() + 30
    while not (part.exists() and part.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(sign)
    process.communicate(timeout=30)
    assert not path.exists() and part.stat().st_size > 0
    server.pause = 0
    with folder_lock(path.parent):  # the lock of the dead holds nobody up
        download(server.url, path)
    assert path.read_bytes() == OLD and server.requests[-1] is not None
    assert left(path) == ["data"]


def test_two_processes_at_once_fetch_one_good_file_once(server, path):
    path = path.parent / "new" / "folder" / "data"
    server.pause = 0.5
    processes = [start(DOWNLOAD, server.url, path) for _ in range(3)]
    said = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], said
    assert sorted(out for out, err in said) == ["", "", "downloads\n"]
    assert path.read_bytes() == OLD and len(server.requests) == 1 and left(path) == ["data"]


WRITE = """
import sys
from pathlib import Path
from lib.checkpoints.files import atomic
for i in range(10**6):
    with atomic(Path(sys.argv[1])) as file:
        for _ in range(50):
            file.write(bytes([i % 256]) * 1000)
            file.flush()
    if i == 0:
        print("first", flush=True)
"""


@pytest.mark.parametrize("seed", range(4))
def test_kill_at_any_moment_leaves_a_whole_file(path, seed):
    process = start(WRITE, path)
    process.stdout.readline()
    time.sleep(random.Random(seed).random() / 10)
    process.kill()
    process.communicate()
    data = path.read_bytes()
    assert len(data) == 50_000 and len(set(data)) == 1
    assert all(name == "data" or name.endswith(".part") for name in left(path))


def test_folders_that_were_made_for_nothing_are_removed(tmp_path):
    with pytest.raises(KeyboardInterrupt), folder_lock(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b" / ".lock").exists()
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "file").touch()
    with folder_lock(tmp_path / "old"):
        pass
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "old", tmp_path / "old" / "file"]


def test_no_empty_folder_stays_if_another_comes_while_its_maker_leaves(tmp_path, monkeypatch):
    """Between the removal of the lock and that of the folder, which then is not empty."""
    rmdir, another = Path.rmdir, contextlib.ExitStack()

    def come_and_rmdir(path):
        monkeypatch.undo()
        another.enter_context(folder_lock(tmp_path / "a"))
        rmdir(path)

    with folder_lock(tmp_path / "a"):
        monkeypatch.setattr(Path, "rmdir", come_and_rmdir)
    assert list(tmp_path.rglob("*")) == [tmp_path / "a", tmp_path / "a" / ".lock"]
    another.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("nowhere"), Path.touch])
def test_a_folder_that_cannot_be_is_an_error_at_once(tmp_path, make):
    make(tmp_path / "a")
    start = time.perf_counter()
    with pytest.raises(OSError), folder_lock(tmp_path / "a"):
        pass
    assert time.perf_counter() - start < 5


TAKE_TURNS = """
import sys, time
from pathlib import Path
from lib.checkpoints.download import folder_lock
log = Path(sys.argv[2])
for _ in range(100):
    with folder_lock(Path(sys.argv[1])):
        for word in ("in", "out"):
            with open(log, "a") as file:
                file.write(word + " ")
"""


def test_only_one_process_is_inside_although_lock_and_folder_come_and_go(tmp_path):
    processes = [start(TAKE_TURNS, tmp_path / "a" / "b", tmp_path / "log") for _ in range(3)]
    said = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], said
    assert (tmp_path / "log").read_text() == "in out " * 300
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["log"]


# ---- Windows, where an open file stays where it is

@pytest.fixture
def open_files_stay(monkeypatch):
    """No file can be removed or replaced while this process has it open, as on Windows."""
    def check(path):
        held = {os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}
        if os.path.realpath(path) in held:
            raise PermissionError(errno.EACCES, "The process cannot access the file", str(path))

    def guarded(function):
        def call(path, *args, **kwargs):
            for name in (path, *args[:1]):
                check(name)
            return function(path, *args, **kwargs)
        return call

    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    monkeypatch.delattr(os, "O_NOFOLLOW", raising=False)
    for name in ("unlink", "remove", "replace", "rename"):
        monkeypatch.setattr(os, name, guarded(getattr(os, name)))


@pytest.mark.parametrize("fault", ["no fault", "cut once", "cut, then knows no ranges",
                                   "nothing at first"])
def test_no_file_is_removed_or_replaced_while_it_is_open(open_files_stay, server, path, fault):
    server.faults = list(OVERCOME[fault])
    download(server.url, path)
    with atomic(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new" and left(path) == ["data"]
    with pytest.raises(KeyboardInterrupt), atomic(path) as file:
        raise KeyboardInterrupt
    assert left(path) == ["data"]


def test_a_lock_that_cannot_be_removed_while_it_is_held_holds_nobody_up(open_files_stay, tmp_path):
    """On Windows filelock removes it, once it is closed; here it stays."""
    for _ in range(2):
        with folder_lock(tmp_path / "a"):
            pass
    assert [file.name for file in (tmp_path / "a").iterdir()] == [".lock"]


def test_a_page_is_refused_and_its_part_removed_although_it_was_open(open_files_stay, server, path):
    server.faults = ["page as data"]
    with pytest.raises(OSError, match="web page"):
        download(server.url, path)
    assert left(path) == []


def test_a_file_that_another_process_holds_stays_and_nothing_else(tmp_path, monkeypatch):
    def replace(source, target):
        raise PermissionError(errno.EACCES, "The process cannot access the file", str(target))

    (tmp_path / "x").write_bytes(b"old")
    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(PermissionError), atomic(tmp_path / "x") as file:
        file.write(b"new")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("x", b"old")]
