"""Gante (2023), "Assisted Generation", as in Hugging Face transformers. Lossless.

What it adds to speculative.py: the number of guesses is no constant. It follows the past
(schedule), and the draft stops early when it is not sure of itself (threshold).

    K           the most guesses in the next round
    schedule    constant: K stays; heuristic: K + 2 if every guess was kept, else K - 1, at least 1
    threshold   after a guess that the draft gave less than this, it stops guessing

Subtle: the unsure guess is kept and put to the test. To throw a guess away because of its own
probability would leave the others with a law that is not in `p_draft`, and bias the text.
"""

from sampling import sample
from speculative import Round, verify
from variants.lookup import one_hot_rows

SCHEDULES = ("constant", "heuristic")


def guess_while_sure(x, draft, k, threshold, rng, greedy=False):
    """Up to k ids from the draft, the last of which may be an unsure one, and their laws.

    With `greedy` the draft's row says how sure it is, and the guess is the row's best id: at
    temperature 0 a one-hot row would always be sure.
    """
    guesses, p_draft = [], []
    while len(guesses) < k:
        row = draft(x + guesses, 1)[-1]
        p_draft.append(one_hot_rows([row.argmax()], len(row))[0] if greedy else row)
        guesses.append(sample(p_draft[-1], rng))
        if row[guesses[-1]] < threshold:
            break
    return guesses, p_draft


def next_K(K, n_kept, n_guesses, schedule):
    """The most guesses in the next round."""
    if schedule == "constant":
        return K
    return K + 2 if n_kept == n_guesses else max(1, K - 1)


def assisted(draft, target, K=20, schedule="constant", threshold=0.4, greedy=False):
    """Build the step of one text.

    Parameters
    ----------
    draft, target : callables `(ids, n_last) -> [n_last, n_vocab]` of probabilities
    K : int, >= 1
        The most guesses in the first round.
    schedule : "constant" or "heuristic"
    threshold : float
        0 never stops early, above 1 always stops after one guess.
    greedy : bool
        The draft gives its law at temperature 1, but guesses its best id.

    Returns
    -------
    callable `(x, room, rng) -> Round`
        It keeps K between its rounds. (transformers' heuristic_transient is a new step for every
        text, its heuristic the same step for all.)

    Raises
    ------
    ValueError
        If K < 1 or there is no such schedule.
    """
    if K < 1:
        raise ValueError(f"need K >= 1 guesses a round, got {K}")
    if schedule not in SCHEDULES:
        raise ValueError(f"need a schedule of {', '.join(SCHEDULES)}, got {schedule!r}")

    def step(x, room, rng):
        nonlocal K
        guesses, p_draft = guess_while_sure(x, draft, min(K, room - 1), threshold, rng, greedy)
        p_target = target(x + guesses, len(guesses) + 1)
        ids = verify(guesses, p_draft, p_target, rng)
        K = next_K(K, len(ids) - 1, len(guesses), schedule)
        return Round(ids, guesses, p_draft, p_target)

    return step
