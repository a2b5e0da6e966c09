"""Gante (2023), "Assisted Generation", as in Hugging Face transformers. Lossless.

What it adds to speculative.py: the number of guesses is no constant. It follows the past
(schedule), and the draft stops early when it is not sure of itself (threshold).

    K           the most guesses in the next round
    schedule    constant: K stays; heuristic: K + 2 if every guess was kept, else K - 1, at least 1
    threshold   --confidence: after a guess that the draft gave less than this, it stops guessing

Subtle: the unsure guess is kept and put to the test. To throw a guess away because of its own
probability would leave the others distributed by a row that is not in `p_draft`, and bias the text.
"""

from functools import partial

from sampling import one_hot_rows, sample
from speculative import speculative_step, verify
from variants.registry import Decoder, Flag, number, whole

SCHEDULES = ("constant", "heuristic")


def guess_while_sure(x, k, rng, draft, threshold, greedy=False):
    """Up to k tokens from the draft, the last of which may be an unsure one, and their rows.

    With `greedy` the draft's row says how sure it is, and the guess is the row's best token: at
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


def next_K(K, n_accepted, n_guesses, schedule):
    """The most guesses in the next round."""
    if schedule == "constant":
        return K
    return K + 2 if n_accepted == n_guesses else max(1, K - 1)


def assisted(draft, target, K=20, schedule="constant", threshold=0.4, greedy=False):
    """Build the step of one text; it keeps K between its rounds.

    `greedy`: the draft gives its distribution at temperature 1, but guesses its best token.
    (transformers' heuristic_transient is a new step for every text, its heuristic one for all.)
    ValueError if K < 1 or there is no such schedule.
    """
    if K < 1:
        raise ValueError(f"need K >= 1 guesses per round, got {K}")
    if schedule not in SCHEDULES:
        raise ValueError(f"need a schedule of {', '.join(SCHEDULES)}, got {schedule!r}")
    guess = partial(guess_while_sure, draft=draft, threshold=threshold, greedy=greedy)

    def step(x, n_left, rng):
        nonlocal K
        round = speculative_step(x, n_left, rng, target, K, guess)
        K = next_K(K, round.n_accepted, len(round.guesses), schedule)
        return round

    return step


def build(models, K: Flag(whole, "most guesses per round") = 20,
          schedule: Flag(str, "how K follows the past", SCHEDULES) = "constant",
          confidence: Flag(number, "stop guessing after a guess with less than this") = 0.4):
    """Return the step. Confidence is read at temperature 1 if the guesses are greedy."""
    draft = models.probabilities("draft", temperature_1=models.is_greedy)
    return assisted(draft, models.probabilities("target"), K, schedule, confidence,
                    models.is_greedy)


DECODER = Decoder(
    "assisted", "Gante (2023)", "https://huggingface.co/blog/assisted-generation",
    idea="adapts the number of guesses per round; stops after an unsure guess",
    guess=guess_while_sure, test=verify, build=build)
