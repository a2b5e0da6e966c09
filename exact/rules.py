"""Compute how far verification rules, used or discussed in public, are from the target.

    python -m exact.rules     their distance, tokens per round, and where each is met

A rule is a way to guess and a way to test, for speculative.speculative_step. Its distance is the
total variation between the distribution of K + 1 tokens that it writes and the target's. All
outcomes are enumerated, on Fractions: the 0 of an exact rule is 0. tests/test_rules.py checks every
figure of docs/wild.md.
"""

from collections import defaultdict
from fractions import Fraction
from functools import cache, partial
from math import ceil, log
from typing import NamedTuple

import numpy as np

from exact.law import law, rounds_law, text_law, total_variation
from sampling import accept, residual, sample
from speculative import guess, speculative_step, verify
from variants.match import match_verify

SURE = Fraction(2, 5)  # a draft is sure of a token from this probability on
ERROR = 1e-6  # of the test in the column of texts
X = (0,)  # the prompt


# ---- toys: the row after a text depends on its last token, in tenths

TENTHS = {  # name: (draft, target), a row for each last token
    "A": (["154", "433", "118"], ["262", "622", "226"]),  # most probable after token 0: both 1
    "B": (["721", "181", "622"], ["235", "523", "145"]),  # after token 0: 0 and 2
    "C": (["640", "055", "307"], ["208", "550", "046"]),  # with zeros
}


def markov(rows):
    """Return the model whose row after a text is that of its last token."""
    rows = [np.array([Fraction(int(digit), 10) for digit in row], dtype=object) for row in rows]
    return lambda ids, n_last=1: np.array([rows[token] for token in list(ids)[-n_last:]])


TOYS = {name: tuple(map(markov, pair)) for name, pair in TENTHS.items()}


def mapped(model, function):
    """Return the model with `function` applied to each of its rows."""
    return lambda ids, n_last=1: np.array([function(row) for row in model(ids, n_last)])


def one_hot(token, n_vocab=3):
    return np.array([Fraction(int(i == token)) for i in range(n_vocab)], dtype=object)


# ---- ways to guess: (x, k, rng, draft) -> guesses and the rows that the test receives

def best(x, k, rng, draft):
    """Return the draft's most probable tokens, with one-hot rows."""
    return guess(x, k, rng, lambda ids, n_last: [one_hot(np.argmax(draft(ids, 1)[-1]))])


def as_drawn(x, k, rng, draft, guess):
    """Return the tokens of `guess` with the draft's own rows, as if they were drawn from those."""
    guesses, _ = guess(x, k, rng, draft)
    return guesses, [draft(x + guesses[:t], 1)[-1] for t in range(len(guesses))]


def beam(x, k, rng, draft, width=2):
    """Return the best of `width` beams."""
    beams = [(Fraction(1), [])]
    for _ in range(k):
        longer = [(p * p_next, ids + [token]) for p, ids in beams
                  for token, p_next in enumerate(draft(x + ids, 1)[-1])]
        beams = sorted(longer, key=lambda beam: -beam[0])[:width]
    return beams[0][1], None


def colder(x, k, rng, draft):
    """Draw at temperature 1/2; return those rows."""
    def sharper(ids, n_last):
        squares = draft(ids, 1)[-1] ** 2
        return [squares / squares.sum()]

    return guess(x, k, rng, sharper)


def stop_before(x, k, rng, draft):
    """Stop where the draft's row has no sure token, before a guess is drawn from it."""
    if k == 0 or draft(x, 1)[-1].max() <= SURE:
        return [], []
    token, row = guess(x, 1, rng, draft)
    guesses, p_draft = stop_before(x + token, k - 1, rng, draft)
    return token + guesses, row + p_draft


def drop_unsure(x, k, rng, draft, guess=guess, extra=0):
    """Drop the first guess with a low draft probability, and all after it; `extra` keeps more."""
    guesses, p_draft = guess(x, k, rng, draft)
    sure = [draft(x + guesses[:t], 1)[-1][token] >= SURE for t, token in enumerate(guesses)]
    n = [*sure, False].index(False) + extra
    return guesses[:n], p_draft[:n]


# ---- parts of a test: at position t, the probability to accept, and the row of the replacement

def ratio(t, token, p_draft, p_target):
    return min(1, p_target[t][token] / p_draft[t][token])


def probability(t, token, p_draft, p_target):
    return p_target[t][token]


def if_not_less(t, token, p_draft, p_target):
    return Fraction(int(p_target[t][token] >= p_draft[t][token]))


def same_number(t, token, p_draft, p_target):
    """Return P(u < p_target) for the u that drew the guess: uniform in the token's interval."""
    low = p_draft[t][:token].sum()
    return max(p_target[t][token] - low, 0) / p_draft[t][token]


def from_residual(t, token, p_draft, p_target):
    return residual(p_target[t], p_draft[t])


