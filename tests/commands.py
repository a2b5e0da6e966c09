"""Run commands in this process, which starts faster than a separate one; wait for others."""

import contextlib
import io
import json
import signal
import time
from functools import partial

import main

# A background job of a shell ignores Ctrl-C, and so would its children.
DEFAULT_CTRL_C = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)


def outcome(command, *flags):
    """Run a command's `main`; return its status, output and errors."""
    out = io.StringIO()
    err = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = command([*map(str, flags)])
        except SystemExit as end:  # argparse
            status = end.code
    return status, out.getvalue(), err.getvalue()


def refusal(command, *flags):
    """Return the one line with which a command refuses these flags."""
    status, out, err = outcome(command, *flags)
    assert (status, out, err.count("\n")) == (2, "", 1), (status, out, err)
    return err


def written(folder, text, name="mine.py"):
    """Write a file with this text to the folder; return its path."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


NAMES = ["engines", "law", "rules", "toys", "utils"]  # modules of this project have them too


def write_package(folder, verify):
    """Write a file that imports this text's `verify` from a package, and modules with NAMES.

    The package needs all of them. Return the file.
    """
    folder.joinpath("mypkg").mkdir(parents=True)
    for name in NAMES:
        written(folder, "IS_MINE = True\n", f"{name}.py")
    names = ", ".join(NAMES)
    asserts = f"import {names}\nassert all(module.IS_MINE for module in ({names}))\n"
    written(folder, asserts + verify, "mypkg/verify.py")
    return written(folder, f"from mypkg.verify import verify\nimport {names}", "verifier.py")


def until(ready, seconds=240):
    """Return what `ready` returns as soon as it is true; a busy machine is slow."""
    end = time.monotonic() + seconds
    while not (value := ready()):
        assert time.monotonic() < end, f"waited {seconds} s"
        time.sleep(0.05)
    return value


def run_main(*flags):
    """Run main.py; return its status, output and errors."""
    return outcome(main.main, *flags)


def json_of_run(*flags):
    """Run main.py; return the JSON object that it prints."""
    status, out, err = run_main("--json", *flags)
    assert status == 0 and err == "", err
    return json.loads(out)


def records_of(folder, lines, *flags):
    """Run main.py --prompts on these lines; return its status, the records and its errors."""
    lines = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path = written(folder, "\n".join(lines), "prompts")
    status, _, err = run_main("--prompts", path, "--out", folder / "out", *flags)
    records = (folder / "out").read_text("utf-8").splitlines()
    return status, [json.loads(record) for record in records], err
