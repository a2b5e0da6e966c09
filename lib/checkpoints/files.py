"""Read JSON; write files whole or not at all, one process at a time."""

import contextlib
import json
import os


def read_json(path):
    """Return the JSON object in a file; ValueError if it holds anything else."""
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"need a JSON object in {path}, got: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"need a JSON object in {path}, got {type(value).__name__}")
    return value


@contextlib.contextmanager
def atomic(path):
    """Yield a binary file that replaces `path` when the block ends without an error.

    The bytes go to a file of this process next to it, which is removed after an error.
    """
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


def folder_lock(folder):
    """Return a lock on a folder, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    return file_lock(folder / ".lock")


@contextlib.contextmanager
def file_lock(path, blocking=True):
    """Hold a lock: a file that is removed at the end, and free if its process dies.

    If it is held elsewhere, wait, or raise filelock.Timeout unless `blocking`.
    """
    import filelock  # imported here because it is optional

    with filelock.FileLock(path, blocking=blocking):
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # Windows refuses; filelock removes it there
                os.remove(path)
