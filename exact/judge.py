"""Check whether your acceptance rule is exact, by enumerating the distribution of its texts.

    python -m exact.judge FILE.py
    python -m exact.judge FILE.py --temperature 0    for greedy decoding
    python -m exact.judge FILE.py --K 5              with 5 guesses per round
    python -m exact.judge FILE.py --N 6              texts of at least 6 new tokens

FILE.py defines a verify, a guess, a step or a DECODER, as exact/rule_file.py says. A step is
compared with the target under the file's `setting` and `STOP`. Of a DECODER the step is judged
that its `build` returns for each text, or its test alone if `build` needs more than two models.

Every outcome is enumerated on the printed toys. A `verify` should depend on its arguments
alone, so single rounds are enumerated, with K = 1 to 4. A `step` may remember earlier rounds,
so whole texts of three or four new tokens are enumerated, with K = 1 to 3. On toy D, whose rows
depend on the whole text as a real model's do, a `verify` writes whole texts for K = 1 and 2
too. A toy is left out if `setting` leaves no token after one of its texts. The exit
status is 0 if every text has the target's probability, 1 if one does not, and 2 if there is no
answer. For a verifier over arrays use exact/oracle.py.
"""

import inspect
import math
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import speculative
from exact import oracle, rule_file, toys
from exact.law import (
    NOT_DETERMINISTIC,
    RERUNS,
    Forking,
    forbid_in,
    law,
    prefix_law,
    text_law,
    total_variation,
)
from exact.rules import register
from exact.rules.register import Rule, enumerated_rule
from exact.rules.verifiers import best_of
from exact.toys import N_NEW, Found, Setting, X, mapped
from lib.terminal import Parser, command
from sampling import with_sampling
from speculative import Model, Step, Test, make_step
from variants.registry import Decoder, Models, build, number, whole

SECONDS = 60.0  # time limit of an answer
ROUNDING = 1e-12  # the largest distance of an exact verifier in float64; errors are near 1e-16
DIGITS = 1e-4  # a difference of probabilities that their four printed digits show
FLOAT32 = 1e-6  # the largest distance of an exact verifier in float32
NOT_ENUMERATED = """\
This does not cover more guesses (--K), probabilities that the toys do not have (between 0 and
0.0003, for example), vocabularies of more than 3 tokens, longer texts (--N), other sampling
settings, faults that begin after thousands of calls, or real models and their caches.
See docs/exactness.md#what-is-enumerated-and-what-is-not"""
# PROGRAM runs the judged file in a process that the command can stop. It ignores Ctrl-C,
# because the command waits for PROGRAM, reports Ctrl-C and ends PROGRAM. It adds 100 to the
# exit status, so that the 0, 1 or 2 of a file that ends its process is not taken for an answer.
# os._exit does not wait for threads of the file, and does not write to a closed pipe.
PROGRAM = """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
from exact.judge import answer
os._exit(100 + answer(**{!r}))
"""


# ---- toys

Toy = tuple[Model, Model]  # draft, target; both in float64


def in_floats(rows_of: Callable, pair: Any, next_number: Callable) -> Toy:
    """Return the toy of a pair whose models' rows are rows_of(draft), rows_of(target)."""
    draft, target = (np.array(rows_of(model), dtype=float) for model in pair)
    return toys.numbered(draft, next_number), toys.numbered(target, next_number)


MARKOV = {name: in_floats(toys.fractions, pair, toys.by_last_token)
          for name, pair in toys.TENTHS.items()}
EQUAL = MARKOV["C"][1], MARKOV["C"][1]  # C's target twice
D = in_floats(toys.fractions, toys.D_TENTHS, toys.by_text)
# with one-hot rows, zeros and probabilities near 0 and 1
EXTREME = {f"extreme {i}": in_floats(toys.rows_of_numbers, pair, toys.by_later_token)
           for i, pair in enumerate(oracle.TOYS[toys.N_VOCAB], 1)}
# rounds have few outcomes, so a guess and a test are given many rows
BY_ROUNDS = {**MARKOV, "equal": EQUAL, **EXTREME}
FOR_VERIFY = {**BY_ROUNDS, "D": D}
# whole texts of a step have few outcomes on these toys with zeros, so they are the first
FEW_OUTCOMES = ("C", "equal", "extreme 4", "D")
FOR_STEP = {name: FOR_VERIFY[name] for name in (*FEW_OUTCOMES, *FOR_VERIFY)}
# settings that a DECODER is judged with on toy D for K = 2, most of them alone, so that a
# setting that is dropped is seen
SAMPLING: list[dict[str, Any]] = [
    dict(temperature=0.5, top_k=2), dict(temperature=0.5), dict(top_k=2), dict(top_p=0.65),
    dict(repetition_penalty=4)]
