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

from tqdm import tqdm

try:
    import fcntl
except ImportError:  # Windows, where nothing is locked, and parts are each process's own
    fcntl = None

TIMEOUT = 30  # seconds without a byte
WAITS = (1, 2, 4, 8)  # seconds before each new attempt, counted from the last progress
PAGE = (b"<!doctype html", b"<html")


@contextlib.contextmanager
def alone(folder):
    """No other process is in here for this folder. The system lets in the next if one is killed.

    Subtle: who leaves removes the lock and, if it is empty, the folder, with those above it that it
    made. Whoever waited then holds a file that is not there any more, and starts again. An empty
    folder goes although another made it: that one may have left while this one was coming.
    """
    made, path = [folder], folder / ".lock"
    for n_left in range(999, -1, -1):
        made += [parent for parent in folder.parents if not parent.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = locked(path)
            break
        except (FileExistsError, FileNotFoundError):  # removed by another between two steps
            if not n_left:
                raise
    try:
        yield
    finally:
        if not fcntl:
            file.close()  # Windows removes no open file
        with contextlib.suppress(OSError):
            path.unlink()
            for parent in made:
                parent.rmdir()
        file.close()


def locked(path):
    """The file at `path`, open and locked; FileNotFoundError if it goes while this one waits."""
    file = open(path, "ab", opener=no_follow)
    if fcntl:
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink == 0:
            file.close()
            raise FileNotFoundError(path)
    return file


def no_follow(path, flags):
    """Open, but never write through a link that someone laid there."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0), 0o666)


@contextlib.contextmanager
def atomic(path):
    """A binary file that takes the place of `path` when the block ends; it vanishes on errors."""
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


def download(url, path, quiet=False):
    """Fetch `url` to `path`, with a progress bar on a terminal.

    Parameters
    ----------
    url : str
    path : Path
        Nothing is there before all has come; `path.part` may be, and is gone on from.
    quiet : bool
        No bar even on a terminal.

    Raises
    ------
    OSError
        If the server refuses, is not there, sends a web page, breaks off again and again without
        sending more than before, or the disk is full.
    """
    import requests  # here: a tenth of a second at every start, needed for a download only

    part = path.with_name(f"{path.name}.part" if fcntl else f"{path.name}.{os.getpid()}.part")
    waits, most = iter(WAITS), 0
    with new_session() as session:
        while True:
            try:
                fetch(session, url, part, quiet)
                break
            except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError) as error:
                came = part.stat().st_size if part.exists() else None
                if came is not None and came > most:
                    waits, most = iter(WAITS), came
                wait = next(waits, None) if came is not None else None  # the session has tried
                if wait is None:
                    if came == 0:
                        remove(part)
                    raise OSError(f"need all of {url}, got {came or 0} bytes: {error}") from None
                time.sleep(wait)
    os.replace(part, path)
    tag_of(part).unlink(missing_ok=True)


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


def tag_of(part):
    """Where the version of a partial file is kept."""
    return part.with_name(part.name + ".tag")


def remove(part):
    """Remove a part of which nothing is of use."""
    for path in (part, tag_of(part)):
        path.unlink(missing_ok=True)


def resume_headers(part):
    """What asks for the rest of a partial file; nothing if there is none or its version unknown."""
    if not part.is_file() or not tag_of(part).is_file() or part.stat().st_size == 0:
        return {}
    tag = tag_of(part).read_text(encoding="latin-1")
    if not tag or not (tag.isascii() and tag.isprintable()):
        return {}
    return {"Range": f"bytes={part.stat().st_size}-", "If-Range": tag}


def fetch(session, url, part, quiet):
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
            return fetch(session, url, part, quiet)
        response.raise_for_status()
        if status != 206:
            n_past = 0  # no ranges here, or another version: this is all of it
            part.unlink(missing_ok=True)  # first: a new tag must never stand beside old data
        elif not headers:
            raise OSError(f"need all of {url}, got a part that was not asked for, {given}")
        with disk_full_named(part):
            receive(response, part, n_past, quiet)


def receive(response, part, n_past, quiet):
    """Write what comes behind the n_past bytes that `part` keeps."""
    if "text/html" in response.headers.get("Content-Type", ""):
        raise web_page(response)
    if n_past == 0:
        with open(tag_of(part), "w", encoding="latin-1", opener=no_follow) as file:
            file.write(version(response))
    n_total = n_past + (response.raw.length_remaining or 0)
    with open(part, "ab", opener=no_follow) as file, \
            tqdm(total=n_total or None, initial=n_past, unit="B", unit_scale=True,
                 desc=part.name.removesuffix(".part"), disable=True if quiet else None) as bar:
        for chunk in response.iter_content(2**14):
            if file.tell() == 0 and chunk.lstrip().lower().startswith(PAGE):
                file.close()  # as in alone
                remove(part)
                raise web_page(response)
            file.write(chunk)
            bar.update(len(chunk))
        check_length(response, file.tell())


def version(response):
    """What tells this version of a file from others: a strong ETag, else Last-Modified, else ""."""
    tag = response.headers.get("ETag", "W/")
    return response.headers.get("Last-Modified", "") if tag.startswith("W/") else tag


def web_page(response):
    """The error that names a page where data should be."""
    return OSError(f"need data from {response.url}, got a web page (a login? a proxy?)")


def check_length(response, n_bytes):
    """The server's own count; requests has compared the length of this response."""
    import requests  # as above

    n_total = response.headers.get("Content-Range", "").rpartition("/")[2]
    if n_total.isdecimal() and int(n_total) != n_bytes:
        raise requests.ConnectionError(f"{n_bytes} of {n_total} bytes came")
