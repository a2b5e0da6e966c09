"""Download files that never change: `path.part` grows, and becomes `path` when it is whole.

An interrupted download resumes: a Range header requests the rest (RFC 9110 Sec. 14).
"""

import os
import time

from tqdm import tqdm

from lib.checkpoints.files import named

TIMEOUT = 30  # seconds without a byte
WAITS = (1, 2, 4, 8)  # seconds before each new attempt


def download(url, path):
    """Fetch `url` to `path`; OSError if the server refuses or breaks off at every attempt."""
    if path.exists():  # a different process may have been faster
        return
    import requests  # imported here, as in fetch, because only a download needs it

    part = path.with_name(f"{path.name}.part")
    for wait in (*WAITS, None):
        try:
            fetch(url, part)
            return os.replace(part, path)
        except (requests.ConnectionError, requests.Timeout, EOFError,
                requests.exceptions.ChunkedEncodingError) as error:
            n_bytes = part.stat().st_size if part.exists() else 0
            if wait is None or not n_bytes and isinstance(error, requests.ConnectionError):
                raise OSError(f"the download of {url} stopped after {n_bytes} bytes; run it "
                              f"again to resume, or set GPT2_BASE_URL to a mirror: {error}"
                              ) from None
            time.sleep(wait)


def fetch(url, part):
    """Append the rest of a file to `part`; EOFError if the server is busy or stops early."""
    import requests

    n_past = part.stat().st_size if part.exists() else 0
    # identity: not compressed, so that lengths are the file's
    headers = {"Range": f"bytes={n_past}-", "Accept-Encoding": "identity"}
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        if response.status_code == 416:  # the part is of a different file, or already whole
            part.unlink(missing_ok=True)
        if response.status_code in (416, 429) or response.status_code >= 500:  # try again
            raise EOFError(f"status {response.status_code}")
        response.raise_for_status()
        if "text/html" in response.headers.get("Content-Type", ""):
            raise OSError(f"need data from {url}, got a web page (a login? a proxy?)")
        n_past = n_past if response.status_code == 206 else 0
        n_total = n_past + int(response.headers.get("Content-Length", 0))
        with named(part), open(part, "ab" if n_past else "wb") as file, \
                tqdm(total=n_total or None, initial=n_past, unit="B", unit_scale=True,
                     desc=part.stem, disable=None) as bar:
            for chunk in response.iter_content(2**14):
                file.write(chunk)
                bar.update(len(chunk))
        if part.stat().st_size < n_total:
            raise EOFError(f"{part.stat().st_size} of {n_total} bytes")