GREEDY_SAMPLING: list[dict[str, Any]] = [dict(temperature=0, repetition_penalty=4)]
ABOUT = {  # {toy: what is printed before the first answer}
    "equal": "Toy equal: draft and target are C's target.",
    "D": "Toy D: rows depend on the whole text. Row 0 follows no token. If row n follows a\n"
         "text, row (3 n + token + 1) mod 7 follows the text and one more token.\n\n"
         + toys.toys_table({"D": toys.D_TENTHS}, "of rows 0; 1; ..; 6"),
    "extreme": "The extreme toys are TOYS of exact/oracle.py, with one-hot rows, zeros and\n"
               "probabilities near 0 and 1.",
}
# what the rules of the register are told apart by
CASES_OF_RULES = [("A", 1), ("B", 1), ("C", 1), ("A", 2), ("C", 2)]


# ---- what the file defines

class Logits:
    """Return a toy's rows as logits, for the `build` of a DECODER."""

    n_ctx = math.inf
    n_vocab = toys.N_VOCAB

    def __init__(self, model: Model):
        self.model = model

    def __call__(self, ids: Any, n_last: int = 1) -> np.ndarray:
        rows = self.model(ids, n_last)
        # a zero gets a finite logit, because models have no others; its exp() is 0 again
        return np.log(rows, where=rows > 0, out=np.full(rows.shape, -1e4))

    def fresh(self) -> "Logits":
        return self


