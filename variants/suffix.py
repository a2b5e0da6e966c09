"""Oliaro et al. (2024), "SuffixDecoding". Lossless.

Adds to lookup.py: counts of all tokens that followed a run, and any other decoder for the
rounds in which the counts are not clear. The guesses are the tokens that most often followed
the last m tokens, up to a least probability. Finished texts can be remembered for later texts
(lib/memory.py).

    run           some tokens in a row
    m             the length of the run, at the end of the text, that the guesses continue; 1,
                  2, .. depth - 1 are all tried
    probability   of a guess: the product of the relative frequencies on its path
    score         the sum of the probabilities: how many guesses are expected to be right
    factor        a run of m tokens gives at most min(cap, factor m) guesses; alpha in the
                  paper's MAX_SPEC
    otherwise     the decoder of all other rounds with its flags, such as "eagle --widths 2,1"

A copied guess is not drawn, so its row is one-hot, as in lookup.py. A round is either copied or
a round of the other decoder, and this choice is made before any sampling. Both are exact, so
the text is exact.
"""

from collections import defaultdict
from functools import partial
from typing import Annotated

from lib.memory import read_memory
from sampling import one_hot_rows
from speculative import Step, speculative_step
from variants.registry import (
    Decoder,
    Flag,
    Models,
    exact_decoder,
    inner_decoder,
    number,
    of_inner,
    whole,
)

DEFAULT = "speculative"  # guesses where nothing is copied


class Counts:
    """Count what came next after every run of up to depth - 1 tokens: the paper's suffix tree.

    `after[run]` is {token: how often it followed the run}, the latest token last.

    >>> after = Counts(3, [[0, 1, 0, 2, 0, 1]]).after
    >>> after[(0,)], after[(0, 1)]
    ({2: 1, 1: 2}, {0: 1})
    """

    def __init__(self, depth, texts=()):
        self.depth = depth
        self.after: dict[tuple, dict] = defaultdict(dict)
        self.text: list[int] = []  # the text that `follow` has counted
        for text in texts:
            self.add(text, 0)

    def add(self, text, start):
        """Count the tokens of a text from index `start` on, each after the runs before it."""
        for i in range(start, len(text)):
            token = text[i]
            longest = min(self.depth - 1, i)  # i tokens are before this token
            for m in range(1, longest + 1):
                followed = self.after[tuple(text[i - m : i])]  # the m tokens before this token
                # The token is removed and put back, so that the latest token is the last key.
                followed[token] = followed.pop(token, 0) + 1

    def follow(self, x):
        """Count what is new in a text that grows; begin again if x is a different text."""
        if x[: len(self.text)] != self.text:
            self.after.clear()
            self.text = []
        self.add(x, len(self.text))
        self.text = list(x)  # a copy, because the caller's list will grow


def most_frequent_path(run, after, n, min_prob):
    """Return up to n tokens along the most frequent continuation of a run, and their score."""
    guesses: list[int] = []
    probability = 1.0
    score = 0.0
    while len(guesses) < n and (followed := after.get(run)):
        # Of equals max returns the first, so of equally frequent tokens the latest is taken.
        token = max(reversed(followed), key=followed.get)
        probability *= followed[token] / sum(followed.values())
        if probability < min_prob:
            break
        guesses.append(token)
        score += probability
        # The run grows, until it is longer than all runs that were counted.
        run += (token,)
    return guesses, score


def best_guess(x, all_counts, k, factor=2.0, min_prob=0.1):
    """Return up to k guesses and their score: the largest score over all m and all Counts.

    >>> counts = Counts(8, [[0, 1, 2, 0, 1, 3, 0, 1, 2, 0]])
    >>> best_guess([9, 0], [counts], k=4)  # 1 always came after 0, then 2 in two of three cases
    ([1, 2], 1.6666666666666665)
    """
    candidates = [([], 0.0)]  # no guesses, if no run of x has occurred before
    longest = min(all_counts[0].depth - 1, len(x))  # all Counts have one depth
    for m in range(longest, 0, -1):
        run = tuple(x[-m:])
        n = int(min(k, factor * m))  # a longer run predicts more tokens
        for counts in all_counts:
            candidates.append(most_frequent_path(run, counts.after, n, min_prob))
    # Of equal scores max returns the first: of the largest m, and then of the first Counts.
    return max(candidates, key=lambda candidate: candidate[1])


def copy_step(x, n_left, rng, copies, target, n_vocab, sure, other_step=None):
    """Run a round of copied guesses if their score is at least `sure`, else `other_step`."""
    guesses, score = copies(x)
    # No guess is drawn before this choice, so the choice does not bias the text.
    if other_step and score < sure:
        return other_step(x, n_left, rng)

    def copied(x, k, rng):
        return guesses[:k], one_hot_rows(guesses[:k], n_vocab)

    return speculative_step(x, n_left, rng, target, len(guesses), copied)


def inner(settings):
    """Return the entry and the settings of the decoder of all other rounds."""
    # If every round is copied, no other decoder runs, and suffix needs as little as lookup.
    name = settings["otherwise"] if settings["sure"] else "lookup"
    return inner_decoder(name, settings["K"])


def build(models: Models,
          K: Annotated[int | None, Flag(whole, "guesses per round of the other decoder "
              "(default: the decoder's own)")] = None,
          cap: Annotated[int, Flag(whole, "largest number of guesses copied per round")] = 10,
          depth: Annotated[int, Flag(whole, "longest sequence that is counted: a run and the "
              "token after it")] = 16,
          sure: Annotated[float, Flag(number, "copy if at least this many guesses are "
              "expected to be correct, otherwise run --otherwise; 0 copies in every round, and "
              "is the default if there is no draft")] = 3.0,
          otherwise: Annotated[str, Flag(exact_decoder, "the decoder that guesses if nothing "
              "is copied, with its flags: 'eagle --widths 2,1' or quantized")] = DEFAULT,
          memory: Annotated[str, Flag(str, "also copy from the finished texts in this file, "
              "and add the new text to it")] = "") -> Step:
    """Return the step of one text, which keeps counts; main.py adds the text to `memory`."""
    if sure < 0:
        raise ValueError(f"need --sure >= 0, got {sure}")
    for flag, is_given in (("K", K), ("otherwise", otherwise != DEFAULT)):
        if sure == 0 and is_given:
            raise ValueError(f"--{flag} does not apply with --sure 0, where no other decoder "
                             "guesses: leave it out, or give --draft or a --sure above 0")
    n_vocab = models.target.n_vocab
    texts = read_memory(memory, n_vocab) if memory else ()
    own, remembered = Counts(depth), Counts(depth, texts)
    entry, settings = inner({"sure": sure, "otherwise": otherwise, "K": K})
    needs_states = "heads" in entry.needs(settings)
    other_step = entry.build(models, **settings) if sure else None

    def copies(x):
        # Heads need the states of the whole prompt, which only their own first round asks for.
        is_for_heads = needs_states and not own.text
        own.follow(x)
        return ([], 0.0) if is_for_heads else best_guess(x, [own, remembered], cap)

    return partial(copy_step, copies=copies, target=models.target_rows, n_vocab=n_vocab,
                   sure=sure, other_step=other_step)


DECODER = Decoder(
    "suffix", "Oliaro et al. (2024)", "https://arxiv.org/abs/2411.04975",
    idea="copies what most often followed the last words; any other decoder guesses otherwise",
    family="no draft model",
    # A round of the other decoder has its own guess and test, so the step is shown as both.
    guess=copy_step, test=copy_step, build=build, without_draft={"sure": 0.0},
    **of_inner(inner))
