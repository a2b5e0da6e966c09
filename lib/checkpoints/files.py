"""Read JSON; write files whole or not at all; lock files, so that processes take turns."""

import contextlib
import json
import os


def json_value(data):
    """Return the value of JSON in bytes or text; ValueError if it is not JSON."""
    try:
        return json.loads(data)
    except RecursionError:  # Python's reader calls itself for each level
        raise ValueError("it is nested too deeply") from None


def read_json(path):
    """Return the JSON object in a file; ValueError if it holds anything else."""
    try:
        value = json_value(path.read_bytes())
    except ValueError as error:  # not JSON, not UTF-8, nested too deeply
        raise ValueError(f"need a JSON object in {path}, got: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"need a JSON object in {path}, got {type(value).__name__}")
    return value


@contextlib.contextmanager
def atomic(path):
    """Yield a binary file that replaces `path` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial_file = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with errors_name_file(path), open(partial_file, "wb") as file:
            yield file
            file.flush()
            # Without fsync a crash after the renaming could leave an empty file.
            os.fsync(file.fileno())
        os.replace(partial_file, path)  # readers see the old file or the new one
    except BaseException:  # Ctrl-C too
        partial_file.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def errors_name_file(path):
    """Name the file in an OSError that names no file, such as the error of a full disk."""
    try:
        yield
    except OSError as error:
        # An error of the network is an OSError too, without a number; it is not of this file.
        if error.errno is not None:
            error.filename = error.filename or str(path)
        raise


@contextlib.contextmanager
def file_lock(path, blocking=True):
    """Hold a lock by a file, which is removed at the end; a lock ends when its process ends."""
    import filelock  # imported here because it is optional

    # filelock would try for ever to make a file that cannot be made.
    try:
        open(path, "ab").close()
    except OSError as error:
        raise OSError(f"cannot make the lock file {path}: {error.strerror}") from None
    with filelock.FileLock(path, blocking=blocking):
        try:
            yield
        finally:
            # Windows refuses to remove an open file; there filelock removes it.
            with contextlib.suppress(OSError):
                os.remove(path)
