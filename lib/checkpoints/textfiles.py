"""A model's text files: JSON objects and lists of merges, or one clear error."""

import json
import stat
from pathlib import Path

MAX_TEXT = 2**26  # of one file; GPT-2's largest has 2**20


def read_file(path):
    """The bytes of a model's text file, or a ValueError if it is no plain file or too large."""
    status = Path(path).stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_TEXT:
        raise ValueError(f"need a plain file of at most {MAX_TEXT} bytes in {path}, got "
                         f"{stat.filemode(status.st_mode)}, {status.st_size} bytes")
    return Path(path).read_bytes()


def read_json(path):
    """The JSON object in a file, or a ValueError that names the file."""
    return parse_json(read_file(path), path)


def parse_json(data, path):
    """The JSON object in bytes that came from `path`; each name may come once."""
    try:
        value = json.loads(data, object_pairs_hook=distinct)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"need a JSON object in {path}, got: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"need a JSON object in {path}, got {type(value).__name__}")
    return value


def distinct(pairs):
    """A dict of the pairs; ValueError if a key comes twice."""
    if len(value := dict(pairs)) < len(pairs):
        raise ValueError("a name that comes twice in one object")
    return value


def read_merges(path):
    """The pairs of vocab.bpe: a line each; a first line may give the format's version."""
    try:
        lines = read_file(path).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"need UTF-8 text in {path}, got: {error}") from None
    lines = [line.removesuffix("\r") for line in lines]  # a checkout on Windows may add them
    lines = lines[1:] if lines[0].startswith("#version") else lines
    pairs = [tuple(line.split(" ")) for line in lines if line]
    for pair in pairs:
        if len(pair) != 2:
            raise ValueError(f"need two symbols a line in {path}, got {' '.join(pair)[:80]!r}")
    return pairs
