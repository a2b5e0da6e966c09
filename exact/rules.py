"""Verification rules that are in use, or were, and their exact distance from the target.

    python -m exact.rules            the rules: distance, tokens per round, what becomes too likely
    python -m exact.rules --seen     where each is met
    python -m exact.rules --all      the distances of those that are wrong, for every toy
    python -m exact.rules --toys     the toys

A rule is a way to guess and a way to test, for speculative.speculative_step. Its distance is the
total variation between the distribution of K + 1 tokens that it writes and the target's, from all
outcomes, on Fractions: the 0 of an exact rule is 0. tests/test_rules.py holds every figure.
"""

import argparse
from collections import defaultdict
from fractions import Fraction
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from sampling import accept, residual, sample
from speculative import guess, speculative_step, verify
from exact.law import Scripted, law, text_law, total_variation
from variants.match import match_verify

SURE = Fraction(2, 5)  # what a draft must give a token to be sure of it
X = (0,)  # the text before


# ---- toys: the row after a text depends on its last token, in tenths

TENTHS = {  # name: (draft, target), a row for each last token
    "A": (["154", "433", "118"], ["262", "622", "226"]),  # both like the same token best
    "B": (["721", "181", "622"], ["235", "523", "145"]),  # they do not
    "C": (["640", "055", "307"], ["208", "550", "046"]),  # with zeros
}


def markov(rows):
    """The model whose row after a text is that of its last token."""
    rows = [np.array([Fraction(int(digit), 10) for digit in row], dtype=object) for row in rows]
    return lambda ids, n_last=1: np.array([rows[token] for token in list(ids)[-n_last:]])


TOYS = {name: tuple(map(markov, pair)) for name, pair in TENTHS.items()}


def one_hot(token, n_vocab=3):
    return np.array([Fraction(int(i == token)) for i in range(n_vocab)], dtype=object)


# ---- ways to guess: (x, k, rng, draft) -> guesses and the rows that the test is told

def best(x, k, rng, draft):
    """The draft's most probable tokens, and one-hot rows."""
    return guess(x, k, rng, lambda ids, n_last: [one_hot(np.argmax(draft(ids, 1)[-1]))])


def best_as_drawn(x, k, rng, draft):
    """The same tokens, with rows that say that they were drawn."""
    guesses, _ = best(x, k, rng, draft)
    return guesses, [draft(x + guesses[:t], 1)[-1] for t in range(k)]


def beam(x, k, rng, draft, width=2):
    """The best of `width` beams, with rows that say that it was drawn."""
    beams = [(Fraction(1), [])]
    for _ in range(k):
        longer = [(p * chance, ids + [token]) for p, ids in beams
                  for token, chance in enumerate(draft(x + ids, 1)[-1])]
        beams = sorted(longer, key=lambda beam: -beam[0])[:width]
    return beams[0][1], [draft(x + beams[0][1][:t], 1)[-1] for t in range(k)]


def sharper(row):
    """The row at temperature 1/2."""
    return row**2 / (row**2).sum()


def colder(x, k, rng, draft):
    """Drawn at temperature 1/2, and the rows of that."""
    return guess(x, k, rng, lambda ids, n_last: [sharper(draft(ids, 1)[-1])])


def colder_unsaid(x, k, rng, draft):
    """Drawn at temperature 1/2, with the rows of temperature 1."""
    guesses, _ = colder(x, k, rng, draft)
    return guesses, [draft(x + guesses[:t], 1)[-1] for t in range(k)]


def stop_before(x, k, rng, draft):
    """Stop where the draft's row has no sure token, before one is drawn."""
    guesses, p_draft = [], []
    while len(guesses) < k and draft(x + guesses, 1)[-1].max() > SURE:
        token, row = guess(x + guesses, 1, rng, draft)
        guesses, p_draft = guesses + token, p_draft + row
    return guesses, p_draft


