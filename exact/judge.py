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
import importlib.util
import subprocess
import sys
import traceback
from collections import defaultdict
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from speculative import Round, draft_and_verify, generate
from exact import rules
from exact.law import law, no_other_chance, text_law, total_variation
from exact.toys import mapped

SECONDS = 60
EXACT = 1e-9  # what rounding may add up to
X = [0]
KS = (1, 2, 3)


class NoAnswer(Exception):
    """Say in one line why the file cannot be judged."""


# ---- toys

TOYS = {name: [mapped(model, np.float64) for model in pair] for name, pair in rules.TOYS.items()}
TOYS["equal"] = (TOYS["A"][1],) * 2


def toys():
    """Yield the toys as text: rows by last token."""
    for name, (draft, target) in TOYS.items():
        for last in range(3):
            rows = [" ".join(f"{p:.1f}" for p in model([last])[0]) for model in (draft, target)]
            yield f"toy {name:6} after {last}    p_draft {rows[0]}    p_target {rows[1]}"


# ---- the file

def load(path):
    """Return its `verify` or `step` as the step of a draft, a target and K."""
    if path.suffix != ".py" or not path.is_file():
        raise NoAnswer("need a Python file, FILE.py")
    spec = importlib.util.spec_from_file_location("answer", path)
    answer = importlib.util.module_from_spec(spec)
    with no_other_chance():
        spec.loader.exec_module(answer)
    if not hasattr(answer, "step") and not hasattr(answer, "verify"):
        raise NoAnswer("need a function verify or step in it")

    def verify(guesses, p_draft, p_target, rng):
        return check(answer.verify(list(guesses), p_draft, p_target, rng), len(guesses) + 1)

    def step_of(draft, target, K):
        def step(x, n_left, rng):
            ids = answer.step(list(x), n_left, rng, draft, target, K)
            return Round(check(ids, n_left), [], [], [])

        return step if hasattr(answer, "step") else draft_and_verify(draft, target, K, verify)

    return step_of


def check(ids, most):
    """Return the tokens as a list; raise NoAnswer if they are not tokens."""
    try:
        ids = [int(token) for token in ids]
    except (TypeError, ValueError):
        raise NoAnswer(f"need a list of tokens, got {ids!r}") from None
    if not 1 <= len(ids) <= most or not set(ids) <= {0, 1, 2}:
        raise NoAnswer(f"need 1 to {most} tokens of 0, 1, 2, got {ids}")
    return ids


def where(error, path):
    """Return "line N: " for the last line of the file that an error passed, or nothing."""
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        frames.append((error.filename, error.lineno))
    lines = [line for file, line in frames if file == str(path.absolute())]
    return f"line {lines[-1]}: " if lines else ""


# ---- the judgement

class Judgement(NamedTuple):
    """Hold what came out for one toy and one K: texts of K + 1 tokens."""

    toy: str
    K: int
    rounds: dict  # {the tokens of each round, as tuples: probability}
    wanted: dict  # {text: probability}

    @property
    def texts(self):
        total = defaultdict(float)
        for rounds, p in self.rounds.items():
            total[(*X, *sum(rounds, ()))] += p
        return dict(total)

    @property
    def distance(self):
        return total_variation(self.texts, self.wanted)


def rounds_of(step_of, pair, K, rng):
    """Return K + 1 tokens, as a tuple for each round."""
    return tuple(tuple(round.ids) for round in generate(X, step_of(*pair, K), K + 1, rng))


def judge(step_of):
    """Yield one Judgement for every toy and K."""
    for (toy, pair), K in product(TOYS.items(), KS):
        yield Judgement(toy, K, law(partial(rounds_of, step_of, pair, K)),
                        text_law(X, pair[1], K + 1))


def starts(texts, n):
    """Return {first n tokens: probability}."""
    total = defaultdict(float)
    for text, p in texts.items():
        total[text[:n]] += p
    return total


def first_fault(judgement):
    """Return the text up to the first token that comes too often, and both {such text: p}."""
    for n in range(len(X) + 1, len(X) + judgement.K + 2):
        got, wanted = starts(judgement.texts, n), starts(judgement.wanted, n)
        worst = max(got, key=lambda text: got[text] - wanted[text])
        if got[worst] - wanted[worst] > EXACT / 100:
            return worst, got, wanted
    raise AssertionError("no fault")


def small(p):
    """Return four decimals, or one digit of what they would hide."""
    return f"{p:.4f}" if p >= 0.0005 else f"{p:.0e}"


def explain(judgement):
    """Yield the lines that show the first fault: the probabilities there, and the round."""
    (*before, token), got, wanted = first_fault(judgement)
    position = len(before) - len(X)
    yield f"toy {judgement.toy}, K = {judgement.K}: distance {small(judgement.distance)}"
    yield "  text                      yours    target"
    for other in range(3):
        key = (*before, other)
        mark = f"   <- too high by {small(got[key] - wanted[key])}" if other == token else ""
        yield f"  {str([*before, other]):20}{got[key]:11.4f}{wanted[key]:10.4f}{mark}"
    written = defaultdict(float)
    for rounds, p in judgement.rounds.items():
        ends = np.cumsum([len(ids) for ids in rounds])
        if (*X, *sum(rounds, ()))[: len(before) + 1] == (*before, token):
            written[1 + int(np.argmax(ends > position))] += p
    by_round = ", ".join(f"round {n}: {p:.4f}" for n, p in sorted(written.items()))
    yield f"  token {position + 1} after the prompt {X}, written in {by_round}"


def answer(path):
    """Judge a file in this process and print; return the exit status."""
    path = Path(path)
    try:
        step_of = load(path)
        print(*toys(), "", sep="\n")
        for judgement in judge(step_of):
            if judgement.distance > EXACT:
                print(*explain(judgement), sep="\n")
                return 1
            count = len(judgement.rounds)
            print(f"toy {judgement.toy}, K = {judgement.K}: exact, {count} outcomes")
    except (NoAnswer, AssertionError) as error:
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
    parser.add_argument("file", type=Path, help="a Python file with a function verify or step")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time limit, 60 by default")
    args = parser.parse_args(argv)
    program = f"import sys; from exact.judge import answer; sys.exit(answer({str(args.file)!r}))"
    try:
        return subprocess.run([sys.executable, "-B", "-c", program],
                              timeout=args.seconds).returncode
    except subprocess.TimeoutExpired:
        print(f"{args.file} was still running after {args.seconds:g} s "
              "(an endless loop? --seconds sets the limit)")
        return 2


if __name__ == "__main__":
    sys.exit(main())
