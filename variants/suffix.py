"""Oliaro et al. (2024), "SuffixDecoding". Lossless.

Adds to lookup.py: counts of everything that followed, and a draft where their confidence is
low. The guess is what followed the last m tokens most often, as long as that is probable
enough. Finished texts can be remembered for later texts (memory.py).

    m             how many tokens a guess looks back: 1, 2, ... depth - 1 are all tried
    probability   of a guess: the product of the relative frequencies on its path
    score         the sum of the probabilities: how many guesses are expected to be right
    factor        after m tokens at most min(cap, factor m) guesses; the paper's MAX_SPEC: alpha

A copied guess is not drawn, so its row is one-hot, as in lookup.py; the draft's guesses have
the draft's rows. The choice between the two is made before any sampling, so both are exact.
"""

from collections import defaultdict
from typing import Annotated

from sampling import one_hot_rows
from speculative import Step, guess, make_step, verify
from variants.registry import Decoder, Flag, Models, whole
from variants.shared.memory import read_memory


class Counts:
    """Count what came next after every run of up to depth - 1 tokens: the paper's suffix tree.

    >>> after = Counts(3, [[0, 1, 0, 2, 0, 1]]).after  # run -> {token: how often}, latest last
    >>> after[0,], after[0, 1]
    ({2: 1, 1: 2}, {0: 1})
    """

    def __init__(self, depth, texts=()):
        self.depth = depth
        self.after: dict[tuple, dict] = defaultdict(dict)
        for text in texts:
            self.count(text, 0)

    def count(self, text, start):
        """Count the tokens of a text from index `start` on, each after the runs before it."""
        for end in range(start, len(text)):
            for m in range(1, min(self.depth, end + 1)):
                followed = self.after[tuple(text[end - m : end])]
                followed[text[end]] = followed.pop(text[end], 0) + 1


def most_frequent_path(run, after, n, min_prob):
    """Return up to n tokens along the most frequent continuation of a run, and their score.

    Of equally frequent tokens the latest counts.
    """
    guesses: list[int] = []
    probability = 1.0
    score = 0.0
    while len(guesses) < n and (followed := after.get(run)):
        token = max(reversed(followed), key=followed.get)
        probability *= followed[token] / sum(followed.values())
        if probability < min_prob:
            break
        guesses.append(token)
        run += (token,)
        score += probability
    return guesses, score


def best_guess(x, counts, k, factor=2.0, min_prob=0.1):
    """Return up to k guesses and their score: the largest over all m and counts.

    Of equal scores the largest m wins, then the first counts.

    >>> counts = Counts(8, [[0, 1, 2, 0, 1, 3, 0, 1, 2, 0]])
    >>> best_guess([9, 0], [counts], k=4)  # 1 always came after 0, then 2 in two of three cases
    ([1, 2], 1.6666666666666665)
    """
    found = [([], 0.0)]
    for m in range(min(counts[0].depth - 1, len(x)), 0, -1):
        n = int(min(k, factor * m))
        found += [most_frequent_path(tuple(x[-m:]), each.after, n, min_prob) for each in counts]
    return max(found, key=lambda pair: pair[1])


def build(models: Models,
          K: Annotated[int | None, Flag(whole, "guesses per round of the draft "
              "(default: 4)")] = None,
          cap: Annotated[int, Flag(whole, "most guesses copied in a round")] = 10,
          factor: Annotated[float, Flag(float, "most guesses per token looked back")] = 2.0,
          min_prob: Annotated[float, Flag(float, "stop copying when the probability of a "
              "guess, by the counts, falls below this")] = 0.1,
          depth: Annotated[int, Flag(whole, "longest run of tokens counted, its guesses "
              "included")] = 16,
          sure: Annotated[float, Flag(float, "copy if at least this many guesses are "
              "expected to be right, else use the draft; 0: always copy")] = 3.0,
          memory: Annotated[str, Flag(str, "a file of finished texts to copy from too; the "
              "new text is added")] = "") -> Step:
    """Return the step of one text, which keeps its counts; main.py adds it to `memory`."""
    if not (factor > 0 and 0 <= min_prob <= 1 and sure >= 0):
        raise ValueError("need --factor > 0, 0 <= --min_prob <= 1 and --sure >= 0, got "
                         f"{factor}, {min_prob} and {sure}")
    if sure == 0 and K:
        raise ValueError("--K does not apply with --sure 0: the draft is never asked")
    K = K or 4
    draft = models.draft_rows
    n_vocab = models.target.n_vocab
    remembered = Counts(depth, read_memory(memory, n_vocab) if memory else ())
    counts = Counts(depth)
    text: list[int] = []  # what is counted

    def suffix_or_draft(x, k, rng):
        nonlocal counts, text
        if x[: len(text)] != text:  # a different text
            counts = Counts(depth)
            text = []
        counts.count(x, len(text))
        text = list(x)
        guesses, score = best_guess(x, [counts, remembered], cap, factor, min_prob)
        if score >= sure:
            return guesses[:k], one_hot_rows(guesses[:k], n_vocab)
        return guess(x, min(k, K), rng, draft)

    return make_step(models.target_rows, max(K, cap), suffix_or_draft)


DECODER = Decoder(
    "suffix", "Oliaro et al. (2024)", "https://arxiv.org/abs/2411.04975",
    idea="counts what followed the last words; asks the draft if their confidence is low",
    family="no draft model",
    guess=best_guess, test=verify, build=build,
    no_draft_if=lambda settings: settings["sure"] == 0)
