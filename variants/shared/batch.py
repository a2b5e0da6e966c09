"""Zhang et al. (2025), "Batch Speculative Decoding Done Right": many texts at once. Lossless.

Adds to speculative.py: several texts share each pass, because a loaded weight can multiply the rows
of all of them. Each text has its own tokens, n_left, cache and generator, so it is the same as
alone. When a text ends, the next one takes its position (Yu et al. (2022), "Orca", Sec. 3.1).

    jobs      (x, N, rng): the tokens so far, how many new ones are wanted, the text's generator
    Text      a running job, suspended while it waits for a model
    Request   what a text waits for: the rows of a model for ids, n_last
    waiting   {text: its Request}, of all texts in the batch
    batch     how many texts run at once
    calls     a list of (text, ids, n_last): what several texts request of one model
    model     here a batch model, `model(calls) -> list of [n_last, n_vocab]`

No decoder contains code for batches. Its step calls a model, and the greenlet that it runs in (a
coroutine that can be suspended from inside a nested call) passes the request to `generate_batch`,
which collects the requests of all texts and answers them in one pass.

Subtle: after a round the texts differ in length, because each accepts a different number of
guesses. If they share one padded array, positions, masks and caches must be realigned after every
round; the paper finds that public code fails at this. Nothing is padded here: batch_gpt2.py.
"""

from typing import NamedTuple

from greenlet import getcurrent, greenlet

from speculative import Round, generate
from variants.shared.branches import Branches


class Request(NamedTuple):
    """Hold what a text waits for."""

    model: object  # a Shared
    ids: list
    n_last: int


class Shared:
    """Give a step the rows `(ids, n_last) -> rows` of a batch model, from a shared pass.

    Of the models with requests the one with the lowest turn runs first: a draft before the target,
    so that the target's pass includes the guesses of all texts.
    """

    def __init__(self, model, turn=0):
        self.model, self.turn = model, turn

    def __call__(self, ids, n_last=1):
        if isinstance(ids, Branches):
            raise ValueError("need guesses that are a chain for texts in batches, got a tree")
        return getcurrent().parent.switch(Request(self, ids, n_last))

    def __getattr__(self, name):  # n_vocab, params: of the model itself
        return getattr(self.model, name)


def unbatched(model):
    """Return the batch model of any `model(ids, n_last)` without a cache."""
    return lambda calls: [model(ids, n_last) for _, ids, n_last in calls]


class Text(greenlet):
    """Run one job; BatchGPT2 keeps its keys and values under this object."""

    def __init__(self, index, job, step, stop):
        super().__init__()
        self.index, self.job, self.step, self.stop = index, job, step, stop

    def run(self):
        """Write the text from its first round to its last."""
        x, N, rng = self.job
        for round in generate(x, self.step, N, rng, self.stop):
            self.parent.switch(round)


def run_pass(waiting):
    """Run one pass, of the model whose turn it is; return its texts, each with its rows."""
    model = min((request.model for request in waiting.values()), key=lambda model: model.turn)
    calls = [(text, *rest) for text, (asked, *rest) in waiting.items() if asked is model]
    return [(text, rows) for (text, *_), rows in zip(calls, model.model(calls))]


def resume(waiting, text, *rows):
    """Run a text until it requests a pass again or ends; yield the rounds that end on the way."""
    result = text.switch(*rows)
    while isinstance(result, Round):
        yield text.index, result
        result = text.switch()
    if result is None:
        waiting.pop(text, None)
    else:
        waiting[text] = result


def generate_batch(jobs, new_step, batch=8, stop=()):
    """Write many texts, `batch` at once; yield (index of the job, Round) as each round ends.

    `jobs` are (x, N, rng); the next one is taken when a text has ended. `new_step()` returns a
    decoder's step for one text; its models are `Shared`, the same for all.

    >>> import numpy as np
    >>> from functools import partial
    >>> from speculative import draft_and_verify
    >>> count_up = Shared(unbatched(lambda ids, n: np.eye(10)[np.array(ids[-n:]) + 1]))
    >>> jobs = [([i], 3, np.random.default_rng(i)) for i in (0, 4)]
    >>> new_step = partial(draft_and_verify, count_up, count_up, 1)
    >>> [(i, round.ids) for i, round in generate_batch(jobs, new_step, stop={6})]
    [(0, [1, 2]), (1, [5, 6]), (0, [3])]
    """
    if batch < 1:
        raise ValueError(f"need batch >= 1 texts at once, got {batch}")
    texts, waiting = (Text(i, job, new_step(), stop) for i, job in enumerate(jobs)), {}
    try:
        while True:
            while len(waiting) < batch and (text := next(texts, None)) is not None:
                yield from resume(waiting, text)
            if not waiting:
                return
            for text, rows in run_pass(waiting):
                yield from resume(waiting, text, rows)
    finally:  # close suspended texts
        for text in filter(None, waiting):
            text.throw()