class Judged(NamedTuple):
    """Hold a rule as a step, and what is needed to enumerate its texts."""

    step_of: Callable[[Model, Model, int], Step]  # (draft, target, K) -> step
    toys: Mapping[str, Toy]
    by_rounds: Collection[str] = ()  # toys on which rounds are enumerated, instead of texts
    are_drawn: bool = False  # the guesses, from the draft
    setting: Setting | None = None
    stop: tuple[int, ...] = ()
    note: str = ""  # on what is not judged
    tolerance: float = ROUNDING  # the largest distance of an exact rule
    is_greedy: bool = False  # judged at temperature 0
    decoder: Decoder | None = None  # its `build` makes the step
    sampling: dict[str, Any] = {}  # the settings of its models
    K: int | None = None  # the only number of guesses per round; None: several
    N: int = 0  # the least number of new tokens of a text; 0: few enough for seconds

    @property
    def has_K(self) -> bool:
        """Return whether the step gets K: not that of a DECODER whose `build` has none."""
        return not self.decoder or "K" in self.decoder.flags

    def at_temperature_0(self) -> "Judged":
        """Return the rule with one-hot rows of the target; the draft still guesses anything.

        A step with a setting gets the target's own rows, because its setting comes before the
        choice of the most probable token, as in sampling.warp.
        """
        if self.decoder:
            return self.under(dict(temperature=0))._replace(is_greedy=True)
        if self.setting:
            return self._replace(is_greedy=True)
        greedy = {name: (draft, mapped(target, best_of))
                  for name, (draft, target) in self.toys.items()}
        return self._replace(toys=greedy, is_greedy=True)

    def under(self, sampling: dict[str, Any]) -> "Judged":
        """Return the DECODER's rule, built with these settings."""
        assert self.decoder
        step_of = partial(step_of_decoder, self.decoder, sampling)
        return self._replace(step_of=step_of, sampling=sampling)

    def texts(self, toy: Toy, K: int, n_new: int = N_NEW) -> dict:
        """Return {text: probability} of whole texts."""
        return law(partial(self.whole_text, toy, K, n_new))

    def whole_text(self, toy: Toy, K: int, n_new: int, rng: Any) -> list[int]:
        """Run a new step until the text has enough tokens, or a stop token."""
        step = self.step_of(*toy, K)
        text = [*X]
        end = len(text) + n_new
        while len(text) < end:
            ids = step([*text], end - len(text), rng).ids
            text += ids
            # tokens after a stop token stay: to cut them is the step's task
            if any(token in self.stop for token in ids):
                break
        return text

    def wanted(self, toy: Toy, n_new: int = N_NEW) -> dict:
        """Return the right {text: probability}: the target's under the setting."""
        _, target = toy
        if self.sampling:
            target = with_sampling(Logits(target), **self.sampling)
        if self.setting:
            target = toys.under(self.setting, target, len(X))
            if self.is_greedy:
                target = mapped(target, best_of)
        return text_law(X, target, n_new, self.stop)

    def most_guesses(self, name: str) -> int:
        """Return the largest K whose outcomes on a toy can be enumerated in seconds."""
        if self.by_rounds:
            return 3 if name in ("A", "B", "D") else 4
        return 3 if name in FEW_OUTCOMES else 2

    def guesses_per_round(self, name: str) -> Sequence[int]:
        """Return each K with which the rule is judged on a toy."""
        if not self.has_K:
            return [1]  # `build` does not get it
        return [self.K] if self.K else range(1, 1 + self.most_guesses(name))

    def with_guesses(self, K: int) -> "Judged":
        """Return the rule with this K alone, on the toys that take the least time."""
        enough = min(K, max(map(self.most_guesses, self.toys)))
        few = {name: toy for name, toy in self.toys.items()
               if self.most_guesses(name) >= enough}
        return self._replace(toys=few, K=K)

    def n_new(self, name: str, K: int) -> int:
        """Return the number of new tokens of texts on a toy."""
        if self.are_rounds(name, K):
            return max(self.N, K + 1)
        # three tokens have several rounds, so they show what a test keeps from earlier rounds
        is_short = self.by_rounds or K > 1 and name not in FEW_OUTCOMES
        return max(self.N or N_NEW - bool(is_short), K + 1)

    def are_rounds(self, name: str, K: int) -> bool:
        """Return whether rounds are enumerated on a toy, and not whole texts."""
        # with three guesses the whole texts of a test that draws from each row are too many
        return name in self.by_rounds or bool(self.by_rounds) and K >= 3 and not self.N

    def found(self, name: str, K: int) -> Found:
        """Return both distributions on a toy."""
        toy = self.toys[name]
        n_new = self.n_new(name, K)
        if self.are_rounds(name, K):
            @cache
            def round_after(x, k):
                return toys.law_of_round(self.step_of(*toy, k), x, k)

            texts = toys.texts_by_rounds(round_after, K, n_new)
        else:
            texts = self.texts(toy, K, n_new)
        return Found(name, K, texts, self.wanted(toy, n_new))

    def check_setting(self, name: str) -> None:
        """Raise NoMass unless each text of a toy has a next token, of the draft too."""
        assert self.setting

        def weights_of_both(ids, n_last):
            rows = [model(ids, 1)[-1] for model in self.toys[name]]
            return [sum(self.setting(row, tuple(ids[len(X) :])) for row in rows)]

        most = max(self.guesses_per_round(name))
        text_law(X, weights_of_both, self.n_new(name, most), self.stop)  # asks for all texts

    def with_possible_texts(self) -> "Judged":
        """Return the rule without the toys on which its setting leaves a text no token."""
        left_out: dict[str, Exception] = {}
        for name in self.toys:
            try:
                self.check_setting(name)
            except rule_file.NoMass as error:
                left_out[name] = error
        if not left_out:
            return self
        if len(left_out) == len(self.toys):
            raise [*left_out.values()][0]
        note = (f"Not judged on toy {', '.join(left_out)}, where the file's setting leaves no "
                "token after a text.")
        kept = {name: toy for name, toy in self.toys.items() if name not in left_out}
        return self._replace(toys=kept, note=f"{self.note}\n{note}".strip())

    def is_right(self, found: Found) -> bool:
        """Return whether the distance is within the tolerance; a NaN is not."""
        return bool(found.distance <= self.tolerance)


def judged_verify(verify: Test, make_guesses: Callable = speculative.guess) -> Judged:
    """Return a test of drawn guesses, or of the guesses that `make_guesses` makes."""
    def step_of(draft, target, K):
        return make_step(target, K, partial(make_guesses, draft=draft), verify)

    are_drawn = make_guesses is speculative.guess
    return Judged(step_of, FOR_VERIFY, BY_ROUNDS, are_drawn)


def judged_step(step: Callable, setting: Setting | None = None,
                stop: tuple[int, ...] = ()) -> Judged:
    """Return a step under a setting; its rounds may depend on earlier rounds."""
    def step_of(draft, target, K):
        return partial(step, draft=draft, target=target, K=K)

    return Judged(step_of, FOR_STEP, setting=setting, stop=stop)


