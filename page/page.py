"""Write a watched run as a page: trace.html with the run's data."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from lib.checkpoints.files import atomic
from page.listing import code_lines, file_of, listing_of, python_function
from run.rounds import text_reader
from run.task import Task
from variants import DECODERS
from variants.registry import Decoder

# ---- the data of a page

def run_as_data(prompt: str, rounds: Sequence[dict], settings: dict,
                entry: Decoder | None = None) -> dict:
    """Return a run as data for the page; run/rounds.py returns such rounds.

    `entry` is the decoder's, if it is not registered.
    """
    entry = (entry or DECODERS[settings["decoder"]]).with_settings(settings)
    code = source_lines(entry.guess, entry.test)
    # With some flags a decoder guesses trees.
    return {"prompt": prompt, "settings": settings, "rounds": rounds, "code": code,
            "tree_code": source_lines(*entry.tree) if entry.tree else code,
            "exact": entry.exact(settings), "idea": entry.idea, "is_chain": entry.is_chain,
            "listing": listing_of(entry)}


def raced_run(task: Task, numbers: dict, rounds: Sequence[dict]) -> dict:
    """Return a run that run/compare.py measured, with the plain run that it races against."""
    plain = numbers["autoregressive"]
    text_of_next = text_reader(task.encoder)
    run = run_as_data(numbers["prompt"], rounds, numbers["settings"], task.entry)
    # The page replays both runs at this pace.
    run["seconds"] = numbers[task.decoder]["time_s"]
    run["plain"] = {"seconds": plain["time_s"],
                    "pieces": [text_of_next(token) for token in plain["ids"]],
                    "speedup": numbers["speedup_measured"],
                    "target_passes": numbers["target_passes"]}
    return run


def source_lines(guess: Callable, test: Callable) -> dict:
    """Return the lines of code that define a guess and a test."""
    return {"guess": source_line(guess), "test": source_line(test)}


def source_line(function: Callable) -> dict:
    """Return file, line and text of a function's first line."""
    function = python_function(function)
    (number, text), *_ = code_lines(function)
    return {"file": file_of(function), "line": number, "text": text.strip()}


# ---- the file

def save_page(path: str | Path, run: dict) -> None:
    """Write the page of a run. After an error the old file stays; the message names it."""
    with atomic(Path(path).resolve()) as file:
        file.write(page_text(run).encode())


def page_text(run: dict) -> str:
    """Return trace.html with the run in it, escaped: no text of the run can end its element."""
    # JSON has no NaN: a browser could not read a page with one, so dumps raises an error.
    data = json.dumps(run, allow_nan=False, separators=(",", ":"))
    # Without any < the text cannot contain </script>.
    escaped = data.replace("<", "\\u003c")
    return template().replace("{{run}}", escaped, 1)


def template() -> str:
    """Return trace.html with its other files, page.css and listing.js, in it."""
    # All is put into one file, because a page from a disk may load no other file.
    page, style, listing = (Path(__file__).with_name(name).read_text(encoding="utf-8")
                            for name in ("trace.html", "page.css", "listing.js"))
    return page.replace("/* {{style}} */\n", style, 1).replace("// {{listing}}\n", listing, 1)


def stored_run(path: str | Path) -> dict:
    """Return the run in a page."""
    text = Path(path).read_text(encoding="utf-8")
    # The run is in <script type="application/json" id="run">.
    data = re.search(r'json" id="run">(.*?)</script>', text, re.DOTALL)
    if data is None:
        raise ValueError(f"need the page of a run, got {path}")
    return json.loads(data[1])