def from_others(t, token, p_draft, p_target):
    return residual(p_target[t], one_hot(token))


def from_target(t, token, p_draft, p_target):
    return p_target[t]


def from_next_row(t, token, p_draft, p_target):
    return p_target[t + 1]


def from_same_race(t, token, p_draft, p_target):
    """Return the row of argmin E / residual if the guess was argmin E / p_draft, with the same E.

    The E are standard exponentials, one per token (minus their logarithms are Gumbel numbers). The
    guess has E / p_draft = T, a standard exponential; any other token has E = p_draft T + a fresh
    one. So token x runs from p_draft T / residual on, with speed residual: integrate over T. Of
    three tokens two can be in the residual, because the rejected guess is not.
    """
    rest = residual(p_target[t], p_draft[t])
    (start, first), *others = sorted((p_draft[t][x] / rest[x], x) for x in np.flatnonzero(rest))
    row = one_hot(first)
    for later_start, later in others:
        row[later] = rest[later] / (1 + rest[first] * (later_start - start))
        row[first] -= row[later]
    return row


# ---- ways to test: (guesses, p_draft, p_target, rng) -> 1 .. k + 1 tokens

def chain(guesses, p_draft, p_target, rng, p_accept=ratio, replace=from_residual, bonus=-1):
    """Test as speculative.verify, with other parts; the bonus token is from row `bonus`."""
    for t, token in enumerate(guesses):
        if not accept(p_accept(t, token, p_draft, p_target), rng):
            return guesses[:t] + [sample(replace(t, token, p_draft, p_target), rng)]
    return guesses + [sample(p_target[max(bonus, -len(p_target))], rng)]


def one_uniform(guesses, p_draft, p_target, rng):
    """Compare one number u with all ratios of a round."""
    u = rng.random()
    for t, token in enumerate(guesses):
        if not u < ratio(t, token, p_draft, p_target):
            return guesses[:t] + [sample(residual(p_target[t], p_draft[t]), rng)]
    return guesses + [sample(p_target[-1], rng)]


def drafts_rest(S, alpha, q):
    return max(1 - q, S)


def traversal(guesses, p_draft, p_target, rng, rest=lambda S, alpha, q: S + 1 - alpha):
    """Accept the longest start that passes, tried from its end; alpha: probability of each."""
    alpha = [Fraction(1)]
    for t, token in enumerate(guesses):
        alpha.append(min(1, alpha[-1] * p_target[t][token] / p_draft[t][token]))
    row, p_accept = p_target[-1], alpha[-1]
    for n in range(len(guesses), 0, -1):
        if accept(p_accept, rng):
            return guesses[:n] + [sample(row, rng)]
        row = np.maximum(alpha[n - 1] * p_target[n - 1] - p_draft[n - 1], 0)
        S, q = row.sum(), p_draft[n - 1][guesses[n - 1]]
        p_accept = S / rest(S, alpha[n - 1], q) if S else 0
    return [sample(row, rng)]


q_is_one = partial(chain, p_accept=probability, replace=from_others)  # as if all rows were one-hot


# ---- the rules

class Rule(NamedTuple):
    """Hold a name, a guess, a test, whether they are exact together, and where that is met."""

    name: str
    guess: object
    verify: object
    exact: bool
    seen: str = ""


def issue(repository, number, kind="issues"):
    name = repository.split("/")[1]
    return f"[{name} #{number}](https://github.com/{repository}/{kind}/{number})"


