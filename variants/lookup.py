"""Saxena (2023), "Prompt Lookup Decoding". Lossless.

Adds to speculative.py: a draft without a model. Text repeats itself, so the guesses are copied
from what followed the last few tokens earlier.

A copied guess is not drawn, so its row is one-hot. `verify` then accepts it with the target's
probability of the guess, and replaces a rejected guess by a draw from the other tokens.
"""

from functools import partial
from typing import Annotated

from sampling import one_hot_rows
from speculative import Step, make_step, verify
from variants.registry import GUESSES, Decoder, Flag, Models, needing, whole


def find_source(x, max_ngram):
    """Return the index from which guesses are copied, None if the last token of x is new.

    A suffix is the last n tokens of x, n <= max_ngram. The longest suffix that occurs earlier
    in x is chosen, and the guesses are copied from after the latest earlier copy of it. Saxena
    (2023) takes the earliest copy; in running text the latest is the better guide.

    >>> find_source([7, 8, 5, 7, 8, 6, 7, 8], max_ngram=3)  # 7 8 was followed by 6 last time
    5
    """
    longest = min(max_ngram, len(x) - 1)
    for n in range(longest, 0, -1):
        # A copy ends before the last token of x. It may overlap the suffix.
        latest_start = len(x) - n - 1
        for start in range(latest_start, -1, -1):
            if x[start : start + n] == x[-n:]:
                return start + n
    return None


def lookup_guess(x, k, rng, n_vocab, max_ngram=3):
    """Return k copied guesses, or none if the last token is new, and one-hot rows."""
    ids = list(x)
    source = find_source(x, max_ngram)
    if source is not None:  # otherwise there are no guesses, and the round is plain decoding
        for i in range(k):
            ids.append(ids[source + i])  # beyond the end of x a guess is copied, as in LZ77
    guesses = ids[len(x) :]
    return guesses, one_hot_rows(guesses, n_vocab)


def build(models: Models,
          K: GUESSES = 10,
          max_ngram: Annotated[int, Flag(whole, "largest number of last tokens to look up")] = 3
          ) -> Step:
    """Return the step: no draft model."""
    guess = partial(lookup_guess, n_vocab=models.target.n_vocab, max_ngram=max_ngram)
    return make_step(models.target_rows, K, guess, models.test)


DECODER = Decoder(
    "lookup", "Saxena (2023)", "https://github.com/apoorvumang/prompt-lookup-decoding",
    idea="copies what followed the same words earlier in the text",
    family="no draft model",
    guess=lookup_guess, test=verify, build=build, needs=needing())
