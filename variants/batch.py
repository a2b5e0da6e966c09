"""Zhang et al. (2025), "Batch Speculative Decoding Done Right": many texts at once. Lossless.

What it adds to speculative.py: passes that texts share, for a weight that has been read can be
multiplied by the rows of all of them. Everything else a text has for itself: tokens, room, memory,
generator, so it is the text that it would be alone. One that ends makes room for one that waits
(Yu et al. (2022), "Orca", Sec. 3.1).

    jobs      (x, N, rng): the tokens so far, how many new ones are wanted, the text's own generator
    Text      a job on its way, with the parts of its own step
    batch     how many texts are written at once
    calls     a list of (text, ids, n_last): what several texts ask one model at the same time
    model     here a batch model, `model(calls) -> list of [n_last, n_vocab]` of probabilities

Subtle: after a round the texts differ in length, as each keeps another number of guesses. Where
they stand in one padded array, positions, masks and memories must be realigned after every round;
the paper finds that public code fails at this. Nothing is padded here: batch_gpt2.py.
"""

from functools import partial
from itertools import islice
from typing import NamedTuple

from sampling import sample, warp
from speculative import Round, draft_and_verify, guess, speculative_step, up_to_stop, verify
from variants.registry import Models


# ---- models

class BatchModel(NamedTuple):
    """`sampling.with_sampling` for a batch model: a text's own ids decide its own penalty."""

    model: object  # (calls) -> list of logits
    sampling: dict

    def __call__(self, calls):
        return [warp(logits, ids=ids, **self.sampling)
                for logits, (_, ids, _) in zip(self.model(calls), calls)]


class BatchModels(Models):
    """What a decoder is built from here: draft and target are batch models, of logits."""

    def probabilities(self, name, temperature_1=False):
        """The draft or the target as a batch model of probabilities."""
        return BatchModel(getattr(self, name),
                          self.at_temperature_1 if temperature_1 else self.sampling)


def one_by_one(model):
    """The batch model of any `model(ids, n_last)` that remembers nothing."""
    return lambda calls: [model(ids, n_last) for _, ids, n_last in calls]


# ---- one round of many texts

class Text:
    """One text on its way; to a batch model it is the name of a memory, gone when the text is."""

    def __init__(self, index, x, N, rng, step):
        if len(x) == 0 or N < 0 or not hasattr(rng, "random"):
            raise ValueError(f"need at least one token, N >= 0 and a np.random.Generator, got "
                             f"{len(x)} tokens, N = {N} and {rng!r} in text {index}")
        self.index, self.x, self.end, self.rng = index, list(x), len(x) + N, rng
        self.target, self.K, self.guess, self.verify = parts(step)

    @property
    def room(self):
        """How many new tokens are still wanted."""
        return self.end - len(self.x)

    @property
    def k(self):
        """The most guesses of the next round."""
        return min(self.K, self.room - 1)


def parts(step):
    """Target, K, guess and test, of which a decoder made its step; ValueError if it did not."""
    if getattr(step, "func", None) is not speculative_step:
        raise ValueError(f"need a step made of a target, K, a guess and a test, got {step}")
    known = {"verify": verify, **step.keywords}
    return known["target"], known["K"], known["guess"], known["verify"]


def draft_of(guessing):
    """The draft that guesses token by token, as in speculative.py; None for a guess of its own."""
    return guessing.keywords["draft"] if getattr(guessing, "func", None) is guess else None


def guess_all(texts):
    """Guesses of every text and their rows: with a draft, level by level for all that want more.

    A guess of another kind, which copies or counts, is asked text by text.
    """
    draft = draft_of(texts[0].guess)
    if draft is None:
        return [text.guess(text.x, text.k, text.rng) for text in texts]
    proposals = [([], []) for _ in texts]
    for t in range(max(text.k for text in texts)):
        wanting = [(text, *own) for text, own in zip(texts, proposals) if t < text.k]
        rows = draft([(text, text.x + guesses, 1) for text, guesses, _ in wanting])
        for (text, guesses, p_draft), row in zip(wanting, rows):
            p_draft.append(row[-1])
            guesses.append(sample(row[-1], text.rng))
    return proposals