def step_of_decoder(entry: Decoder, sampling: dict[str, Any], draft: Model, target: Model,
                    K: int) -> Step:
    """Return the step that a DECODER's `build` makes; flags other than --K have defaults."""
    models = Models(Logits(draft), Logits(target), sampling)
    step = build(entry, models, {"K": K} if "K" in entry.flags else {})
    return lambda x, n_left, rng: rule_file.checked_round(step(x, n_left, rng), n_left)


def judged_decoder(entry: Decoder) -> Judged:
    """Return the step of a DECODER, or its test if `build` needs more than draft and target."""
    flags = entry.settings({})
    if entry.needs(flags) <= {"draft"} and not entry.draft_maker(flags):
        judged = Judged(partial(step_of_decoder, entry, {}), FOR_STEP, decoder=entry)
        return judged.at_temperature_0() if entry.greedy else judged
    judged = judged_verify(rule_file.checked_verify(test_of_decoder(entry)))
    return judged._replace(note=f"Only the DECODER's test was judged, {entry.test.__name__}; "
                                "how the decoder makes its guesses was not.")


def judged_file(path: Path, temperature: float = 1) -> Judged:
    """Run the file; return the rule that it defines, at temperature 1 or 0."""
    names = rule_file.names_in_file(path)
    rule = rule_file.rule_of(names)
    if not {*rule.stop} <= {*range(toys.N_VOCAB)}:
        raise AssertionError("need STOP among the tokens of the toys, 0, 1 and 2, got "
                             f"{', '.join(map(str, rule.stop))}: take one of these here")
    if rule.step:
        setting = rule.setting and rule_file.checked_setting(rule.setting)
        judged = judged_step(rule_file.checked_step(rule.step), setting, rule.stop)
        # imported functions have a different module
        others = [name for name in ("guess", "verify")
                  if getattr(names.get(name), "__module__", None) == names["__name__"]]
        if others:
            judged = judged._replace(note=f"Only step was judged; {' and '.join(others)} only "
                                          "where step calls them.")
    elif rule.decoder:
        judged = judged_decoder(rule.decoder)
    else:
        # speculative.guess, imported or in a file run by its path, is no guess of its own
        is_own = getattr(rule.guess, "__code__", None) != speculative.guess.__code__
        make_guesses = speculative.guess
        if rule.guess and is_own:
            make_guesses = rule_file.checked_guess(rule.guess)
        test = rule_file.checked_verify(rule.verify or speculative.verify)
        judged = judged_verify(test, make_guesses)
    if temperature == 0:
        judged = judged.at_temperature_0()
    # random numbers that are not rng's are allowed in imports and in a first call, which may
    # compile something. Without forks this rng takes the first branch of every decision
    first_toy = next(iter(judged.toys.values()))
    judged.step_of(*first_toy, 1)([*X], 2, Forking([]))
    functions = [rule.step, rule.guess, rule.verify]
    if rule.decoder:
        functions += [rule.decoder.build, rule.decoder.guess, rule.decoder.test]
    forbid_in(rule_file.namespaces(path, functions))
    return judged


def test_of_decoder(entry: Decoder) -> Callable:
    """Return the test of a decoder's entry; AssertionError if it needs other arguments."""
    test = entry.test
    parameters = inspect.signature(test).parameters.values()
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

def starts_at_first_fault(judged: Judged, found: Found) -> tuple[dict, dict]:
    """Return {tokens: probability} of the rule and of the target, up to the first wrong token.

    This is the first position at which the printed digits of a text so far are too large, or
    else the first position at which the total variation exceeds the tolerance.
    """
    ends = range(len(X) + 1, max(map(len, [*found.texts, *found.wanted])) + 1)
    # of texts that a stop token ended earlier, the whole text is compared
    starts = [(prefix_law(found.texts, n), prefix_law(found.wanted, n)) for n in ends]
    visible = [(got, wanted) for got, wanted in starts
               if any(got[text] - wanted[text] > DIGITS for text in got)]
    wrong = [pair for pair in starts if not total_variation(*pair) <= judged.tolerance]
    return (visible or wrong)[0]