def drop_unsure(x, k, rng, draft, guess=guess):
    """Drop the first guess that the draft gave little, and what follows it."""
    guesses, p_draft = guess(x, k, rng, draft)
    sure = [draft(x + guesses[:t], 1)[-1][token] >= SURE for t, token in enumerate(guesses)]
    n = [*sure, False].index(False)
    return guesses[:n], p_draft[:n]


# ---- ways to test: (guesses, p_draft, p_target, rng) -> 1 .. k + 1 tokens

def match_then(guesses, p_draft, p_target, rng, replace):
    """Keep what the target's draw agrees with; else another draw."""
    for t, token in enumerate(guesses):
        if sample(p_target[t], rng) != token:
            return guesses[:t] + [sample(replace(p_target[t], p_draft[t]), rng)]
    return guesses + [sample(p_target[-1], rng)]


def keep_what_is_liked(guesses, p_draft, p_target, rng):
    """Keep if p_target >= p_draft, without chance."""
    for t, token in enumerate(guesses):
        if p_target[t][token] < p_draft[t][token]:
            return guesses[:t] + [sample(residual(p_target[t], p_draft[t]), rng)]
    return guesses + [sample(p_target[-1], rng)]


def ratio_then(guesses, p_draft, p_target, rng, replace=None, bonus=-1):
    """The ratio test, then a token from replace(t, p_draft, p_target); the bonus from some row."""
    for t, token in enumerate(guesses):
        if not accept(min(1, p_target[t][token] / p_draft[t][token]), rng):
            return guesses[:t] + [sample(replace(t, p_draft, p_target), rng)]
    return guesses + [sample(p_target[max(bonus, -len(p_target))], rng)]


def residual_at(t, p_draft, p_target):
    return residual(p_target[t], p_draft[t])


def q_is_one(guesses, p_draft, p_target, rng):
    """Keep with p_target; else draw another token than the guess."""
    return verify(guesses, [one_hot(token) for token in guesses], p_target, rng)


def one_uniform(guesses, p_draft, p_target, rng):
    """One number u against all ratios of a round."""
    u = rng.random()
    for t, token in enumerate(guesses):
        if not u < min(1, p_target[t][token] / p_draft[t][token]):
            return guesses[:t] + [sample(residual(p_target[t], p_draft[t]), rng)]
    return guesses + [sample(p_target[-1], rng)]


def true_rest(S, alpha, q):
    return S + 1 - alpha


def drafts_rest(S, alpha, q):
    return max(1 - q, S)


def traversal(guesses, p_draft, p_target, rng, rest=true_rest):
    """Keep the longest start that passes, tried from its end; alpha: the chance of each start."""
    alpha = [Fraction(1)]
    for t, token in enumerate(guesses):
        alpha.append(min(1, alpha[-1] * p_target[t][token] / p_draft[t][token]))
    row, chance = p_target[-1], alpha[-1]
    for n in range(len(guesses), 0, -1):
        if accept(chance, rng):
            return guesses[:n] + [sample(row, rng)]
        row = np.maximum(alpha[n - 1] * p_target[n - 1] - p_draft[n - 1], 0)
        S, q = row.sum(), p_draft[n - 1][guesses[n - 1]]
        chance = S / rest(S, alpha[n - 1], q) if S else 0
    return [sample(row, rng)]


# ---- a number that is used twice

class Remembered:
    """A generator that keeps what it gave."""

    def __init__(self, rng):
        self.rng, self.given = rng, []

    def random(self):
        self.given.append(self.rng.random())
        return self.given[-1]


def one_number_twice(x, n_left, rng, target, K, guess, verify):
    """The number that drew a guess draws what replaces it; the ratio test has one of its own."""
    drawn = Remembered(rng)

    def test(guesses, p_draft, p_target, rng):
        for t, token in enumerate(guesses):
            if not accept(min(1, p_target[t][token] / p_draft[t][token]), rng):
                again = Scripted([drawn.given[t]])
                return guesses[:t] + [sample(residual(p_target[t], p_draft[t]), again)]
        return guesses + [sample(p_target[-1], rng)]

    return speculative_step(x, n_left, rng, target, K, lambda x, k, rng: guess(x, k, drawn), test)