def batch_round(texts):
    """One round of every text: `speculative_step`, with passes that all of them share."""
    proposals = guess_all(texts)  # [1]
    calls = [(text, text.x + guesses, len(guesses) + 1)
             for text, (guesses, _) in zip(texts, proposals)]
    p_targets = texts[0].target(calls)  # [2]
    return [Round(text.verify(*own, p_target, text.rng), *own, p_target)  # [3] [4] [5]
            for text, own, p_target in zip(texts, proposals, p_targets)]


# ---- from the first text to the last

def generate_batch(jobs, new_step, batch=8, stop=()):
    """Write many texts, `batch` at once; yield every round as it comes, with its text's number.

    Parameters
    ----------
    jobs : iterable of (x, N, rng)
        The next job is taken when a text has ended.
    new_step : callable `() -> step`
        A decoder's step for each text: `speculative_step` with target, K, guess and verify, such
        as `draft_and_verify` gives. All have the same models, which are batch models.
    batch : int, >= 1
    stop : collection of int

    Yields
    ------
    (index, Round) as `speculative.generate` yields its rounds; index is the job's place in `jobs`.

    >>> import numpy as np
    >>> count_up = one_by_one(lambda ids, n_last: np.eye(10)[np.array(ids[-n_last:]) + 1])
    >>> jobs = [([i], 3, np.random.default_rng(i)) for i in (0, 4)]
    >>> new_step = partial(draft_and_verify, count_up, count_up, 1)
    >>> [(i, round.ids) for i, round in generate_batch(jobs, new_step, stop={6})]
    [(0, [1, 2]), (1, [5, 6]), (0, [3])]
    """
    if batch < 1:
        raise ValueError(f"need batch >= 1 texts at once, got {batch}")
    waiting = (Text(i, *job, new_step()) for i, job in enumerate(jobs))
    waiting, writing = (text for text in waiting if text.room > 0), []
    while writing := writing + list(islice(waiting, batch - len(writing))):
        for text, round in zip(writing, batch_round(writing)):
            round = round._replace(ids=up_to_stop(round.ids, stop))
            text.x += round.ids
            yield text.index, round
        writing = [text for text in writing if text.room > 0 and text.x[-1] not in stop]


def speculative_batch(xs, draft, target, N, K, rngs, batch=8, stop=()):
    """`speculative_sampling` of many texts, in passes that they share: each as if it were alone.

    Parameters
    ----------
    xs : sequence of sequences of int
    draft, target : batch models of probabilities
    N, K : int
        New tokens wanted of every text, and guesses per round. K = 0 is plain decoding.
    rngs : sequence of np.random.Generator, one for each text

    Returns
    -------
    list of lists of int: every x with its new tokens. ValueError as `speculative_sampling`.

    Examples
    --------
    A text does not depend on its neighbours:

    >>> import numpy as np
    >>> model = one_by_one(lambda ids, n_last: np.array([[0.5, 0.3, 0.2]] * n_last))
    >>> write = lambda *seeds: speculative_batch([[0]] * len(seeds), model, model, N=9, K=2,
    ...                                          rngs=list(map(np.random.default_rng, seeds)))
    >>> write(1, 2, 3)[1:] == write(2) + write(3)
    True
    """
    if K < 0 or len(xs) != len(rngs):
        raise ValueError(f"need K >= 0 and a generator for each text, got K = {K}, {len(xs)} texts "
                         f"and {len(rngs)} generators")
    texts = [list(x) for x in xs]
    jobs = ((x, N, rng) for x, rng in zip(xs, rngs))
    for i, round in generate_batch(jobs, partial(draft_and_verify, draft, target, K), batch, stop):
        texts[i] += round.ids
    return texts
