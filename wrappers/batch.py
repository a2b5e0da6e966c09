"""Zhang et al. (2025), "Batch Speculative Decoding Done Right": many texts at once. Lossless.

Adds to speculative.py: several texts share each pass, because a loaded weight can multiply the
rows of all texts. Each text has its own tokens, n_left, cache and generator, so a batch does
not change any text. When a text ends, the next one begins: Yu et al. (2022), "Orca", Sec. 3.1.

    jobs      (x, N, rng): the tokens so far, how many new ones are wanted, and the text's
              generator; (x, N, rng, new_step, stop) for a text with its own step and stop
    text      the greenlet (see below) of a running job, suspended while it waits for a model
    request   (model, ids, n_last): the rows of a `Shared` model that a text waits for
    calls     a list of (text, ids, n_last): the requests of several texts to one model
    model     here a batch model, `model(calls) -> list of [n_last, n_vocab]`

No decoder contains code for batches. A decoder's step runs in a greenlet, which can be
suspended inside a nested call. When the step calls a model, `generate_batch` gets the request;
it collects the requests of all texts and answers them in one pass.

Subtle: after a round the texts differ in length, because each accepts a different number of
guesses. In one padded array, positions, masks and caches would have to be realigned after every
round, at which, the paper finds, public code fails. batch_gpt2.py pads nothing.
"""

from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from weakref import WeakKeyDictionary

from greenlet import getcurrent, greenlet

from gpt2 import GPT2
from lib.around import Around
from llama import Llama
from speculative import generate
from variants.shared.branches import Branches
from wrappers.batch_gpt2 import BatchGPT2, BatchLlama
from wrappers.intersection import TokenLevelIntersection


@dataclass(eq=False)
class Shared(Around):
    """Compute rows for a step's calls `(ids, n_last)` in passes that several texts share."""

    # The model with the lowest turn runs first: drafts have turn 0, and the target has turn 1,
    # so the target's pass includes the guesses of all texts.
    turn: int = 0

    def __call__(self, ids, n_last=1):
        if isinstance(ids, Branches):
            raise ValueError("need a chain of guesses for texts in batches, got a tree")
        # The current greenlet is this text, and its parent runs generate_batch. `switch`
        # suspends the text until the parent has computed the rows.
        return getcurrent().parent.switch((self, ids, n_last))


@dataclass(eq=False)
class OneByOne(Around):
    """Make a batch model of any model with `fresh()`: each text has its own copy and passes."""

    # {text: its model}; an entry disappears together with its text
    models: WeakKeyDictionary = field(default_factory=WeakKeyDictionary)

    def __call__(self, calls):  # -> a list of [n_last, n_vocab]
        for text, _, _ in calls:
            if text not in self.models:
                self.models[text] = self.model.fresh()
        return [self.models[text](ids, n_last) for text, ids, n_last in calls]


def batch_model(model, turn=0):
    """Return a `Shared` model for the steps of all texts."""
    # Each text translates its own tokens, so only the draft inside the wrapper is shared.
    if isinstance(model, TokenLevelIntersection):
        return TokenLevelIntersection(batch_model(model.draft, turn), model.common)
    for kind, batch_kind in ((GPT2, BatchGPT2), (Llama, BatchLlama)):
        if isinstance(model, kind):
            return Shared(batch_kind(model.params, model.n_head), turn)
    return Shared(OneByOne(model), turn)


def run_pass(waiting):
    """Run one pass of the next model; return (text, [its rows]), with which it is resumed."""
    requested = [model for model, _, _ in waiting.values()]
    next_model = min(requested, key=attrgetter("turn"))
    calls = [(text, ids, n_last) for text, (model, ids, n_last) in waiting.items()
             if model is next_model]
    all_rows = next_model.model(calls)
    return [(text, [rows]) for (text, _, _), rows in zip(calls, all_rows)]


def generate_batch(jobs, new_step, batch=8):
    """Write many texts, `batch` at once; yield the Rounds of each, in the order of the jobs.

    The next job is requested when a text has ended. `new_step()` returns a decoder's step for
    one text; the steps of all texts call the same `Shared` models. The Rounds come without
    their rows of probabilities, which are large.
    """
    # A greenlet runs this function: it writes one whole text, and returns an entry of `done`.
    def write(i, x, N, rng, own_new_step=new_step, stop=()):
        rounds = generate(x, own_new_step(), N, rng, stop)
        without_rows = [result._replace(p_draft=None, p_target=None) for result in rounds]
        return {i: without_rows}

    if batch < 1:
        raise ValueError(f"need batch >= 1 texts at once, got {batch}")
    numbered_jobs = enumerate(jobs)
    waiting: dict = {}  # {text: its request}
    done: dict[int, list] = {}  # {number of the job: its rounds}
    n_yielded = 0
    while True:
        n_free = batch - len(waiting)
        new_jobs = islice(numbered_jobs, n_free)
        # (text, the arguments that start or resume it): a new text is started with its job.
        resumable = [(greenlet(write), (i, *job)) for i, job in new_jobs]
        if not resumable and not waiting:
            return
        # When no new text can begin, a pass computes rows for texts that wait.
        if not resumable:
            resumable = run_pass(waiting)
        for text, arguments in resumable:
            # The text runs until it requests rows, or ends and returns the value of `write`.
            returned = text.switch(*arguments)
            if text.dead:
                waiting.pop(text, None)
                done |= returned
            else:
                waiting[text] = returned
        # The next text in the order of the jobs may end after later ones, which wait in `done`.
        while n_yielded in done:
            yield done.pop(n_yielded)
            n_yielded += 1
