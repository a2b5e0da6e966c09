"""Judge a test for guesses that you wrote: what it makes of the target's distribution, exactly.

    python -m exact.judge FILE.py

FILE.py defines one of

    verify(guesses, p_draft, p_target, rng) -> 1 .. k + 1 tokens      as speculative.verify
    step(x, n_left, rng, draft, target, K) -> 1 .. room tokens          a whole round

and may import sampling.py: its `sample` and `accept` are the only chance there is. Every outcome is
enumerated for the toys printed, with K = 1, 2 and 3. The exit status is 0 if the distribution of
every text is the target's, 1 if it is not, and 2 if the file does not run, or not to its end.
"""

import argparse
import importlib.util
import subprocess
import sys
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from speculative import Round, draft_and_verify, generate
from exact import rules
from exact.law import law, no_other_chance, text_law, total_variation

ROOT = Path(__file__).parent.parent
SECONDS = 60
EXACT = 1e-9  # what rounding may cost
X = [0]


class NoAnswer(Exception):
    """The file cannot be judged; the message is the line that says why."""


# ---- toys

def as_floats(model):
    return lambda ids, n_last=1: np.array(model(ids, n_last), dtype=np.float64)


TOYS = {name: tuple(map(as_floats, pair)) for name, pair in rules.TOYS.items()}
TOYS["equal"] = (TOYS["A"][1],) * 2


def toys():
    """The toys as text: rows by last token."""
    for name, (draft, target) in TOYS.items():
        for last in range(3):
            rows = [" ".join(f"{p:.1f}" for p in model([last])[0]) for model in (draft, target)]
            yield f"toy {name:6} after {last}    p_draft {rows[0]}    p_target {rows[1]}"


# ---- the file

def load(path):
    """Its `verify` or `step` as the step of a draft, a target and K."""
    spec = importlib.util.spec_from_file_location("answer", path)
    answer = importlib.util.module_from_spec(spec)
    with no_other_chance():
        spec.loader.exec_module(answer)
    if hasattr(answer, "step"):
        return lambda draft, target, K: own_step(answer.step, draft, target, K)
    if not hasattr(answer, "verify"):
        raise NoAnswer("need a function verify or step in it")
    return lambda draft, target, K: draft_and_verify(draft, target, K, checked(answer.verify))


def own_step(step, draft, target, K):
    """A function that returns tokens, as a step that returns a Round."""
    def rounds(x, n_left, rng):
        ids = step(list(x), n_left, rng, draft, target, K)
        return Round(check(ids, n_left), [], [], [])

    return rounds


def checked(verify):
    """The function, its answer looked at."""
    return lambda guesses, p_draft, p_target, rng: check(
        verify(list(guesses), p_draft, p_target, rng), len(guesses) + 1)


def check(ids, most):
    """The tokens as a list; NoAnswer if they are none."""
    try:
        ids = [int(token) for token in ids]
    except (TypeError, ValueError):
        raise NoAnswer(f"need a list of tokens, got {ids!r}") from None
    if not 1 <= len(ids) <= most or not set(ids) <= {0, 1, 2}:
        raise NoAnswer(f"need 1 to {most} tokens of 0, 1, 2, got {ids}")
    return ids


# ---- the judgement

class Judgement(NamedTuple):
    """What came out for one toy and one K: texts of K + 1 tokens."""

    toy: str
    K: int
    rounds: dict  # {the tokens of each round, as tuples: probability}
    wanted: dict  # {text: probability}

    @property
    def texts(self):
        total = defaultdict(float)
        for rounds, chance in self.rounds.items():
            total[(*X, *sum(rounds, ()))] += chance
        return dict(total)

    @property
    def distance(self):
        return total_variation(self.texts, self.wanted)


def rounds_of(new_step, N, rng):
    """N tokens, as a tuple for each round."""
    return tuple(tuple(round.ids) for round in generate(X, new_step(), N, rng))


def judge(step_of):
    """One Judgement after the other, for every toy and K."""
    for toy, (draft, target) in TOYS.items():
        for K in (1, 2, 3):
            rounds = law(partial(rounds_of, partial(step_of, draft, target, K), K + 1))
            yield Judgement(toy, K, rounds, text_law(X, target, K + 1))


def starts(texts, n):
    """{first n tokens: probability}."""
    total = defaultdict(float)
    for text, chance in texts.items():
        total[text[:n]] += chance
    return total


def first_fault(judgement):
    """The text up to the first token that comes too often; of several at one place the worst."""
    for n in range(len(X) + 1, len(X) + judgement.K + 2):
        got, wanted = starts(judgement.texts, n), starts(judgement.wanted, n)
        worst = max(got.keys() | wanted.keys(),
                    key=lambda text: got.get(text, 0) - wanted.get(text, 0))
        if got[worst] - wanted[worst] > EXACT / 100:
            return worst
    raise AssertionError("no fault")


def explain(judgement):
    """The lines that show the first fault: the distribution there, and the round that wrote it."""
    *before, token = first_fault(judgement)
    got, wanted = (starts(texts, len(before) + 1) for texts in (judgement.texts, judgement.wanted))
    place = len(before) - len(X)
    yield f"toy {judgement.toy}, K = {judgement.K}: distance {judgement.distance:.4f}"
    yield f"  texts that begin with {before}      yours    the target's"
    for other in range(3):
        key = (*before, other)
        mark = "   <- too likely" if other == token else ""
        yield f"  .. then {other} {got[key]:23.4f} {wanted[key]:15.4f}{mark}"
    written = defaultdict(float)
    for rounds, chance in judgement.rounds.items():
        ends = np.cumsum([len(ids) for ids in rounds])
        if (*X, *sum(rounds, ()))[: len(before) + 1] == (*before, token):
            written[1 + int(np.argmax(ends > place))] += chance
    by_round = ", ".join(f"round {n}: {chance:.4f}" for n, chance in sorted(written.items()))
    yield f"  token {place + 1} of the text, written in {by_round}"


def answer(path):
    """Judge a file in this process, and print; the exit status."""
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
        print(f"{path}: {error}")
        return 2
    except (Exception, SystemExit) as error:
        print(f"{path} does not run: {type(error).__name__}: {' '.join(str(error).split())}")
        return 2
    print("The distribution is the target's.")
    return 0


def main(argv=None):
    """Judge a file in a process of its own, which is ended if it takes too long."""
    parser = argparse.ArgumentParser("python -m exact.judge", description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="the limit of time")
    args = parser.parse_args(argv)
    program = f"import sys; from exact.judge import answer; sys.exit(answer({str(args.file)!r}))"
    try:
        return subprocess.run([sys.executable, "-B", "-c", program],
                              timeout=args.seconds).returncode
    except subprocess.TimeoutExpired:
        print(f"{args.file} is not done after {args.seconds:g} s: does it end?")
        return 2


if __name__ == "__main__":
    sys.exit(main())