def difference_lines(judged: Judged, found: Found) -> Iterator[str]:
    """Yield lines that show the first token that is too frequent, and its alternatives."""
    got, wanted = starts_at_first_fault(judged, found)
    # of all starts of a text, the start whose probability exceeds the target's by the most
    worst = max(got, key=lambda text: got[text] - wanted[text])
    # its alternatives have the same tokens before the last token
    alternatives = [(*worst[:-1], token) for token in range(toys.N_VOCAB)]
    K_words = f", K = {found.K}" if judged.has_K else ""
    yield f"toy {found.toy}{K_words}: total variation {found.distance:.2g}"
    yield f"  prompt {list(X)}, then          yours    target"
    for text in alternatives:
        mark = f"   <- too high by {got[text] - wanted[text]:.2g}" if text == worst else ""
        new_tokens = str(list(text[len(X):]))
        yield f"  {new_tokens:20}{got[text]:11.4f}{wanted[text]:10.4f}{mark}"


def draws_nothing(judged: Judged) -> bool:
    """Return whether the test, or the whole step, draws no random number in a first round."""
    draft, target = MARKOV["A"]

    def n_drawn(rng):
        done = judged.step_of(draft, target, 2)([*X], 3, rng)
        # each guess that is drawn from the draft has drawn one number
        return rng.draws - (len(done.guesses) if judged.are_drawn else 0)

    return law(n_drawn).keys() == {0}


def rule_with_these_texts(judged: Judged) -> Rule | None:
    """Return the wrong rule of the register that writes the same texts, if there is one."""
    rules = [rule for rule in register.RULES if not rule.exact]
    is_known_wrong = False
    # the register's toys; few guesses tell its rules apart (tests/test_judge.py)
    for name, K in CASES_OF_RULES:
        texts = judged.texts(MARKOV[name], K, K + 1)
        rules = [rule for rule in rules if total_variation(
            texts, enumerated_rule(rule, name, K).texts) <= FLOAT32]
        right = judged.wanted(MARKOV[name], K + 1)
        is_known_wrong = is_known_wrong or total_variation(texts, right) > FLOAT32
    return rules[0] if rules and is_known_wrong else None


def remarks(judged: Judged, wrong: Found, path: Path) -> Iterator[str]:
    """Yield what may help to see why the texts are wrong."""
    if wrong.distance <= FLOAT32:
        yield f"this is within float32 rounding: --tolerance {FLOAT32:g} accepts it"
    if judged.is_greedy and judged.setting:
        yield ("at temperature 0 a step with a setting gets the target's rows, which are not "
               "one-hot: it must choose the most probable token under the setting")
    if judged.is_greedy or judged.setting or judged.stop or judged.sampling:
        return
    rule = rule_with_these_texts(judged)
    if rule:
        yield (f"the same figures as {rule.id}: {rule.name} (docs/wild.md), "
               "as far as the toys show")
    if draws_nothing(judged):
        yield ("it draws no random number, so it can be right for greedy decoding only: "
               f"python -m exact.judge {path} --temperature 0")


# ---- the command

def print_toys(judged: Judged) -> None:
    """Print the toys on which a rule is judged."""
    pairs = {name: rows for name, rows in toys.TENTHS.items() if name in judged.toys}
    print(toys.toys_table(pairs))
    # "extreme 4" is one of the extreme toys, which are explained once
    for name in dict.fromkeys(name.split()[0] for name in judged.toys):
        if name in ABOUT:
            print(f"\n{ABOUT[name]}")
    print(flush=True)


def first_wrong(judged: Judged) -> Found | None:
    """Judge toy after toy, and print a line on each right one; return the first wrong texts."""
    for name in judged.toys:
        largest = 0.0
        *few, last = judged.guesses_per_round(name)
        for K in (*few, last):
            found = judged.found(name, K)
            if not judged.is_right(found):
                # hidden randomness writes different texts when they are enumerated again
                for _ in range(RERUNS):
                    if repr(judged.found(name, K)) != repr(found):
                        raise AssertionError(NOT_DETERMINISTIC)
                return found
            largest = max(largest, found.distance)
        size = "exact" if largest <= ROUNDING else f"total variation {largest:.0e}"
        K_words = f"{', '.join(map(str, few))} and {last}" if few else last
        K_words = f" for K = {K_words}" if judged.has_K else ""
        print(f"toy {name}: {size}{K_words}, {len(found.texts)} texts of "
              f"{max(map(len, found.wanted)) - len(X)} tokens", flush=True)
    return None


def print_fault(judged: Judged, wrong: Found, path: Path) -> None:
    """Print where the texts are wrong, and what may help to see why."""
    print(*difference_lines(judged, wrong), sep="\n", flush=True)
    try:
        for remark in remarks(judged, wrong, path):
            print(f"  {remark}")
    except (Exception, SystemExit) as error:
        # remarks need other toys; a wrong rule stays wrong if the file fails on these
        print(rule_file.sentence(error, path))


