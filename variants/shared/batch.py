"""Zhang et al. (2025), "Batch Speculative Decoding Done Right": many texts at once. Lossless.

What it adds to speculative.py: passes that texts share, for a weight that has been read can be
multiplied by the rows of all of them. Everything else a text has for itself: tokens, room, memory,
generator, so it is the text that it would be alone. One that ends makes room for one that waits
(Yu et al. (2022), "Orca", Sec. 3.1).

    jobs      (x, N, rng): the tokens so far, how many new ones are wanted, the text's own generator
    Text      a job on its way: `generate` with a step of its own, left where that asks a model
    Call      what a text waits for: the answer of a model to ids, n_last
    asked     {text: its Call}, of all texts on their way
    batch     how many texts are written at once
    calls     a list of (text, ids, n_last): what several texts ask one model at the same time
    model     here a batch model, `model(calls) -> list of [n_last, n_vocab]`

So a decoder need not know that it is one of many. Its step calls a model, and the greenlet that it
runs in (a function that can be left in the middle and gone on with) hands the question to
`generate_batch`, which waits for the others' questions and answers all in one pass.

Subtle: after a round the texts differ in length, as each keeps another number of guesses. Where
they stand in one padded array, positions, masks and memories must be realigned after every round;
the paper finds that public code fails at this. Nothing is padded here: batch_gpt2.py.
"""

from functools import partial
from typing import NamedTuple

from greenlet import getcurrent, greenlet

from speculative import Round, draft_and_verify, generate


class Call(NamedTuple):
    """What a text waits for."""

    model: object  # a Shared
    ids: list
    n_last: int


class Shared:
    """A batch model as a step sees it, `(ids, n_last) -> rows`: from a pass that texts share.

    Of models that are asked at the same time the one with the lowest turn goes first: a draft
    before the target, so that the target's pass waits for the guesses of all.
    """

    def __init__(self, model, turn=0):
        self.model, self.turn = model, turn

    def __call__(self, ids, n_last=1):
        return getcurrent().parent.switch(Call(self, ids, n_last))

    def __getattr__(self, name):  # n_vocab, params: of the model itself
        return getattr(self.model, name)


def one_by_one(model):
    """The batch model of any `model(ids, n_last)` that remembers nothing."""
    return lambda calls: [model(ids, n_last) for _, ids, n_last in calls]


class Text(greenlet):
    """One text on its way, and the key under which BatchGPT2 keeps the text's keys and values."""

    def __init__(self, index, job, step, stop):
        super().__init__()
        self.index, self.job, self.step, self.stop = index, job, step, stop

    def run(self):
        """The text from its first round to its last."""
        x, N, rng = self.job
        for round in generate(x, self.step, N, rng, self.stop):
            self.parent.switch(round)


def answers(asked):
    """The texts that have asked the model whose turn it is, each with its rows: one pass."""
    model = min((call.model for call in asked.values()), key=lambda model: model.turn)
    calls = [(text, *rest) for text, (whom, *rest) in asked.items() if whom is model]
    return [(text, rows) for (text, *_), rows in zip(calls, model.model(calls))]


def go_on(asked, text, *answer):
    """Go on with a text until it asks again or has ended; yield the rounds that end on the way."""
    said = text.switch(*answer)
    while isinstance(said, Round):
        yield text.index, said
        said = text.switch()
    if said is None:
        asked.pop(text, None)
    else:
        asked[text] = said


def generate_batch(jobs, new_step, batch=8, stop=()):
    """Write many texts, `batch` at once; yield every round as it comes, with its text's number.

    Parameters
    ----------
    jobs : iterable of (x, N, rng)
        The next job is taken when a text has ended.
    new_step : callable `() -> step`
        A decoder's step for each text; its models are `Shared`, the same for all.
    batch : int, >= 1
    stop : collection of int

    Yields
    ------
    (index, Round) as `speculative.generate` yields its rounds; index is the job's place in `jobs`.

    >>> import numpy as np
    >>> count_up = Shared(one_by_one(lambda ids, n: np.eye(10)[np.array(ids[-n:]) + 1]))
    >>> jobs = [([i], 3, np.random.default_rng(i)) for i in (0, 4)]
    >>> new_step = partial(draft_and_verify, count_up, count_up, 1)
    >>> [(i, round.ids) for i, round in generate_batch(jobs, new_step, stop={6})]
    [(0, [1, 2]), (1, [5, 6]), (0, [3])]
    """
    if batch < 1:
        raise ValueError(f"need batch >= 1 texts at once, got {batch}")
    waiting, asked = (Text(i, job, new_step(), stop) for i, job in enumerate(jobs)), {}
    try:
        while True:
            while len(asked) < batch and (text := next(waiting, None)) is not None:
                yield from go_on(asked, text)
            if not asked:
                return
            for text, rows in answers(asked):
                yield from go_on(asked, text, rows)
    finally:  # nobody collects what was left in the middle
        for text in filter(None, asked):
            text.throw()


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
    texts, jobs = [list(x) for x in xs], ((x, N, rng) for x, rng in zip(xs, rngs))
    new_step = partial(draft_and_verify, Shared(draft), Shared(target, turn=1), K)
    for i, round in generate_batch(jobs, new_step, batch, stop):
        texts[i] += round.ids
    return texts
