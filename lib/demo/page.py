"""A watched run as a file: its data, or trace.html with the data in it.

    run       what the file holds: prompt, settings, rounds as seen (lib/demo/trace.py), their sums
    plain     plain decoding of the same prompt, if it was timed: to race against
    code      the lines that decide: {"accept": {"file", "line", "text"}, ..}, read from the source
"""

import inspect
import json
import os
from collections import Counter
from pathlib import Path
from urllib.parse import quote

from lib.checkpoints.files import atomic
from lib.demo.trace import text_reader
from speculative import verify
from variants import DECODERS

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = Path(__file__).parent / "trace.html"
STEPS = {"accept": "# [3]", "resample": "# [4]", "bonus": "# [5]"}  # ends of verify's lines


def trace(prompt, rounds, settings=None, seconds=None, plain=None):
    """Return the whole run as data: what came before it, all rounds as seen, and their sums.

    `settings` that name no decoder tell nothing about it, so exactness is left out.
    """
    settings = dict(settings or {})
    entry = DECODERS[settings.get("decoder", "speculative")]
    if "draft" not in entry.needs:
        settings.pop("draft_model_size", None)  # not loaded
    run = {"prompt": prompt, "settings": settings, "rounds": rounds,
           "summary": summary(rounds, entry.one_by_one), "code": code(entry, rounds)}
    if "decoder" in settings:
        given = {name: settings[name] for name in entry.flags if name in settings}
        run |= {"exact": entry.is_exact(entry.settings(given)), "idea": entry.idea}
    if seconds is not None:
        run["summary"]["seconds"] = seconds
    return run if plain is None else run | {"plain": plain}


def trace_of(task, numbers, rounds):
    """Return the run that lib/demo/compare.py measured, with plain decoding to race against."""
    timed = numbers["autoregressive"]
    plain = {"seconds": timed["time_s"], "pieces": pieces(task.encoder, timed["ids"]),
             "speedup": numbers["speedup_measured"], "target_passes": numbers["target_passes"]}
    return trace(numbers["prompt"], rounds, numbers["settings"],
                 numbers[task.decoder]["time_s"], plain)


def pieces(encoder, ids):
    """Return the text of each id; a character of several ids comes with the last of them."""
    return [*map(text_reader(encoder), ids)]


def summary(rounds, one_by_one):
    """Count tokens, rounds, acceptance by position in the round, and seconds by clock.

    A test that is not `one_by_one` tests the guesses after a rejection too.
    """
    verdicts = [(t, guess.get("accepted", False)) for seen in rounds
                for t, guess in enumerate(seen["guesses"]) if "accepted" in guess or not one_by_one]
    tested = Counter(t for t, _ in verdicts)
    accepted, seconds = Counter(t for t, passed in verdicts if passed), Counter()
    for seen in rounds:
        seconds.update(seen["seconds"])
    return {"ids": sum(len(seen["ids"]) for seen in rounds), "rounds": len(rounds),
            "by_place": [{"tested": tested[t], "accepted": accepted[t]} for t in sorted(tested)],
            "by_clock": dict(seconds)}


# ---- the lines that decide

def code(entry, rounds):
    """Return where a decoder's guess and test are; of speculative.verify, where each step is."""
    branches = any("parent" in guess for seen in rounds for guess in seen["guesses"])
    guess, test = entry.tree if branches and entry.tree else (entry.guess, entry.test)
    steps = STEPS if test is verify else {"accept": ""}
    return {"guess": place(guess)} | {step: place(test, end) for step, end in steps.items()}


def place(function, end=""):
    """Return file, line and text of a function's first line with this end."""
    lines, first = inspect.getsourcelines(function)
    n, text = next((n, line) for n, line in enumerate(lines) if line.rstrip().endswith(end))
    file = Path(inspect.getsourcefile(function)).resolve().relative_to(ROOT)
    return {"file": file.as_posix(), "line": first + n, "text": text.strip()}


# ---- the file

def check_path(path):
    """Raise ValueError unless `save` can write such a file; call it before a long run."""
    if Path(path).suffix not in (".html", ".json"):
        raise ValueError(f"need a trace file that ends in .html or .json, got {path}")
    if not Path(path).absolute().parent.is_dir():
        raise ValueError(f"need a trace file in a folder that exists, got {path}")


def save(path, run):
    """Write a run as a page or as its data, by the file's suffix; after an error the old one stays.

    OSError names the file if the disk is full.
    """
    check_path(path)
    path = Path(path).resolve()
    html = path.suffix == ".html"
    text = page(run, path.parent) if html else json.dumps(run, allow_nan=False, indent=1)
    with atomic(path) as file:
        file.write(text.encode())


def page(run, folder=None):
    """Return trace.html with the run in it. No text of the run can end the data's element.

    A page for a folder of the repository links to the files that it names.
    """
    data = json.dumps(run, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    links = ""
    if folder and Path(folder).resolve().is_relative_to(ROOT):
        links = f' data-root="{quote(Path(os.path.relpath(ROOT, folder)).as_posix())}/"'
    text = TEMPLATE.read_text(encoding="utf-8").replace(' data-root=""', links, 1)
    return text.replace("{{run}}", data, 1)
