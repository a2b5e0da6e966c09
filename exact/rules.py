"""Compute how far verification rules, used or discussed in public, are from the target.

    python -m exact.rules             the table of docs/wild.md, on toy A
    python -m exact.rules WORDS       the rules with one of these words, on toys A, B and C
    python -m exact.rules --alarms    rules that were called inexact in public, and are exact

A rule is a way to guess and a way to test (exact/verifiers.py), given to speculative_step. Its
distance is the total variation between the distribution of K + 1 tokens that it writes and the
target's. All outcomes are enumerated, on Fractions: the 0 of an exact rule is 0.
exact/settings.py has the rules that need more than one round. tests/test_rules.py checks every
figure of docs/wild.md.
"""

import sys
from fractions import Fraction
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from exact import verifiers
from exact.law import composed_law, law, text_law, total_variation
from exact.tables import distances_table, parser_of, texts_needed
from exact.verifiers import chain, one_hot, q_is_one
from lib.markdown import markdown_table
from lib.terminal import command, print_safely
from sampling import keep_largest
from speculative import guess, make_step, verify
from variants.match import match_verify

CONFIDENT = Fraction(2, 5)  # a draft is confident of a token from this probability on
COSTS = (10, 16, 17, 18)  # of a pass with 0 .. 3 guesses
COMMON = 2  # tokens 0 and 1 are in both vocabularies, where that matters
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


# ---- ways to guess: (x, k, rng, draft) -> guesses and the rows that the test receives

def drawn_from(change):
    """Return a way to guess: draw from the draft's changed rows, and return those rows."""
    return lambda x, k, rng, draft: guess(x, k, rng, mapped(draft, change))


best = drawn_from(lambda row: one_hot(np.argmax(row)))  # the most probable tokens
colder = drawn_from(lambda row: row**2 / (row**2).sum())  # temperature 1/2
best_two = drawn_from(partial(keep_largest, n=2))
common_tokens = drawn_from(lambda row: row * (np.arange(3) < COMMON))  # which do not sum to 1


def as_drawn(x, k, rng, draft, guess):
    """Return the tokens of `guess` with the draft's own rows, as if drawn from those."""
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


# ---- ways to choose how many guesses are tested

def stop_before(x, k, rng, draft):
    """Stop before drawing from a row without a confident token."""
    if k == 0 or draft(x, 1)[-1].max() <= CONFIDENT:
        return [], []
    token, row = guess(x, 1, rng, draft)
    guesses, p_draft = stop_before(x + token, k - 1, rng, draft)
    return token + guesses, row + p_draft


def drop_improbable(x, k, rng, draft, guess=guess, extra=0):
    """Drop the guesses from the first with a low draft probability on, but for `extra`."""
    guesses, p_draft = guess(x, k, rng, draft)
    confident = [draft(x + guesses[:t], 1)[-1][token] >= CONFIDENT
                 for t, token in enumerate(guesses)]
    n = [*confident, False].index(False) + extra
    return guesses[:n], p_draft[:n]


def rates(confidences, costs):  # [.., k] -> [.., k + 1]
    """Return the expected tokens per cost of 0 .. k guesses.

    The draft's confidence in guess t is the largest probability of its row. The product of the
    first n estimates P(n guesses are accepted).
    """
    ones = np.ones_like(confidences, shape=(*np.shape(confidences)[:-1], 1))
    passed = np.concatenate([ones, confidences], axis=-1).cumprod(axis=-1)
    return passed.cumsum(axis=-1) / np.array(costs)[: passed.shape[-1]]


def first_descent(rates, axis=-1):
    """Return the first n after which the rate does not rise."""
    rises = np.diff(rates, axis=axis) > 0
    return rises.cumprod(axis=axis).sum(axis=axis)


def planned(x, k, rng, draft, choose=np.argmax, costs=COSTS):
    """Draw k guesses; keep as many as `choose` finds best by their rates."""
    guesses, p_draft = guess(x, k, rng, draft)
    n = choose(rates([row.max() for row in p_draft], costs), axis=-1)
    return guesses[:n], p_draft[:n]


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


def commit(repository, sha, words="fixed"):
    name = repository.split("/")[1]
    return f"[{name} {sha[:7]}](https://github.com/{repository}/commit/{sha}): {words}"


def file_at(repository, version, path, words):
    return f"[{words}](https://github.com/{repository}/blob/{version}/{path})"


