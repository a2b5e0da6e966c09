"""List the verification rules that were used or discussed in public, and enumerate each.

    RULES      every rule: a way to guess (guesses.py) and a test (verifiers.py)
    ALARMS     rules that were called inexact in public, and are exact

A rule is given to speculative_step. Its distance is the total variation between the distribution
of K + 1 tokens that it writes and the target's. All outcomes are enumerated, on Fractions, so an
exact rule has distance 0 without rounding. settings.py has the rules that need more than one round.
"""

from functools import cache, partial
from typing import Any, NamedTuple

from exact.law import composed_law, law, text_law
from exact.rules import verifiers
from exact.rules.guesses import (
    COSTS_WITH_A_BEND,
    DraftGuess,
    as_drawn,
    beam,
    best_two,
    colder,
    common_tokens,
    drop_improbable,
    first_descent,
    planned,
    stop_before,
)
from exact.rules.verifiers import chain, q_is_one
from exact.toys import TOYS, Found, X, best
from speculative import Test, guess, make_step, verify
from variants.match import match_verify

# ---- a rule, and links to where it is met

class Rule(NamedTuple):
    """Hold a name, a guess, a test, whether the pair is exact, and links to where it is met."""

    name: str
    guess: DraftGuess
    verify: Test
    exact: bool
    seen: str = ""  # links


def issue(repository: str, number: int, kind: str = "issues") -> str:
    """Return a link to an issue, or with kind "pull" to a pull request."""
    name = repository.split("/")[1]
    return f"[{name} #{number}](https://github.com/{repository}/{kind}/{number})"


def commit(repository: str, sha: str, words: str = "fixed") -> str:
    """Return a link to a commit, and what it did."""
    name = repository.split("/")[1]
    return f"[{name} {sha[:7]}](https://github.com/{repository}/commit/{sha}): {words}"


def file_at(repository: str, version: str, path: str, words: str) -> str:
    """Return a link to a file at a tag or commit."""
    return f"[{words}](https://github.com/{repository}/blob/{version}/{path})"


pull = partial(issue, kind="pull")
paper = lambda name, number: f"[{name}](https://arxiv.org/abs/{number})"
VLLM = "vllm-project/vllm"
HF = "huggingface/transformers"
SGLANG = "sgl-project/sglang"
MLX_SWIFT = "ml-explore/mlx-swift-lm"
RTP_LLM = commit("alibaba/rtp-llm", "d5290e7b5214d61a97a6e8c8169695861063e415")


# ---- the rules

RULES = [
    # guesses, and the rows that the test is given as their distributions
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
         partial(planned, choose=first_descent, costs=COSTS_WITH_A_BEND), verify, True),
    Rule("the number of guesses that pays best; ratio test", planned, verify, False),
    Rule("the number of guesses that pays best; match", planned, match_verify, True),
]
BY_NAME: dict[str, Rule] = {rule.name: rule for rule in RULES}
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
def round_law(name: str, toy: str, last: int, k: int) -> dict:
    """Return the distribution of one round's tokens after the token `last`, with k guesses."""
    rule = BY_NAME[name]
    draft, target = TOYS[toy]
    step = make_step(target, k, partial(rule.guess, draft=draft), rule.verify)
    return law(lambda rng: step([last], k + 1, rng).ids)


@cache
def enumerated_rule(name: str, toy: str, K: int) -> Found:
    """Return what a rule writes on a toy."""
    # a round depends on the last token of x alone: rules do not depend on earlier rounds, and the
    # rows of a toy do not depend on earlier tokens
    texts = composed_law(X, lambda x, k: round_law(name, toy, x[-1], k), K + 1, K)
    return Found(toy, K, texts, text_law(X, TOYS[toy][1], K + 1))


def tokens_per_round(name: str, toy: str, K: int) -> Any:
    """Return the mean number of tokens of a first round with K guesses."""
    return sum(len(ids) * p for ids, p in round_law(name, toy, X[-1], K).items())
