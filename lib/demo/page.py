"""A watched run as a file: its data, or trace.html with the data put in.

    run       what the file holds: prompt, settings, rounds as seen (lib/demo/trace.py), their sums
    plain     plain decoding of the same prompt, where it was timed: to race against
    code      the lines that decide: {"accept": {"file", "line", "text"}, ..}, read as they stand
"""

import codecs
import inspect
import json
from pathlib import Path
from urllib.parse import quote

import speculative
from variants import DECODERS

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = Path(__file__).parent / "trace.html"
STEPS = {"accept": "# [3]", "resample": "# [4]", "bonus": "# [5]"}  # ends of verify's lines


def trace(prompt, rounds, settings=None, seconds=None, plain=None):
    """The whole run: what came before the first round, all rounds as seen, and their sums."""
    settings = settings or {}
    entry = DECODERS[settings.get("decoder", "speculative")]
    known = entry.flags.keys() <= settings.keys()
    return {"prompt": prompt, "settings": settings, "rounds": rounds,
            "summary": summary(rounds) | ({} if seconds is None else {"seconds": seconds}),
            "code": code(entry.name, rounds),
            **({"exact": bool(entry.is_exact(settings))} if known else {}),
            **({} if plain is None else {"plain": plain})}


def trace_of(task, numbers, rounds):
    """The run that lib/demo/compare.py reported: plain decoding was timed beside it."""
    timed = numbers["autoregressive"]
    plain = {"seconds": timed["time_s"], "pieces": pieces(task.encoder, timed["ids"]),
             "speedup": numbers["speedup_measured"], "target_passes": numbers["target_passes"]}
    return trace(numbers["prompt"], rounds, numbers["settings"],
                 numbers[task.decoder]["time_s"], plain)


def pieces(encoder, ids):
    """The text of each id; a character that takes several comes with the last of them."""
    text = codecs.getincrementaldecoder("utf-8")("replace")
    return [text.decode(encoder.decode_bytes([token])) for token in ids]


def summary(rounds):
    """Tokens, rounds, acceptance by position in the round, and seconds by clock, over a run."""
    verdicts = [(t, guess["accepted"]) for seen in rounds
                for t, guess in enumerate(seen["guesses"]) if "accepted" in guess]
    places = 1 + max((t for t, _ in verdicts), default=-1)
    count = lambda place, wanted: sum(1 for t, got in verdicts if t == place and got in wanted)
    clocks = sorted({name for seen in rounds for name in seen["seconds"]})
    return {
        "ids": sum(len(seen["ids"]) for seen in rounds),
        "rounds": len(rounds),
        "by_place": [{"examined": count(t, (True, False)), "kept": count(t, (True,))}
                     for t in range(places)],
        "by_clock": {name: sum(seen["seconds"][name] for seen in rounds) for name in clocks},
    }


# ---- the lines that decide

def code(decoder, rounds):
    """Return where a decoder guesses and tests: of speculative.verify each step, else the function.

    A tree has no rows of its own in `rounds`: then the test is not speculative.verify.
    """
    entry, is_tree = DECODERS[decoder], not any("rows" in seen for seen in rounds)
    guess, test = entry.tree if is_tree and entry.tree else (entry.guess, entry.test)
    if test is speculative.verify:
        return {"guess": place(guess)} | {step: place(test, mark) for step, mark in STEPS.items()}
    return {"guess": place(guess), "accept": place(test)}


def place(function, mark=""):
    """File, line and text of a function's first line that ends in `mark`."""
    lines, first = inspect.getsourcelines(function)
    n, text = next((n, line) for n, line in enumerate(lines) if line.rstrip().endswith(mark))
    file = Path(inspect.getsourcefile(function)).resolve().relative_to(ROOT)
    return {"file": file.as_posix(), "line": first + n, "text": text.strip()}


# ---- the file

def check_path(path):
    """Raise unless `save` can write such a file: better before a long run than after it."""
    if Path(path).suffix not in (".html", ".json"):
        raise ValueError(f"need a trace file that ends in .html or .json, got {path}")
    if not Path(path).absolute().parent.is_dir():
        raise ValueError(f"need a trace file in a folder that exists, got {path}")


def save(path, run):
    """Write a trace: a page that needs nothing else, or its data, by the file's suffix."""
    check_path(path)
    html = Path(path).suffix == ".html"
    text = page(run, root_from(path)) if html else json.dumps(run, allow_nan=False, indent=1)
    Path(path).write_text(text, encoding="utf-8")


def root_from(path):
    """The way from a page in the repository to its top; None from elsewhere, where links break."""
    folder = Path(path).resolve().parent
    if not folder.is_relative_to(ROOT):
        return None
    return "../" * len(folder.relative_to(ROOT).parts)


def page(run, root=None):
    """trace.html with the run in it. No text of the run can end the element that holds the data.

    `root` is put before the names of the files that the page links to; None: it only names them.
    """
    data = json.dumps(run, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    links = "" if root is None else f' data-root="{quote(root) or "./"}"'
    text = TEMPLATE.read_text(encoding="utf-8").replace(' data-root=""', links, 1)
    return text.replace("{{run}}", data, 1)
