"""Check whether your test of guesses is exact, by enumerating the distribution of its texts.

    python -m exact.judge FILE.py
    python -m exact.judge FILE.py --all     on every toy, after the first wrong one too
    python -m exact.judge FILE.py --rows    and its tokens per round on recorded rows

FILE.py defines one of

    verify(guesses, p_draft, p_target, rng) -> 1 .. k + 1 tokens      like speculative.verify
    step(x, n_left, rng, draft, target, K) -> 1 .. n_left tokens      a whole round
    DECODER                                       as a file of variants/: its test is judged

A file may also define guess, with verify or alone, if its guesses are not drawn from the draft:

    guess(x, k, rng, draft) -> guesses, their rows                    like speculative.guess

p_draft is a list of k rows, p_target an array [k + 1, n_vocab]. All random numbers must come
from `sample` and `accept` of sampling.py, or from rng.random(). Every outcome is enumerated on
the printed toys, with K = 1, 2 and 3. A `verify` depends on its arguments alone, so single
rounds are enumerated. A `step` may remember earlier rounds, so whole texts are enumerated. The
exit status is 0 if every text has the target's probability, 1 if one does not, and 2 if there
is no answer. For a verifier over arrays use exact/oracle.py.
"""

import inspect
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

import speculative
from exact import recorded, toys
from exact.expected import block_tokens, chain_mean
from exact.law import (
    Forking,
    expectation,
    forbid_in,
    law,
    prefix_law,
    text_law,
    total_variation,
)
from exact.rule_file import checked_step, checked_verify, names_in_file, rule_of, sentence
from exact.toys import Found, X, distance_cell, mapped, texts_by_rounds
from lib.markdown import markdown_table
from lib.terminal import Parser, command
from speculative import Model, Test, complete, draft_and_verify, guess, make_step
from variants.registry import Decoder