pull = partial(issue, kind="pull")
paper = lambda name, number: f"[{name}](https://arxiv.org/abs/{number})"
VLLM, HF = "vllm-project/vllm", "huggingface/transformers"
RULES = [
    Rule("ratio test, residual; guesses drawn", guess, verify, True,
         f"{paper('Leviathan et al. (2023)', '2211.17192')}, "
         f"{paper('Chen et al. (2023)', '2302.01318')}"),
    Rule("the same, the draft at a different temperature", colder, verify, True,
         pull(VLLM, 10198)),
    Rule("drawn at a different temperature than the rows", partial(as_drawn, guess=colder),
         verify, False, issue(HF, 47932)),
    Rule("argmax guesses, one-hot rows (\"q = 1\")", best, verify, True,
         f"{pull(VLLM, 16899)}, {pull(VLLM, 40651)}, {issue('SafeAILab/EAGLE', 183)}"),
    Rule("argmax guesses, softmax rows", partial(as_drawn, guess=best), verify, False,
         f"{issue(HF, 32867)}, {pull(HF, 33534)}"),
    Rule("beam search's guesses, softmax rows", partial(as_drawn, guess=beam), verify, False,
         issue("apple/ml-recurrent-drafter", 6)),
    Rule("\"q = 1\"; guesses drawn", guess, q_is_one, True, issue(VLLM, 40149)),
    Rule("\"q = 1\", with the number that drew the guess", guess,
         partial(chain, p_accept=same_number, replace=from_others), False),
    Rule("match; guesses drawn", guess, match_verify, True, pull("ml-explore/mlx-lm", 1709)),
    Rule("match; argmax guesses", best, match_verify, True, pull("NVIDIA/TensorRT-LLM", 15775)),
    Rule("match, then a fresh draw", guess,
         partial(chain, p_accept=probability, replace=from_target), False),
    Rule("accept if p_target >= p_draft", guess, partial(chain, p_accept=if_not_less), False),
    Rule("ratio test, then a draw from the target", guess, partial(chain, replace=from_target),
         False, "[Clay (2024)](https://github.com/ccs96307/fast-llm-inference)"),
    Rule("ratio test, then a draw from the next row", guess,
         partial(chain, replace=from_next_row), False,
         issue("openvinotoolkit/openvino.genai", 4190)),
    Rule("bonus token from the last guess's row", guess, partial(chain, bonus=-2), False),
    Rule("one uniform for all tests of a round", guess, one_uniform, False),
    Rule("one Gumbel vector for a guess and its replacement", guess,
         partial(chain, replace=from_same_race), False,
         f"{pull(VLLM, 47386)}, fixed by {pull(VLLM, 54282)}"),
    Rule("stop before drawing where the row is unsure", stop_before, verify, True),
    Rule("stop after an unsure guess, which is tested", partial(drop_unsure, extra=1), verify,
         True, paper("SpecDec++", "2405.19715")),
    Rule("drop an unsure guess; drawn, ratio test", drop_unsure, verify, False),
    Rule("drop an unsure guess; drawn, \"q = 1\"", drop_unsure, q_is_one, True),
    Rule("drop an unsure guess; drawn, match", drop_unsure, match_verify, True),
    Rule("drop an unsure guess; argmax, one-hot rows", partial(drop_unsure, guess=best), verify,
         True, pull("ggml-org/llama.cpp", 22506)),
    Rule("traversal", guess, traversal, True, paper("Weng et al. (2025)", "2505.12398")),
    Rule("traversal, divided by what the draft has left", guess,
         partial(traversal, rest=drafts_rest), False),
]
BY_NAME = {rule.name: rule for rule in RULES}


# ---- enumeration

@cache
def round_of(name, toy, last, k):
    """Return the distribution of one round's tokens after `last`, with k guesses."""
    rule, (draft, target) = BY_NAME[name], TOYS[toy]
    make_guesses = partial(rule.guess, draft=draft)
    return law(lambda rng: speculative_step([last], k + 1, rng, target, k, make_guesses,
                                            rule.verify).ids)


class Found(NamedTuple):
    """Hold what came out for one toy and one K: texts of K + 1 tokens."""

    toy: str
    K: int
    texts: dict  # {text: probability}
    wanted: dict  # the target's

    @property
    def distance(self):
        return total_variation(self.texts, self.wanted)


@cache
def find(name, toy, K):
    """Return what a rule does; no rule depends on earlier rounds, no row on earlier tokens."""
    def one_round(x, k):
        return round_of(name, toy, x[-1], k)

    texts = defaultdict(int)
    for (text, _), p in rounds_law(X, one_round, K + 1, K).items():
        texts[text] += p
    return Found(toy, K, texts, text_law(X, TOYS[toy][1], K + 1))


def tokens_per_round(name, toy, K):
    """Return the mean of a first round with K guesses."""
    return sum(len(ids) * p for ids, p in round_of(name, toy, X[-1], K).items())


# ---- as Markdown

def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def texts_needed(found):
    """Return log(1 / ERROR) / KL: the texts that the best test needs (Stein's lemma)."""
    nats = sum(p * log(p / found.wanted[text]) for text, p in found.texts.items() if p)
    return f"{ceil(log(1 / ERROR) / nats):,}" if nats else "-"


def rules_table():
    """Show every rule on toy A."""
    rows = []
    for rule in RULES:
        found = [find(rule.name, "A", K) for K in (1, 2, 3)]
        distances = [f"{float(one.distance):.4f}" if one.distance else "0" for one in found]
        tokens = float(tokens_per_round(rule.name, "A", 3))
        rows.append([rule.name, "exact" if rule.exact else "**no**", *distances, f"{tokens:.3f}",
                     texts_needed(found[-1]), rule.seen])
    return table(["rule", "exact?", "K = 1", "K = 2", "K = 3", "tokens/round", "texts",
                  "used, asked about or fixed in"], rows)


def toys_table():
    """Show the rows of all toys."""
    as_rows = lambda three: "; ".join(" ".join(f".{digit}" for digit in row) for row in three)
    rows = [[toy, as_rows(draft), as_rows(target)] for toy, (draft, target) in TENTHS.items()]
    return table(["toy", "p_draft after 0; 1; 2", "p_target after 0; 1; 2"], rows)


if __name__ == "__main__":
    print(rules_table())