# ---- the rules

class Rule(NamedTuple):
    """A name, a guess, a test, whether they are exact together, and where that is met."""

    name: str
    guess: object
    verify: object
    exact: bool
    seen: str = ""
    step: object = speculative_step


def issue(repository, number, kind="issues"):
    name = repository.split("/")[1]
    return f"[{name} #{number}](https://github.com/{repository}/{kind}/{number})"


pull = partial(issue, kind="pull")
paper = lambda name, number: f"[{name}](https://arxiv.org/abs/{number})"
FROM_TARGET = lambda t, p_draft, p_target: p_target[t]
NEXT_ROW = lambda t, p_draft, p_target: p_target[t + 1]
VLLM, HF = "vllm-project/vllm", "huggingface/transformers"
RULES = [
    Rule("ratio test, residual; guesses drawn", guess, verify, True,
         f"{paper('Leviathan et al. (2023)', '2211.17192')}, "
         f"{paper('Chen et al. (2023)', '2302.01318')}"),
    Rule("the same, the draft at another temperature", colder, verify, True,
         pull(VLLM, 10198)),
    Rule("drawn at another temperature than the rows say", colder_unsaid, verify, False,
         issue(HF, 47932)),
    Rule("argmax guesses, one-hot rows", best, verify, True, pull(VLLM, 16899)),
    Rule("argmax guesses, softmax rows", best_as_drawn, verify, False,
         issue(HF, 32867) + ", " + pull(HF, 33534)),
    Rule("beam search's guesses, softmax rows", beam, verify, False,
         issue("apple/ml-recurrent-drafter", 6)),
    Rule("\"q = 1\"; guesses drawn", guess, q_is_one, True, issue(VLLM, 40149)),
    Rule("\"q = 1\"; argmax guesses", best, q_is_one, True, issue("SafeAILab/EAGLE", 183)),
    Rule("match; guesses drawn", guess, match_verify, True, pull("ml-explore/mlx-lm", 1709)),
    Rule("match; argmax guesses", best, match_verify, True,
         pull("NVIDIA/TensorRT-LLM", 15775)),
    Rule("match, then a fresh draw; guesses drawn", guess,
         partial(match_then, replace=lambda p, q: p), False),
    Rule("match, then a fresh draw; argmax guesses", best,
         partial(match_then, replace=lambda p, q: p), False),
    Rule("match, then the residual", guess, partial(match_then, replace=residual), False),
    Rule("keep if p_target >= p_draft", guess, keep_what_is_liked, False,
         pull("vllm-project/vllm-project.github.io", 80)),
    Rule("ratio test, then a draw from the target", guess,
         partial(ratio_then, replace=FROM_TARGET), False),
    Rule("ratio test, then a draw from the next row", guess,
         partial(ratio_then, replace=NEXT_ROW), False,
         issue("openvinotoolkit/openvino.genai", 4190)),
    Rule("bonus token from the last guess's row", guess,
         partial(ratio_then, replace=residual_at, bonus=-2), False),
    Rule("one uniform for all tests of a round", guess, one_uniform, False),
    Rule("one number for a guess and its replacement", guess, None, False, pull(VLLM, 47386),
         one_number_twice),
    Rule("stop before drawing where the row is unsure", stop_before, verify, True,
         paper("SpecDec++", "2405.19715")),
    Rule("drop an unsure guess; guesses drawn", drop_unsure, verify, False),
    Rule("drop an unsure guess; argmax, one-hot rows", partial(drop_unsure, guess=best), verify,
         True, pull("ggml-org/llama.cpp", 22506)),
    Rule("traversal", guess, traversal, True, paper("Weng et al. (2025)", "2505.12398")),
    Rule("traversal, divided by what the draft has left", guess,
         partial(traversal, rest=drafts_rest), False),
]
BY_NAME = {rule.name: rule for rule in RULES}