SECONDS = 60.0  # time limit of an enumeration; it is checked between outcomes
GRACE = 10.0  # seconds after this limit before the process is stopped, even within an outcome
ROUNDING = 1e-9  # the largest distance of an exact verifier in float64; errors are near 1e-16
FLOAT32 = 1e-6  # the largest distance of an exact verifier in float32
NOT_ENUMERATED = """\
This does not cover more guesses, larger vocabularies, or real models and their caches.
See docs/exactness.md#what-is-enumerated-and-what-is-not"""
# {exit status of PROGRAM: exit status of the command}. All other statuses of PROGRAM show that
# the judged file has ended the process.
JUDGED = {100: 0, 101: 1, 102: 2}
# PROGRAM runs the judged file in a process that the command can stop. It ignores Ctrl-C,
# because the command waits for PROGRAM, reports Ctrl-C and ends PROGRAM.
PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
import sys
from exact.judge import answer
sys.exit(100 + answer({!r}, {}, {}, {}, {}))
"""
TOYS_IN_FLOATS = {name: [mapped(model, np.float64) for model in pair]
                  for name, pair in toys.TOYS.items()}
TOYS_IN_FLOATS["equal"] = [TOYS_IN_FLOATS["A"][1]] * 2  # draft and target are both A's target

Text = tuple[int, ...]
Texts = dict[Text, float]  # {text: probability}
Enumerate = Callable[[Callable], Texts]  # exact.law.law, or law within a time limit
TextsOf = Callable[[Model, Model, int, Enumerate], Texts]  # (draft, target, K, enumerate)


# ---- what the file defines

def rounds_of(verify: Test, make_guesses: Callable | None = None) -> TextsOf:
    """Return a function that enumerates rounds and joins them.

    On the toys a test's rows depend only on the last token of the text and on the guesses. The
    file's own guesses may depend on the whole text.
    """
    def texts(draft, target, K, enumerate_outcomes):
        def step_of(k):
            return make_step(target, k, partial(make_guesses or guess, draft=draft), verify)

        key = slice(None) if make_guesses else slice(-1, None)
        return texts_by_rounds(step_of, K, key, enumerate_outcomes)

    return texts


def texts_of(step: Callable) -> TextsOf:
    """Return a function that enumerates whole texts, whose rounds may depend on each other."""
    def texts(draft, target, K, enumerate_outcomes):
        step_on_toy = partial(step, draft=draft, target=target, K=K)
        return enumerate_outcomes(lambda rng: complete(X, step_on_toy, K + 1, rng))

    return texts


def load_file(path: Path) -> tuple[TextsOf, Test | None, bool, str]:
    """Run the file; return a function that enumerates the texts of its `step` or `verify`.

    The second value is the `verify`, or None if the file has a step. The third is whether the
    file makes its own guesses. The last is a note on what is judged if the file has a DECODER,
    otherwise "".
    """
    rule = rule_of(names_in_file(path))
    note = ""
    if rule.step:
        function = rule.step
        verify = None
        texts = texts_of(checked_step(function))
    else:
        if rule.decoder:
            function = judged_test(rule.decoder)
            note = (f"The test of DECODER is judged, {function.__name__}; how the decoder "
                    "makes its guesses is not.")
        else:
            function = rule.verify or speculative.verify
        verify = checked_verify(function)
        texts = rounds_of(verify, rule.guess)
    # the first call may draw random numbers that are not rng's, and later calls may not
    run_first_path(texts)
    # a function written in Python has the names of its file in __globals__
    for one in (function, rule.guess):
        forbid_in(getattr(one, "__globals__", {}))
    return texts, verify, rule.guess is not None, note


def run_first_path(texts: TextsOf) -> None:
    """Run the file's functions once, before random numbers that are not rng's are forbidden.

    Such numbers are allowed in the file's imports and in a first call, which may compile
    something.
    """
    draft, target = TOYS_IN_FLOATS["A"]

    def first_outcome(run):
        # without forks this rng takes the first branch of every decision
        rng = Forking([])
        return {tuple(run(rng)): 1.0}

    texts(draft, target, 1, first_outcome)


def judged_test(entry: Decoder) -> Callable:
    """Return the test of a decoder's entry; AssertionError if it needs other arguments."""
    test = entry.test
    parameters = inspect.signature(test).parameters.values()
    # the names of the arguments that have no default
    needed = [one.name for one in parameters if one.default is one.empty]
    # the first argument of a test of trees is called tree
    if needed[:1] == ["tree"]:
        raise AssertionError(f"its DECODER's test, {test.__name__}, tests a tree of guesses: "
                             "write a step that calls it, as docs/exercises.md shows")
    if len(needed) > 4:
        raise AssertionError(f"its DECODER's test, {test.__name__}, needs {needed[4]}: write "
                             "a function verify that gives it a value")
    return test


# ---- the judgement

