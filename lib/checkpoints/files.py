"""Read a model's text files; write files whole or not at all, one process at a time."""

import contextlib
import importlib
import json
import os
from pathlib import Path


def need_package(name, why):
    """Import a package that only some runs need; ValueError that says how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ValueError(f"need the package {name} to {why} (pip install {name}), got: {error}"
                         ) from None


def read_json(path):
    """Return the JSON object in a file; ValueError if it holds anything else."""
    try:
        value = json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"need a JSON object in {path}, got: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"need a JSON object in {path}, got {type(value).__name__}")
    return value


def read_merges(path):
    """Return the pairs of vocab.bpe or merges.txt: one per line, after a line with the version."""
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")  # or CR LF
    except UnicodeDecodeError as error:
        raise ValueError(f"need UTF-8 text in {path}, got: {error}") from None
    lines = lines[1:] if lines[0].startswith("#version") else lines
    return [as_pair(line.split(" "), path) for line in lines if line]


def as_pair(symbols, path):
    """Return a merge as a tuple of two symbols."""
    if len(symbols) != 2 or not all(isinstance(symbol, str) for symbol in symbols):
        raise ValueError(f"need merges of two symbols in {path}, got {str(symbols)[:80]}")
    return tuple(symbols)


@contextlib.contextmanager
def atomic(path):
    """Yield a binary file that replaces `path` when the block ends; an error leaves `path` alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with named(path), open(part, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:  # Ctrl-C too
        part.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def named(path):
    """Name the file in errors that name none, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextlib.contextmanager
def folder_lock(folder):
    """Hold a lock on a folder, which is made if need be; released if the process dies."""
    filelock = need_package("filelock", "download or convert a model")
    folder.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(folder / ".lock"):
        try:
            yield
        finally:  # while it is held: a process that waits for it notices, and makes a new one
            with contextlib.suppress(OSError):  # Windows removes no open file
                (folder / ".lock").unlink()
