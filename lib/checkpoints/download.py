"""Download files that never change: `path.part` grows, and becomes `path` when it is whole.

An interrupted download resumes: a Range header requests the rest (RFC 9110 Sec. 14).
"""

import os
import time

from tqdm import tqdm

from lib.checkpoints.files import errors_name_file

TIMEOUT = 30  # seconds without a byte
WAITS = (1, 2, 4, 8)  # seconds before each new attempt


def download(url, path):
    """Download `url` to `path`; OSError if the server refuses, or stops at every attempt."""
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
            n_bytes = partial_file.stat().st_size if partial_file.exists() else 0
            # A server that never sent a byte probably does not exist, so no attempt follows.
            is_unreachable = n_bytes == 0 and isinstance(error, requests.ConnectionError)
            if wait is None or is_unreachable:
                raise OSError(f"the download of {url} stopped after {n_bytes} bytes; run it "
                              f"again to resume, or set GPT2_BASE_URL to a mirror: {error}"
                              ) from None
            time.sleep(wait)
    os.replace(partial_file, path)


def append_rest(url, partial_file):
    """Append the rest of a file to its part; EOFError if the server is busy or stops early."""
    import requests

    n_past = partial_file.stat().st_size if partial_file.exists() else 0  # bytes
    # "identity" asks for bytes without compression, so that lengths are lengths of the file.
    headers = {"Range": f"bytes={n_past}-", "Accept-Encoding": "identity"}
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        status = response.status_code
        # 416 means that the file has no such range: the part is of a different file, or already
        # whole. The next attempt starts without a part.
        if status == 416:
            partial_file.unlink(missing_ok=True)
        # 429 means too many requests, and 500 or more an error of the server. For an EOFError
        # `download` tries again.
        if status in (416, 429) or status >= 500:
            raise EOFError(f"status {status}")
        response.raise_for_status()  # an error for every other status from 400 on
        if "text/html" in response.headers.get("Content-Type", ""):
            raise OSError(f"need data from {url}, got a web page (a login? a proxy?)")
        # 206 means a range. Otherwise the server ignores Range and sends the file from its
        # start.
        if status != 206:
            n_past = 0
        n_total = n_past + int(response.headers.get("Content-Length", 0))
        write_with_bar(response, partial_file, n_past, n_total)
        n_bytes = partial_file.stat().st_size
        # A connection may be closed early without an error.
        if n_bytes < n_total:
            raise EOFError(f"{n_bytes} of {n_total} bytes")


def write_with_bar(response, partial_file, n_past, n_total):
    """Write a response's bytes after the first n_past bytes of a file; show a progress bar."""
    # The bytes are appended to a part that is there.
    with errors_name_file(partial_file), open(partial_file, "ab" if n_past else "wb") as file:
        # Without a length from the server n_total is n_past. If this is 0, the bar has no
        # total. disable=None: no bar outside a terminal.
        with tqdm(total=n_total or None, initial=n_past, unit="B", unit_scale=True,
                  desc=partial_file.stem, disable=None) as bar:
            for chunk in response.iter_content(2**14):
                file.write(chunk)
                bar.update(len(chunk))