class Clock:
    """Enumerate within a time limit; count the outcomes so far."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.end = time.monotonic() + seconds

    def start(self, what: str) -> None:
        """Begin to count outcomes; `what` names what is enumerated, for the error message."""
        self.what = what
        self.n_outcomes = 0

    def law(self, function: Callable) -> Texts:
        """Return exact.law.law(function); raise AssertionError if the time is over first."""
        return law(self.counted(function))

    def counted(self, function: Callable) -> Callable:
        """Return the function, its calls counted; raise AssertionError if the time is over."""
        def count_and_call(*args):
            # the time is checked between calls; main stops a call that does not end
            if time.monotonic() > self.end:
                raise AssertionError(f"still running after {self.seconds:g} s: {self.what}, "
                                     f"{self.n_outcomes:,} outcomes so far (--seconds sets the "
                                     "limit)")
            self.n_outcomes += 1
            return function(*args)

        return count_and_call


def judge(texts: TextsOf, seconds: float = math.inf) -> Iterator[Found]:
    """Yield the findings for every toy and K; raise AssertionError when time is up."""
    # one time limit for all toys together
    clock = Clock(seconds)
    for toy, K in product(TOYS_IN_FLOATS, (1, 2, 3)):
        draft, target = TOYS_IN_FLOATS[toy]
        clock.start(f"toy {toy}, K = {K}")
        yield Found(toy, K, texts(draft, target, K, clock.law), text_law(X, target, K + 1))


def tokens_of_round(verify: Test, toy: str, K: int) -> tuple[float, float]:
    """Return the mean tokens of a round of drawn guesses, and the most that is lossless.

    Block verification has the most of all lossless tests of one chain (exact/optimum.py).
    """
    draft, target = TOYS_IN_FLOATS[toy]
    step = draft_and_verify(draft, target, K, verify)
    tokens = expectation(lambda rng: step([*X], K + 1, rng).ids, len)
    return float(tokens), float(chain_mean(guess, block_tokens, toy, K))


def too_many_lines(verify: Test, found: Found) -> Iterator[str]:
    """Yield a line if a round writes more tokens than is lossless for a test of one chain."""
    # on this toy K + 1 tokens can be lossless, and no test writes more
    if found.toy == "equal":
        return
    tokens, most = tokens_of_round(verify, found.toy, found.K)
    if tokens > most + FLOAT32:
        yield (f"  {tokens:.3f} tokens per round, more than any test of one chain that is "
               f"lossless in each round ({most:.3f})")


def difference_lines(found: Found, tolerance: float = ROUNDING) -> Iterator[str]:
    """Yield lines that show the first token that is too frequent, and its alternatives.

    The token is at the first position at which the distribution of the texts so far differs
    from the target's by more than the tolerance. Such a position exists, because the whole
    texts differ by more.
    """
    for n_new in range(1, found.K + 2):
        n = len(X) + n_new
        got = prefix_law(found.texts, n)
        wanted = prefix_law(found.wanted, n)
        if total_variation(got, wanted) > tolerance:
            break
    # of all starts of n tokens, the start whose probability exceeds the target's by the most
    worst = max(got, key=lambda text: got[text] - wanted[text])
    # its alternatives have the same tokens before the last token
    alternatives = [(*worst[:-1], token) for token in range(toys.N_VOCAB)]
    yield f"toy {found.toy}, K = {found.K}: distance {found.distance:.2g}"
    yield "  text                      yours    target"
    for text in alternatives:
        mark = f"   <- too high by {got[text] - wanted[text]:.2g}" if text == worst else ""
        yield f"  {str(list(text)):20}{got[text]:11.4f}{wanted[text]:10.4f}{mark}"


# ---- the command

def table_of_findings(findings: list[Found]) -> str:
    """Return the distances of all toys and K as Markdown."""
    cells = {}
    for found in findings:
        cells[found.toy, found.K] = distance_cell(found.distance, ROUNDING)
    rows = [[toy, cells[toy, 1], cells[toy, 2], cells[toy, 3]] for toy in TOYS_IN_FLOATS]
    return markdown_table(["toy", "K = 1", "K = 2", "K = 3"], rows)


def print_judgement(texts: TextsOf, seconds: float, tolerance: float,
                    verify: Test | None = None, with_all: bool = False) -> int:
    """Print the judgement; return the exit status, 0 if the distribution is the target's.

    `verify` is the file's test if its guesses are one chain drawn from the draft, else None.
    The first wrong toy ends the judgement, unless `with_all` asks for the distances on all
    toys.
    """
    findings = []
    n_wrong = 0
    print(toys.toys_table(), "Toy equal: both models are A's target.\n", sep="\n\n", flush=True)
    for found in judge(texts, seconds):
        findings.append(found)
        if not found.distance <= tolerance:  # `not .. <=`, because a NaN is not exact
            n_wrong += 1
            print(*difference_lines(found, tolerance), sep="\n")
            if verify:
                for line in too_many_lines(verify, found):
                    print(line)
            if found.distance <= FLOAT32:
                print("  this is within float32 rounding: --tolerance "
                      f"{FLOAT32:g} accepts it")
            if not with_all:
                return 1
            continue
        size = "exact" if found.distance <= ROUNDING else f"distance {found.distance:.0e}"
        print(f"toy {found.toy}, K = {found.K}: {size}, {len(found.texts)} texts", flush=True)
    if with_all:
        print(f"\nDistance from the target's distribution:\n\n{table_of_findings(findings)}\n")
    if n_wrong:
        return 1
    within = "" if tolerance == ROUNDING else f" to within {tolerance:g} (--tolerance)"
    print(f"The distribution is the target's{within} for K = 1, 2 and 3 on these toys.")
    print(NOT_ENUMERATED)
    return 0


def answer(file: str, seconds: float = SECONDS, tolerance: float = ROUNDING,
           with_rows: bool = False, with_all: bool = False) -> int:
    """Judge a file in this process and print; return the exit status."""
    path = Path(file)
    try:
        texts, verify, has_own_guesses, note = load_file(path)
        if with_rows and not verify:
            raise AssertionError(
                "--rows needs a function verify instead of a step, because there are no models "
                "of the recorded rows that a step can call")
        if note:
            print(f"{note}\n")
        # the bound on tokens per round holds for guesses that are drawn from the draft
        test_of_drawn_chain = None if has_own_guesses else verify
        status = print_judgement(texts, seconds, tolerance, test_of_drawn_chain, with_all)
        if with_rows and verify:
            clock = Clock(seconds)
            clock.start("the recorded rounds")
            for paragraph in recorded.paragraphs(path.name, clock.counted(verify)):
                print(f"\n{paragraph}", flush=True)
            if status == 1:
                print(f"{path.name} is not lossless: the bound does not hold for it.")
        # a closed pipe raises here, within the `try`, and not later when Python ends
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # as in `| head -1`: nobody reads the answer
        # Python flushes stdout when it ends, and the closed pipe would raise once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    except (Exception, SystemExit) as error:
        print(sentence(error, path))
    return 2


def positive(text: str, limit: float = math.inf) -> float:
    """Read a number between 0 and the limit."""
    try:
        number = float(text)
    except ValueError:
        # a NaN fails every comparison, so the next line refuses it
        number = math.nan
    if not 0 < number < limit:
        raise ValueError(f"need a number above 0 and below {limit:g}, got {text!r}")
    return number


@command("exact.judge")
def main(argv: list[str] | None = None) -> int:
    """Judge a file in a separate process, which is stopped if a call does not end."""
    parser = Parser("python -m exact.judge", description=__doc__.split("\n")[0])
    parser.add_argument("file", help="a Python file that defines verify, step or DECODER")
    parser.add_argument("--seconds", type=positive, default=SECONDS,
                        help="time limit of the enumeration, in seconds (default: %(default)g)")
    parser.add_argument("--tolerance", type=partial(positive, limit=1), default=ROUNDING,
                        help="call a verifier exact up to this distance (default: %(default)g; "
                             f"float32 needs {FLOAT32:g})")
    parser.add_argument("--rows", action="store_true",
                        help="also show the tokens per round of verify on recorded rows")
    parser.add_argument("--all", action="store_true",
                        help="continue after the first wrong toy; show the distances on all "
                        "toys")
    args = parser.parse_args(argv)
    program = PROGRAM.format(args.file, args.seconds, args.tolerance, args.rows, args.all)
    # each enumeration has its own time limit, and PROGRAM gives up when it is over
    n_enumerations = 2 if args.rows else 1
    limit = args.seconds * n_enumerations + GRACE
    # -B: the process leaves no files of compiled code
    try:
        status = subprocess.run([sys.executable, "-B", "-c", program], timeout=limit).returncode
    except subprocess.TimeoutExpired:  # run() has killed the process
        print(f"{args.file} was still running after {limit:g} s (an endless loop?)")
        return 2
    if status not in JUDGED:  # it crashed, or the file called os._exit
        print(f"{args.file} ended its process without an answer (exit status {status})")
    return JUDGED.get(status, 2)


if __name__ == "__main__":
    sys.exit(main())