# ---- what comes out

@cache
def round_of(name, toy, last, k):
    """The distribution of one round's tokens after a text that ends in `last`, with k guesses."""
    rule, (draft, target) = BY_NAME[name], TOYS[toy]
    guess = partial(rule.guess, draft=draft)
    return law(lambda rng: rule.step([last], k + 1, rng, target, k, guess, rule.verify).ids)


def written(name, toy, x, n_left):
    """The distribution of `n_left` tokens after x, round by round, K = room - 1 in the first one.

    No rule here has a memory, and no toy sees more than the last token.
    """
    if n_left == 0:
        return {x: 1}
    total = defaultdict(int)
    for ids, chance in round_of(name, toy, x[-1], n_left - 1).items():
        for text, rest in written(name, toy, (*x, *ids), n_left - len(ids)).items():
            total[text] += chance * rest
    return total


class Found(NamedTuple):
    """What one rule does on one toy with one K."""

    distance: Fraction  # of K + 1 tokens
    tokens: Fraction  # of a first round with room for all
    excess: list  # of each token: how much more often than the target it comes at a position


@cache
def find(name, toy, K):
    """Enumerate it."""
    N = K + 1
    got, wanted = written(name, toy, X, N), text_law(X, TOYS[toy][1], N)
    first = round_of(name, toy, X[-1], K)
    differ = {text: got.get(text, 0) - wanted.get(text, 0) for text in got.keys() | wanted.keys()}
    excess = [sum(p * text[len(X) :].count(token) for text, p in differ.items()) / N
              for token in range(3)]
    return Found(total_variation(got, wanted),
                 sum(len(ids) * chance for ids, chance in first.items()), excess)


# ---- as Markdown

def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def shown(distance):
    return f"{float(distance):.4f}" if distance else "0"


def too_likely(excess):
    """The tokens that come too often, the worst first."""
    worst = sorted((-more, token) for token, more in enumerate(excess) if more > 0)
    return ", ".join(f"{token} (+{float(-more):.3f})" for more, token in worst) or "-"


def rules_table(toy="A"):
    """Every rule on one toy."""
    rows = []
    for rule in RULES:
        found = [find(rule.name, toy, K) for K in (1, 2, 3)]
        rows.append([rule.name, "exact" if rule.exact else "**no**",
                     *(shown(one.distance) for one in found), f"{float(found[-1].tokens):.3f}",
                     too_likely(found[-1].excess)])
    return table(["rule", "exact?", "K = 1", "K = 2", "K = 3", "tokens/round", "too likely"], rows)


def seen_table():
    return table(["rule", "met, asked about or mended in"],
                 [[rule.name, rule.seen] for rule in RULES if rule.seen])


def all_table():
    """The distances of the wrong rules on every toy."""
    cases = [(toy, K) for toy in TOYS for K in (1, 2, 3)]
    rows = [[rule.name, *(shown(find(rule.name, *case).distance) for case in cases)]
            for rule in RULES if not rule.exact]
    return table(["rule", *(f"{toy}, K = {K}" for toy, K in cases)], rows)


def toys_table():
    """The rows of all toys."""
    as_row = lambda digits: ", ".join(f"0.{digit}" for digit in digits)
    rows = [[toy, last, as_row(draft[last]), as_row(target[last])]
            for toy, (draft, target) in TENTHS.items() for last in range(3)]
    return table(["toy", "last token", "p_draft", "p_target"], rows)


TABLES = {"rules": rules_table, "seen": seen_table, "all": all_table, "toys": toys_table}


def main(argv=None):
    parser = argparse.ArgumentParser("python -m exact.rules", description=__doc__.split("\n")[0])
    for name in list(TABLES)[1:]:
        parser.add_argument(f"--{name}", dest="table", action="store_const", const=name)
    print(TABLES[parser.parse_args(argv).table or "rules"]())


if __name__ == "__main__":
    main()