pull = partial(issue, kind="pull")
paper = lambda name, number: f"[{name}](https://arxiv.org/abs/{number})"
VLLM, HF, SGLANG = "vllm-project/vllm", "huggingface/transformers", "sgl-project/sglang"
MLX_SWIFT = "ml-explore/mlx-swift-lm"
RTP_LLM = commit("alibaba/rtp-llm", "d5290e7b5214d61a97a6e8c8169695861063e415")
RULES = [
    # guesses, and the rows that are said to be theirs
    Rule("ratio test, residual; guesses drawn", guess, verify, True,
         f"{paper('Leviathan et al. (2023)', '2211.17192')}, "
         f"{paper('Chen et al. (2023)', '2302.01318')}"),
    Rule("the same, the draft at a different temperature", colder, verify, True,
         pull(VLLM, 10198)),
    Rule("drawn at a different temperature than the rows", partial(as_drawn, guess=colder),
         verify, False, issue(HF, 47932)),
    Rule("drawn from the two best tokens, whole rows", partial(as_drawn, guess=best_two),
         verify, False),
    Rule("drawn from common tokens, rows that sum to less than 1", common_tokens, chain,
         False),  # speculative.verify refuses such rows
    Rule("argmax guesses, one-hot rows (\"q = 1\")", best, verify, True,
         f"{pull(VLLM, 16899)}, {pull(VLLM, 40651)}, {issue('SafeAILab/EAGLE', 183)}"),
    Rule("argmax guesses, softmax rows", partial(as_drawn, guess=best), verify, False,
         f"{issue(HF, 32867)}, {pull(HF, 33534)}; {RTP_LLM}"),
    Rule("beam search's guesses, softmax rows", partial(as_drawn, guess=beam), verify, False,
         issue("apple/ml-recurrent-drafter", 6)),
    # the test
    Rule("\"q = 1\"; guesses drawn", guess, q_is_one, True, issue(VLLM, 40149)),
    Rule("\"q = 1\", with the number that drew the guess", guess, verifiers.same_number, False),
    Rule("\"q = 1\"; argmax guesses, accepted from p_target = .5 on", best,
         partial(q_is_one, p_accept=verifiers.doubled), False,
         file_at(SGLANG, "v0.5.23", "python/sglang/srt/arg_groups/fields/spec.py",
                 "SGLang's thresholds, both .5 (default: 1)")),
    Rule("\"q = 1\"; argmax guesses, always rejected", best,
         partial(q_is_one, p_accept=verifiers.never), False),
    Rule("match; guesses drawn", guess, match_verify, True, pull("ml-explore/mlx-lm", 1709)),
    Rule("match; argmax guesses", best, match_verify, True, pull("NVIDIA/TensorRT-LLM", 15775)),
    Rule("match with the target's best token, at any temperature", guess,
         verifiers.best_tokens, False,
         file_at(SGLANG, "v0.5.23", "python/sglang/srt/speculative/eagle_utils.py",
                 "SGLang 0.5.23 on CPUs and XPUs")),
    Rule("match, then a fresh draw", guess,
         partial(chain, p_accept=verifiers.probability, replace=verifiers.from_target), False),
    Rule("match or the ratio test, then the residual", guess,
         partial(chain, p_accept=verifiers.match_or_ratio), False, RTP_LLM),
    Rule("accept if p_target >= p_draft", guess,
         partial(chain, p_accept=verifiers.if_not_less), False),
    Rule("accept if p_target >= p_draft, then a draw from the target", guess,
         partial(chain, p_accept=verifiers.if_not_less, replace=verifiers.from_target), False,
         file_at("modular/modular", "105920b9a352f04e4ec176a470c8d1cc1981694c",
                 "max/python/max/nn/sampling/rejection_sampler.py",
                 "Modular's RejectionSampler, on logits")),
    Rule("ratio test, then a draw from the target", guess,
         partial(chain, replace=verifiers.from_target), False,
         "[Clay (2024)](https://github.com/ccs96307/fast-llm-inference)"),
    Rule("ratio test, then the target without the guess", guess,
         partial(chain, replace=verifiers.from_others), False,
         f"{commit('SafeAILab/EAGLE', '2f982e249fc1f171f9f8e2cccfee8acd4087bb2a')}; "
         f"{commit('xLLM-AI/xllm', '6337bec39b87f71c61b005099df267f6e23f4a01')}"),
    Rule("ratio test, then a draw from the next row", guess,
         partial(chain, replace=verifiers.from_next_row), False,
         issue("openvinotoolkit/openvino.genai", 4190)),
    Rule("ratio test with the target's next row", guess, verifiers.next_rows, False),
    Rule("ratio test, .01 added to p_draft and to the residual", guess,
         partial(chain, p_accept=verifiers.ratio_with_epsilon,
                 replace=verifiers.from_residual_with_epsilon), False),
    Rule("bonus token from the last guess's row", guess, partial(chain, bonus=-2), False),
    Rule("one uniform for all tests of a round", guess, partial(chain, numbers="one"), False),
    Rule("one uniform for a test and its replacement", guess,
         partial(chain, numbers="twice"), False),
    Rule("one Gumbel vector for a guess and its replacement", guess, verifiers.same_race, False,
         f"{pull(VLLM, 47386)}, fixed by {pull(VLLM, 54282)}"),
    Rule("products of ratios and of uniforms, then the residual of one row", guess,
         verifiers.one_product, False,
         commit("vllm-project/vllm-ascend", "2f4d55e7e88ca3ff8960bccac749eb380f0c423d")),
    Rule("traversal", guess, verifiers.traversal, True,
         paper("Weng et al. (2025)", "2505.12398")),
    Rule("traversal, divided by what the draft has left", guess,
         partial(verifiers.traversal, rest=verifiers.drafts_rest), False),
    # how many guesses are tested
    Rule("stop before drawing from a low-confidence row", stop_before, verify, True),
    Rule("stop after a low-confidence guess, which is tested",
         partial(drop_improbable, extra=1), verify, True, paper("SpecDec++", "2405.19715")),
    Rule("drop a low-confidence guess; drawn, ratio test", drop_improbable, verify, False),
    Rule("drop a low-confidence guess; drawn, \"q = 1\"", drop_improbable, q_is_one, True),
    Rule("drop a low-confidence guess; drawn, match", drop_improbable, match_verify, True),
    Rule("drop a low-confidence guess; argmax, one-hot rows",
         partial(drop_improbable, guess=best), verify, True, pull("ggml-org/llama.cpp", 22506)),
    Rule("guesses up to the first that does not pay; ratio test",
         partial(planned, choose=first_descent, costs=(10, 14, 17, 18)), verify, True),
    Rule("the number of guesses that pays best; ratio test", planned, verify, False),
    Rule("the number of guesses that pays best; match", planned, match_verify, True),
]
BY_NAME = {rule.name: rule for rule in RULES}
ALARMS = [  # (rule, what was said of it, where)
    ("match; guesses drawn", "cannot keep the target's distribution without the draft's rows",
     commit(MLX_SWIFT, "5d8dbfc528d5de300e06256e6c7eb4bbfcb1c246", "its comments")),
    ("match; argmax guesses", "the accepted tokens do not have the target's distribution",
     commit("z-lab/dflash", "e4234468192b0c156175e31e5b5325b0b205dc9f", "its message")),
    ("argmax guesses, one-hot rows (\"q = 1\")",
     "the draft's probability is set to 1: is that still lossless?",
     f"{issue('SafeAILab/EAGLE', 183)}; {issue('SafeAILab/EAGLE', 329)}: called not lossless"),
    ("\"q = 1\"; guesses drawn", "the draft's probabilities do not reach the test",
     issue(VLLM, 40149)),
]


