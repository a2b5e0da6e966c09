"""Files that arrive whole or not at all: downloads that resume, and one process at a time.

    path            the file: absent or as it was, until all of the new one is there
    path.part       what has come of it so far; a later attempt goes on from its end
    path.part.tag   the server's name for that version of it (ETag or Last-Modified)
    folder/.lock    held by the process that fetches or converts in that folder

RFC 9110 Sec. 13.1.5 (If-Range) and 14 (Range): the server sends the rest if its file is still the
tagged one, and otherwise all of it, as does a server that knows no ranges.
"""

import contextlib
import errno
import os
import time

from filelock import FileLock
from tqdm import tqdm

TIMEOUT = 30  # seconds without a byte
WAITS = (1, 2, 4, 8)  # seconds before each new attempt, counted from the last progress
PAGE = (b"<!doctype html", b"<html")


@contextlib.contextmanager
def folder_lock(folder):
    """No other process is in here for this folder. If one is killed, the next may enter.

    Who leaves removes the lock's file, then the folder and those made above it, if they are empty.
    Subtle: the file goes while its lock is held. Who waits for it finds that it has no name any
    more, and makes a new one. (On Windows nothing open can go; there filelock removes it later.)
    """
    made = [folder, *(parent for parent in folder.parents if not parent.exists())]
    path = folder / ".lock"
    lock = FileLock(path)
    for n_left in range(999, -1, -1):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire()
            break
        except (FileExistsError, FileNotFoundError):  # another removed the folder meanwhile
            if not n_left:
                raise
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        lock.release()
        with contextlib.suppress(OSError):
            for parent in made:
                parent.rmdir()


def no_follow(path, flags):
    """Open, but never write through a link that someone laid there."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0), 0o666)


@contextlib.contextmanager
def atomic(path):
    """A binary file that replaces `path` when the block ends; after an error nothing is left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with disk_full_named(path), open(part, "wb", opener=no_follow) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:  # Ctrl-C too
        part.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def disk_full_named(path):
    """A full disk becomes an error that says so and names the file."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OSError(error.errno, "need more room on the disk", str(path)) from None


def download(url, path):
    """Fetch `url` to `path`, or what `path.part` lacks of it; with a bar on a terminal.

    Raises OSError if the server refuses, is not there, sends a web page, or breaks off again and
    again without sending more than before, and if the disk is full.
    """
    import requests  # here: a tenth of a second at every start, needed for a download only

    broken = requests.ConnectionError, requests.exceptions.ChunkedEncodingError, EOFError
    part = path.with_name(f"{path.name}.part")
    waits, most = iter(WAITS), 0
    with new_session() as session:
        while True:
            try:
                fetch(session, url, part)
                break
            except broken as error:
                came = part.stat().st_size if part.exists() else None
                if came is not None and came > most:
                    waits, most = iter(WAITS), came
                wait = next(waits, None) if came is not None else None  # the session has tried
                if wait is None:
                    if came == 0:
                        remove(part)
                    raise OSError(f"need all of {url}, got {came or 0} bytes; run it again to go "
                                  f"on, or let GPT2_BASE_URL name a mirror: {error}") from None
                time.sleep(wait)
    os.replace(part, path)
    tag_path(part).unlink(missing_ok=True)


def new_session():
    """Requests that are repeated, with back-off, after time-outs and the statuses of a busy server.

    A server that is not there at all is asked twice only.
    """
    import requests  # as above
    from urllib3.util import Retry

    session = requests.Session()
    session.headers["Accept-Encoding"] = "identity"  # lengths and ranges count the file's own bytes
    retry = Retry(total=len(WAITS), connect=1, backoff_factor=WAITS[0] / 2, raise_on_status=False,
                  status_forcelist=(429, 500, 502, 503, 504), respect_retry_after_header=False)
    for scheme in ("http://", "https://"):
        session.mount(scheme, requests.adapters.HTTPAdapter(max_retries=retry))
    return session


def tag_path(part):
    """Where the tag of a partial file is kept."""
    return part.with_name(part.name + ".tag")


def remove(part):
    """Remove a part that is of no use, and its tag."""
    for path in (part, tag_path(part)):
        path.unlink(missing_ok=True)


def resume_headers(part):
    """What asks for the rest of a partial file; nothing if there is none or its tag is unknown."""
    if not part.is_file() or not tag_path(part).is_file() or part.stat().st_size == 0:
        return {}
    tag = tag_path(part).read_text(encoding="latin-1")
    if not tag or not (tag.isascii() and tag.isprintable()):
        return {}
    return {"Range": f"bytes={part.stat().st_size}-", "If-Range": tag}


def fetch(session, url, part):
    """One attempt: all of the file, or the rest of it, into `part`."""
    headers = resume_headers(part)
    n_past = part.stat().st_size if headers else 0
    with session.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        status, given = response.status_code, response.headers.get("Content-Range", "")
        if status == 416 and headers and given == f"bytes */{n_past}":
            return  # all had come already
        is_rest = status == 206 and given.startswith(f"bytes {n_past}-")
        if headers and status in (206, 416) and not is_rest:
            part.unlink()  # of no use with this server: once more, from the start
            return fetch(session, url, part)
        response.raise_for_status()
        if status != 206:
            n_past = 0  # no ranges here, or another version: this is all of it
            part.unlink(missing_ok=True)  # first: old data must never have a new tag
        elif not headers:
            raise OSError(f"need all of {url}, got a part that was not asked for, {given}")
        with disk_full_named(part):
            receive(response, part, n_past)


def receive(response, part, n_past):
    """Write what comes after the n_past bytes that `part` keeps."""
    page = OSError(f"need data from {response.url}, got a web page (a login? a proxy?)")
    if "text/html" in response.headers.get("Content-Type", ""):
        raise page
    if n_past == 0:
        with open(tag_path(part), "w", encoding="latin-1", opener=no_follow) as file:
            file.write(tag_in(response))
    n_more = response.raw.length_remaining or 0
    with open(part, "ab", opener=no_follow) as file, \
            tqdm(total=n_past + n_more or None, initial=n_past, unit="B", unit_scale=True,
                 desc=part.name.removesuffix(".part"), disable=None) as bar:
        for chunk in response.iter_content(2**14):
            if file.tell() == 0 and chunk.lstrip().lower().startswith(PAGE):
                file.close()  # Windows removes no open file
                remove(part)
                raise page
            file.write(chunk)
            bar.update(len(chunk))
        n_total = response.headers.get("Content-Range", "").rpartition("/")[2]
        if n_total.isdecimal() and int(n_total) != file.tell():  # a range of several
            raise EOFError(f"{file.tell()} of {n_total} bytes came")


def tag_in(response):
    """What tells this version of a file from others: a strong ETag, else Last-Modified, else ""."""
    tag = response.headers.get("ETag", "W/")
    return response.headers.get("Last-Modified", "") if tag.startswith("W/") else tag
