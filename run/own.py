"""Run a rule that you wrote with real models: main.py --decoder FILE.py.

exact/rule_file.py says what FILE.py defines and reads it. The draft guesses for a file without
a `guess`, and speculative.py's `verify` tests for a file without a `verify`. Such a rule has
the flag --K; a DECODER has its own flags. If the file raises an error, main.py prints one
sentence.

A run does not show whether a rule is exact: python -m exact.judge FILE.py does.
"""

from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

import speculative
from exact import rule_file
from lib.pattern import DeadEnd
from speculative import Step, make_step
from variants.registry import GUESSES, Decoder, Models


def read_entry(name: str) -> Decoder:
    """Return the entry of a file, which has the file's name; it is not known to be exact."""
    path = Path(name)
    rule = in_a_sentence(path, lambda: rule_file.rule_of(rule_file.names_in_file(path)))
    if rule.decoder:
        entry = rule.decoder
        in_a_sentence(path, lambda: entry.settings({}))  # reads the flags of its `build`
    else:
        entry = entry_of_functions(rule)

    # Each of these fields, and the step or draft maker that it returns, may raise any error.
    names = ("build", "plain", "draft_maker", "needs", "exact")
    fields = {name: guarded(path, field) for name in names if (field := getattr(entry, name))}
    says_exact = fields["exact"]
    # False if the file says that its decoder is not exact, otherwise None: not known. A file
    # that calls its decoder exact has not shown it.
    fields["exact"] = lambda settings: None if says_exact(settings) else False
    return entry._replace(**fields | {"name": name})


def guarded(path: Path, function: Callable, is_field: bool = True) -> Callable:
    """Return the function with its errors in a sentence; a field also returns such a one."""
    # wraps keeps the signature of `build`, from which the flags are read, and the attributes of
    # a step (variants/coupled.py).
    @wraps(function)
    def value_or_error(*args, **settings):
        value = in_a_sentence(path, lambda: function(*args, **settings))
        return guarded(path, value, False) if is_field and callable(value) else value

    return value_or_error


def entry_of_functions(rule: rule_file.FileRule) -> Decoder:
    """Return the entry of a file without a DECODER."""
    # A step guesses and tests, so it fills both fields of the entry.
    make_guesses = rule.step or rule.guess or speculative.guess
    test = rule.step or rule.verify or speculative.verify

    def build(models: Models, K: GUESSES = 4) -> Step:
        """Return the step: the file's own, or its guess and its test."""
        draft = models.draft_rows
        target = models.target_rows
        if rule.step:
            step = rule_file.checked_step(rule.step, models.target.n_vocab)
            return partial(step, draft=draft, target=target, K=K)
        # make_step's guess has no argument for the draft, so the draft is bound here.
        guess = partial(rule_file.checked_guess(make_guesses), draft=draft)
        return make_step(target, K, guess, rule_file.checked_verify(test))

    names = [name for name in ("step", "guess", "verify") if getattr(rule, name)]
    return Decoder("own", "your file", "", idea=f"Your {' and '.join(names)}.",
                   guess=make_guesses, test=test, build=build)


def in_a_sentence(path: Path, function: Callable[[], Any]) -> Any:
    """Return function(); raise ValueError with one sentence for any error but a DeadEnd."""
    try:
        return function()
    except DeadEnd:  # of the run's pattern, which is no fault of the file
        raise
    except (Exception, SystemExit) as error:
        raise rule_file.RuleError(rule_file.sentence(error, path)) from error