# ---- enumeration

@cache
def round_of(name, toy, last, k):
    """Return the distribution of one round's tokens after `last`, with k guesses."""
    rule = BY_NAME[name]
    draft, target = TOYS[toy]
    step = make_step(target, k, partial(rule.guess, draft=draft), rule.verify)
    return law(lambda rng: step([last], k + 1, rng).ids)


class Found(NamedTuple):
    """Hold what came out for one toy and one K."""

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
    texts = composed_law(X, lambda x, k: round_of(name, toy, x[-1], k), K + 1, K)
    return Found(toy, K, texts, text_law(X, TOYS[toy][1], K + 1))


def tokens_per_round(name, toy, K):
    """Return the mean of a first round with K guesses."""
    return sum(len(ids) * p for ids, p in round_of(name, toy, X[-1], K).items())


# ---- as Markdown

def rules_table(words=()):
    """Show what each rule does, and where it is met."""
    columns = {
        "tokens/round": lambda rule, toy: f"{float(tokens_per_round(rule.name, toy, 3)):.3f}",
        "texts": lambda rule, toy: texts_needed(find(rule.name, toy, 3)),
        "used, asked about or fixed in": lambda rule, toy: rule.seen}
    return distances_table(RULES, TOYS, words, find, columns)


def alarms_table():
    """Show what was said of rules that are exact, and their largest distance on any toy."""
    rows = []
    for name, said, where in ALARMS:
        largest = max(find(name, toy, K).distance for toy in TOYS for K in (1, 2, 3))
        rows.append([name, said, where, largest])
    return markdown_table(["rule", "what was said or asked", "where", "distance"], rows)


def toys_table():
    """Show the rows of all toys."""
    as_rows = lambda three: "; ".join(" ".join(f".{digit}" for digit in row) for row in three)
    rows = [[toy, as_rows(draft), as_rows(target)] for toy, (draft, target) in TENTHS.items()]
    return markdown_table(["toy", "p_draft after 0; 1; 2", "p_target after 0; 1; 2"], rows)


@command("exact.rules")
def main(argv=None):
    """Print the rules, or those that were called inexact in public."""
    parser = parser_of("exact.rules", __doc__, RULES)
    parser.add_argument("--alarms", action="store_true",
                        help="show rules that were called inexact in public, and are exact")
    args = parser.parse_args(argv)
    if args.alarms and args.words:
        raise ValueError(f"--alarms shows all its rules: it takes no word, got {args.words[0]}")
    print_safely(alarms_table() if args.alarms else rules_table(args.words), sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