def print_verdict(judged: Judged) -> None:
    """Print that all texts have the right distribution, and what this does not cover."""
    whose = "the target's"
    if judged.is_greedy:
        whose += " at temperature 0"
    if judged.setting or judged.stop:
        whose += " under the file's setting"
    if judged.tolerance != ROUNDING:
        whose += f" to within {judged.tolerance:g} (--tolerance)"
    print(f"The distribution is {whose} in all of these cases.\n{NOT_ENUMERATED}")
    if judged.note:
        print(judged.note)


def print_judgement(path: Path, tolerance: float = ROUNDING, temperature: float = 1,
                    K: int | None = None, N: int = 0) -> int:
    """Judge a file and print; return the exit status, 0 if all distributions are right."""
    judged = judged_file(path, temperature)._replace(tolerance=tolerance, N=N)
    if K and not judged.has_K:
        raise AssertionError("leave out --K, because the DECODER's build has no K")
    if K:
        judged = judged.with_guesses(K)
    if judged.setting:
        judged = judged.with_possible_texts()
    print_toys(judged)
    wrong = first_wrong(judged)
    if judged.decoder:
        for sampling in GREEDY_SAMPLING if judged.is_greedy else SAMPLING:
            if wrong:
                break
            words = [f"{name} {value}" for name, value in sampling.items()]
            print(f"with {' and '.join(words)}:")
            judged = judged.under(sampling)._replace(toys={"D": D}, K=K or 2)
            wrong = first_wrong(judged)
    if wrong:
        print_fault(judged, wrong, path)
        return 1
    print_verdict(judged)
    return 0


def answer(file: str, **flags: Any) -> int:
    """Judge a file in this process; return the exit status, 2 if it cannot be judged."""
    try:
        status = print_answer(Path(file), **flags)
        # here, because PROGRAM ends without it, and a closed pipe raises
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # as in `| head -1`: nobody reads the answer
        return 2


def print_answer(path: Path, **flags: Any) -> int:
    """Judge a file and print, or print one sentence if it cannot be judged, and return 2."""
    try:
        return print_judgement(path, **flags)
    except BrokenPipeError:
        raise
    except (Exception, SystemExit) as error:
        print(rule_file.sentence(error, path))
        return 2


def positive(text: str, limit: float = math.inf) -> float:
    """Read a number between 0 and the limit."""
    value = number(text)
    if not 0 < value < limit:
        raise ValueError(f"need a number above 0 and below {limit:g}, got {text!r}")
    return value


@command("exact.judge")
def main(argv: list[str] | None = None) -> int:
    """Judge a file in a separate process, which is stopped when its time is over."""
    parser = Parser("python -m exact.judge", description=__doc__.split("\n")[0])
    parser.add_argument("file", help="a Python file with a verify, guess, step or DECODER")
    parser.add_argument("--temperature", type=float, choices=[0, 1], default=1,
                        help="0: the target's rows are one-hot, as in greedy decoding "
                             "(default: 1)")
    parser.add_argument("--K", type=whole, help="guesses per round (default: 1, 2, ..)")
    parser.add_argument("--N", type=whole, default=0,
                        help="new tokens per text, at least (default: as many as the lines of "
                             "the answer say)")
    parser.add_argument("--tolerance", type=partial(positive, limit=1), default=ROUNDING,
                        help="call a rule exact up to this total variation (default: "
                             f"%(default)g; float32 needs {FLOAT32:g})")
    parser.add_argument("--seconds", type=positive, default=SECONDS,
                        help="time limit in seconds (default: %(default)g)")
    flags = vars(parser.parse_args(argv))
    file = flags["file"]
    seconds = flags.pop("seconds")
    # -B: the process leaves no files of compiled code
    program = [sys.executable, "-B", "-c", PROGRAM.format(flags)]
    try:
        status = subprocess.run(program, timeout=seconds).returncode
    except subprocess.TimeoutExpired:  # run() has killed the process
        print(f"{file} was still running after {seconds:g} s: an endless loop, or --seconds "
              "must be larger. Only what is printed above was judged")
        return 2
    if status not in (100, 101, 102):  # it crashed, or the file called os._exit
        print(f"{file} ended its process without an answer (exit status {status})")
        return 2
    return status - 100


if __name__ == "__main__":
    sys.exit(main())
