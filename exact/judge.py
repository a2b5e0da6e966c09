"""Judge a test of guesses that you wrote: enumerate what it makes of the target's distribution.

    python -m exact.judge FILE.py

FILE.py defines one of

    verify(guesses, p_draft, p_target, rng) -> 1 .. k + 1 tokens      like speculative.verify
    step(x, n_left, rng, draft, target, K) -> 1 .. n_left tokens      a whole round

and may import sampling.py: its `sample` and `accept`, or rng.random(), are the only source of
randomness. Every outcome is enumerated for the toys printed, with K = 1, 2 and 3. The exit status
is 0 if every text has the target's probability, 1 if one does not, and 2 if there is no answer.
"""

import argparse
import runpy
import subprocess
import sys
import traceback
from collections import defaultdict
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

from exact import rules
from exact.law import law, no_other_chance, text_law
from exact.rules import Found, X, mapped
from speculative import Round, complete, draft_and_verify

SECONDS = 60
EXACT = 1e-9  # what rounding may add up to
TOYS = {name: [mapped(model, np.float64) for model in pair] for name, pair in rules.TOYS.items()}
TOYS["equal"] = (TOYS["A"][1],) * 2


# ---- the file

def load(path):
    """Return its `verify` or `step` as the step of a draft, a target and K."""
    if path.suffix != ".py" or not path.is_file():
        raise AssertionError("need a Python file, FILE.py")
    with no_other_chance():
        answer = runpy.run_path(str(path.absolute()))
    if not answer.keys() & {"step", "verify"}:
        raise AssertionError("need a function verify or step in it")

    def verify(guesses, p_draft, p_target, rng):
        return check(answer["verify"](list(guesses), p_draft, p_target, rng), len(guesses) + 1)

    def step_of(draft, target, K):
        def step(x, n_left, rng):
            ids = answer["step"](list(x), n_left, rng, draft, target, K)
            return Round(check(ids, n_left), [], [], [])

        return step if "step" in answer else draft_and_verify(draft, target, K, verify)

    return step_of


def check(ids, most):
    """Return the tokens as a list; raise AssertionError if they are not."""
    is_list = isinstance(ids, (list, tuple, np.ndarray))
    if not is_list or not 1 <= len(ids) <= most or not {*ids} <= {0, 1, 2}:
        raise AssertionError(f"need a list of 1 to {most} tokens of 0, 1, 2, got {ids}")
    return [int(token) for token in ids]


def where(error, path):
    """Return "line N: " for the last line of the file that an error passed, or nothing."""
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        frames.append((error.filename, error.lineno))
    lines = [line for file, line in frames if file == str(path.absolute())]
    return f"line {lines[-1]}: " if lines else ""


# ---- the judgement

def judge(step_of):
    """Yield what was found for every toy and K."""
    for (toy, pair), K in product(TOYS.items(), (1, 2, 3)):
        texts = law(partial(complete, X, step_of(*pair, K), K + 1))
        yield Found(toy, K, texts, text_law(X, pair[1], K + 1))


def starts(texts, n):
    """Return {first n tokens: probability}."""
    total = defaultdict(float)
    for text, p in texts.items():
        total[text[:n]] += p
    return total


def explain(found):
    """Yield the lines that show the first token that comes too often, and its alternatives."""
    for n in range(len(X) + 1, len(X) + found.K + 2):
        got, wanted = starts(found.texts, n), starts(found.wanted, n)
        worst = max(got, key=lambda text: got[text] - wanted[text])
        if got[worst] - wanted[worst] > EXACT / 100:
            break
    yield f"toy {found.toy}, K = {found.K}: distance {found.distance:.2g}"
    yield "  text                      yours    target"
    for text in ((*worst[:-1], token) for token in range(3)):
        mark = f"   <- too high by {got[text] - wanted[text]:.2g}" if text == worst else ""
        yield f"  {str(list(text)):20}{got[text]:11.4f}{wanted[text]:10.4f}{mark}"


def answer(path):
    """Judge a file in this process and print; return the exit status."""
    path = Path(path)
    try:
        step_of = load(path)
        print(rules.toys_table(), "Toy equal: both models are A's target.\n", sep="\n\n")
        for found in judge(step_of):
            if found.distance > EXACT:
                print(*explain(found), sep="\n")
                return 1
            print(f"toy {found.toy}, K = {found.K}: exact, {len(found.texts)} texts")
    except AssertionError as error:
        print(f"{path}: {where(error, path)}{error}")
        return 2
    except (Exception, SystemExit) as error:
        text = " ".join(str(getattr(error, "msg", error)).split())
        print(f"{path} does not run: {where(error, path)}{type(error).__name__}: {text}")
        return 2
    print("The distribution is the target's for K = 1, 2 and 3 on these toys.")
    return 0


def main(argv=None):
    """Judge a file in a separate process, which is stopped if it takes too long."""
    parser = argparse.ArgumentParser("python -m exact.judge", description=__doc__.split("\n")[0])
    parser.add_argument("file", help="a Python file with a function verify or step")
    file = parser.parse_args(argv).file
    program = f"import sys; from exact.judge import answer; sys.exit(answer({file!r}))"
    try:
        return subprocess.run([sys.executable, "-B", "-c", program], timeout=SECONDS).returncode
    except subprocess.TimeoutExpired:
        print(f"{file} was still running after {SECONDS} s (an endless loop?)")
        return 2


if __name__ == "__main__":
    sys.exit(main())
