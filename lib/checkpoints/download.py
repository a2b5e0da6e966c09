"""Download files that never change: `path.part` grows, and becomes `path` when it is whole.

An interrupted download resumes: a Range header requests the rest (RFC 9110 Sec. 14).
"""

import hashlib
import os
import time

from tqdm import tqdm

from lib.backend.arrays import in_one_line
from lib.checkpoints.files import errors_name_file

TIMEOUT = 30  # seconds without a byte
WAITS = (1, 2, 4, 8)  # seconds before each new attempt


def download(url, path, sha256=None):
    """Download `url` to `path`; OSError if the server refuses, stops or sends other data."""
    # A different process may have been faster.
    if path.exists():
        return
    import requests  # imported here, as in append_rest, because only a download needs it

    interruptions = (requests.ConnectionError, requests.Timeout, EOFError,
                     requests.exceptions.ChunkedEncodingError)
    partial_file = path.with_name(f"{path.name}.part")
    # `wait` is None after the last attempt.
    for wait in (*WAITS, None):
        try:
            append_rest(url, partial_file)
            break
        except interruptions as error:
            n_bytes = size_of(partial_file)
            # A server that never sent a byte probably does not exist, so no attempt follows.
            is_unreachable = n_bytes == 0 and isinstance(error, requests.ConnectionError)
            if wait is None or is_unreachable:
                raise OSError(f"the download of {url} stopped after {n_bytes} bytes; run it "
                              f"again to resume, or set GPT2_BASE_URL to a mirror: {error}"
                              ) from None
            time.sleep(wait)
        except requests.RequestException as error:
            raise OSError(f"cannot download {url}: {in_one_line(error)}") from None
    if sha256 and sum_of_file(partial_file) != sha256:
        partial_file.unlink()
        raise OSError(f"need the released file from {url}, got one with a different SHA-256, "
                      "which is removed: run it again, or set GPT2_BASE_URL to a mirror")
    os.replace(partial_file, path)


def sum_of_file(path):
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def size_of(path):
    """Return the bytes of a file, 0 if it is missing."""
    return path.stat().st_size if path.exists() else 0


def append_rest(url, partial_file):
    """Append the rest of a file to its part; EOFError if the server is busy or stops early."""
    import requests

    n_past = size_of(partial_file)  # bytes
    # "identity" asks for bytes without compression, so that lengths are lengths of the file.
    headers = {"Range": f"bytes={n_past}-", "Accept-Encoding": "identity"}
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        status = response.status_code
        # 429 means too many requests, and 500 or more an error of the server. For an EOFError
        # `download` tries again.
        if status == 429 or status >= 500:
            raise EOFError(f"status {status}")
        # 206 means a range. 416 means that the file has no such range: the part is of a
        # different file, or already whole. The next attempt starts without a part.
        content_range = response.headers.get("Content-Range", "")
        is_rest = status == 206 and content_range.startswith(f"bytes {n_past}-")
        if status == 416 or (status == 206 and not is_rest):
            partial_file.unlink(missing_ok=True)
            raise EOFError(f"status {status} for bytes from {n_past} on, with Content-Range "
                           f"{content_range!r:.80}")
        response.raise_for_status()  # an error for every other status from 400 on
        for hop in (*response.history, response):
            if url.startswith("https:") and not hop.url.startswith("https:"):
                raise OSError(f"need https on the whole way to {url}, got a redirect to "
                              f"{hop.url}")
        if "text/html" in response.headers.get("Content-Type", ""):
            raise OSError(f"need data from {url}, got a web page (a login? a proxy?)")
        if not is_rest:  # the server ignores Range and sends the file from its start
            n_past = 0
        length = int(response.headers.get("Content-Length", 0))  # of the rest; 0 if unknown
        n_total = n_past + length if length else None
        # A part that is there is continued. disable=None: no bar outside a terminal.
        with (errors_name_file(partial_file),
              open(partial_file, "ab" if n_past else "wb") as file,
              tqdm(total=n_total, initial=n_past, unit="B", unit_scale=True,
                   desc=partial_file.stem, disable=None) as bar):
            for chunk in response.iter_content(2**14):
                file.write(chunk)
                bar.update(len(chunk))
        # A connection may be closed early without an error.
        n_bytes = size_of(partial_file)
        if n_total and n_bytes < n_total:
            raise EOFError(f"{n_bytes} of {n_total} bytes")
