"""Return the code of one round as the page of a run lists it: lines without docstrings.

The page steps through these lines with the numbers of a round in them (page/listing.js). A line
has a name, `place`, which the page uses instead of a line number: "verify.test" is the line of
`verify` that tests a guess.
"""

import inspect
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import speculative
from variants.registry import Decoder

ROOT = Path(__file__).resolve().parents[1]
PLACES = {  # {function of speculative.py: a name for each of its lines of code, in their order}
    "guess": "def start loop row draw end",
    "verify": "def check loop test replace bonus",
    "speculative_step": "def def_end guess score test end",
}


def listing_of(entry: Decoder) -> list[dict]:
    """Return the functions of one round; [] if the decoder's test is not `speculative.verify`.

    The decoder's guess comes first. Only lines of speculative.py have a place. Return [] also
    if you have added or removed one of these lines, because the page would show wrong steps.
    """
    if entry.test is not speculative.verify:
        return []
    for name, places in PLACES.items():
        if len(code_lines(getattr(speculative, name))) != len(places.split()):
            return []
    return [listed(function)
            for function in (entry.guess, speculative.verify, speculative.speculative_step)]


def listed(function: Callable) -> dict:
    """Return a function's name, file, and lines: number, text and place of each."""
    function = python_function(function)
    lines = code_lines(function)
    # A decoder's own guess may also be called `guess`, so functions are compared, not names.
    is_known = getattr(speculative, function.__name__, None) is function
    places: list[str | None] = [None] * len(lines)  # other files' lines have no place
    if is_known:
        places = [f"{function.__name__}.{name}" for name in PLACES[function.__name__].split()]
    return {"name": function.__name__, "file": file_of(function),
            "lines": [{"number": number, "text": text, "place": place}
                      for (number, text), place in zip(lines, places, strict=True)]}


def python_function(function: Callable) -> Callable:
    """Return the function that a partial calls, or that an object with __call__ has."""
    while isinstance(function, partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def file_of(function: Callable) -> str:
    """Return a function's file: its path in the repository, or the whole path elsewhere."""
    file = Path(inspect.getfile(function)).resolve()
    if file.is_relative_to(ROOT):
        file = file.relative_to(ROOT)
    return file.as_posix()


def code_lines(function: Callable) -> list[tuple[int, str]]:
    """Return number and text of a function's lines, without its docstring and empty lines."""
    lines, first = inspect.getsourcelines(function)  # lines[0] has the number `first`
    text = "".join(lines)
    if function.__doc__:
        # Only line ends are left of it, so that the other lines keep their numbers.
        text = re.sub(r' *"""(.|\n)*?"""', lambda docstring: "\n" * docstring[0].count("\n"),
                      text, count=1)
    return [(number, line) for number, line in enumerate(text.split("\n"), first) if line]
