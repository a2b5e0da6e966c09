"""A watched run as a file: trace.html with its data."""

import inspect
import json
from collections import Counter
from pathlib import Path

import speculative
from demo.trace import text_reader
from lib.checkpoints.files import atomic
from variants import DECODERS

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = Path(__file__).parent / "trace.html"


def trace(prompt, rounds, settings):
    """Return a run as the page draws it; rounds are as demo/trace.py sees them."""
    entry = DECODERS[settings["decoder"]]
    return {"prompt": prompt, "settings": settings, "rounds": rounds,
            "summary": summary(rounds, entry.one_by_one), "code": code(entry, rounds),
            "exact": entry.is_exact(settings), "idea": entry.idea,
            "is_chain": entry.guess is speculative.guess and entry.test is speculative.verify}


def trace_of(task, numbers, rounds):
    """Return the run that demo/compare.py measured, with plain decoding to race against."""
    timed = numbers["autoregressive"]
    plain = {"seconds": timed["time_s"], "pieces": [*map(text_reader(task.encoder), timed["ids"])],
             "speedup": numbers["speedup_measured"], "target_passes": numbers["target_passes"]}
    return trace(numbers["prompt"], rounds, numbers["settings"]) | {
        "seconds": numbers[task.decoder]["time_s"], "plain": plain}


def summary(rounds, one_by_one):
    """Count tokens, acceptance by position in the round, and seconds by clock.

    A test that is not `one_by_one` tests the guesses after a rejection too.
    """
    tested, accepted, seconds = Counter(), Counter(), Counter()
    for seen in rounds:
        seconds.update(seen["seconds"])
        for t, guess in enumerate(seen["guesses"]):
            tested[t] += "accepted" in guess or not one_by_one
            accepted[t] += guess.get("accepted", False)
    return {"ids": sum(len(seen["ids"]) for seen in rounds), "by_clock": dict(seconds),
            "by_place": [{"tested": tested[t], "accepted": accepted[t]} for t in sorted(+tested)]}


def code(entry, rounds):
    """Return where a decoder's guess and test are."""
    branches = any("parent" in guess for seen in rounds for guess in seen["guesses"])
    guess, test = entry.tree if branches and entry.tree else (entry.guess, entry.test)
    return {"guess": place(guess), "test": place(test)}


def place(function):
    """Return file, line and text of a function's first line."""
    lines, n = inspect.getsourcelines(function)
    file = Path(inspect.getsourcefile(function)).resolve().relative_to(ROOT)
    return {"file": file.as_posix(), "line": n, "text": lines[0].strip()}


def check_path(path):
    """Raise ValueError unless `save` can write such a file; call it before a long run."""
    if Path(path).suffix != ".html" or not Path(path).absolute().parent.is_dir():
        raise ValueError(f"--trace {path} cannot be written: choose a name that ends in .html, in "
                         "a folder that exists")


def save(path, run):
    """Write the page of a run; after an error, which names the file, the old one stays."""
    with atomic(Path(path).resolve()) as file:
        file.write(page(run).encode())


def page(run):
    """Return trace.html with the run in it. No text of the run can end the data's element."""
    data = json.dumps(run, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return TEMPLATE.read_text(encoding="utf-8").replace("{{run}}", data, 1)
