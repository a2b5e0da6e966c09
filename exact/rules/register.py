"""List the verification rules that were used or discussed in public, and enumerate each.

    Rule       a way to guess (guesses.py) and a test (verifiers.py)
    GROUPS     {what goes wrong: rules}; the first group has the exact rules
    RULES      the rules of all groups
    DOUBTS     {id of an exact rule: where it was called inexact in public}

The distance of a rule is the total variation between two distributions of K + 1 tokens: the
tokens that speculative_step writes with the rule, and the target's own tokens. All outcomes are
enumerated, on Fractions, so an exact rule has distance 0 without rounding. settings.py has the
rules that need more than one round.
"""

from functools import cache, partial
from typing import Any, NamedTuple

from exact.expected import along_paths
from exact.law import text_law
from exact.rules import guesses, verifiers
from exact.rules.verifiers import chain, q_is_one
from exact.toys import TOYS, Found, X, best, law_of_round, texts_by_rounds
from speculative import Model, Step, Test, guess, make_step, verify
from variants.match import match_verify
from variants.multipath import guess_paths

# ---- a rule, and links to where it is met

class Rule(NamedTuple):
    """Hold an id, a sentence, a guess, a test, links, and whether this pair is exact."""

    id: str  # for commands, tables and tests
    name: str  # the rule in a sentence
    guess: guesses.DraftGuess
    verify: Test
    seen: str = ""  # links to where the rule was used, asked about or fixed
    exact: bool = False
    status: str = "shipped"  # of a wrong rule with links: "shipped", "reported", "fixed" since
    # then, or an "option" that is off by default


def issue(repository: str, number: int, month: str = "", kind: str = "issues") -> str:
    """Return a link to an issue, or with kind "pull" to a pull request, opened in a month."""
    words = f"{repository.split('/')[1]} #{number}" + (month and f", {month}")
    return f"[{words}](https://github.com/{repository}/{kind}/{number})"


def commit(repository: str, sha: str, month: str = "", words: str = "fixed") -> str:
    """Return a link to a commit of a month, followed by what the commit did."""
    link_words = f"{repository.split('/')[1]} {sha[:7]}" + (month and f", {month}")
    return f"[{link_words}](https://github.com/{repository}/commit/{sha}): {words}"


def file_at(repository: str, version: str, path: str, words: str) -> str:
    """Return a link with these words to a file of a repository, at a tag or commit."""
    return f"[{words}](https://github.com/{repository}/blob/{version}/{path})"


pull = partial(issue, kind="pull")
paper = lambda name, number: f"[{name}](https://arxiv.org/abs/{number})"
VLLM = "vllm-project/vllm"
HF = "huggingface/transformers"
FMS = "foundation-model-stack/fms-extras"
SGLANG = "sgl-project/sglang"
HSD = "ZhouYuxuanYX/Hierarchical-Speculative-Decoding"
HSD_HEAD = "b8575e2ad42bcf2b32d0c6f3481eb49099453f33"
MLX_SWIFT = "ml-explore/mlx-swift-lm"
RTP_LLM = commit("alibaba/rtp-llm", "d5290e7b5214d61a97a6e8c8169695861063e415", "2026-07")

# a test in which p_accept reads p_target / its maximum; the replacement is drawn from the
# target
scaled_chain = partial(chain, scaled=verifiers.by_the_best, replace=verifiers.from_target)


# ---- the rules, in the order of docs/wild.md; of wrong rules those with links come first

EXACT_RULES = [
    # the ratio rule and other tests of drawn guesses
    Rule("ratio", "ratio rule, residual; guesses drawn", guess, verify,
         f"{paper('Leviathan et al. (2023)', '2211.17192')}, "
         f"{paper('Chen et al. (2023)', '2302.01318')}", exact=True),
    Rule("colder-draft", "guesses drawn at a different temperature, tested with their own rows",
         guesses.colder, verify, pull(VLLM, 10198), exact=True),
    Rule("no-bonus", "ratio rule, no bonus token", guess, verifiers.no_bonus,
         file_at("duoan/TorchCode", "3c89f7938804076427e3329fbddaf58b7283c4f1",
                 "solutions/34_speculative_decoding_solution.ipynb", "TorchCode, an exercise"),
         exact=True),
    # the next three rules are exact, because the guesses before guess t alone decide whether
    # guess t is tested
    Rule("stop-before", "stop before drawing from a low-confidence row", guesses.stop_before,
         verify, exact=True),
    Rule("stop-after", "stop after a low-confidence guess, which is tested",
         partial(guesses.drop_improbable, extra=1), verify, paper("SpecDec++", "2405.19715"),
         exact=True),
    Rule("first-descent", "guesses up to the first that does not pay; ratio rule",
         partial(guesses.planned, choose=guesses.first_descent,
                 costs=guesses.COSTS_WITH_A_BEND), verify, exact=True),
    Rule("traversal", "traversal of one chain, which is block verification", guess,
         verifiers.traversal, paper("Weng et al. (2025)", "2505.12398"), exact=True),
    # one-hot rows, "q = 1" and match: tests that are exact however the guesses were made
    Rule("one-hot-argmax", "argmax guesses, one-hot rule", best, verify,
         f"{pull(VLLM, 16899)}, {pull(VLLM, 40651)}", exact=True),
    Rule("one-hot", "one-hot rule; guesses drawn", guess, q_is_one, exact=True),
    Rule("match", "match; guesses drawn", guess, match_verify, pull("ml-explore/mlx-lm", 1709),
         exact=True),
    Rule("match-argmax", "match; argmax guesses", best, match_verify,
         pull("NVIDIA/TensorRT-LLM", 15775), exact=True),
    Rule("match-tree", "match; a tree of guesses, one draw from the target for each token",
         guesses.two_best_paths, verifiers.match_tree, pull(FMS, 17), exact=True),
    Rule("drop-one-hot-argmax", "drop a low-confidence guess; argmax, one-hot rows",
         partial(guesses.drop_improbable, guess=best), verify,
         pull("ggml-org/llama.cpp", 22506), exact=True),
    Rule("drop-one-hot", "drop a low-confidence guess; drawn, one-hot rule",
         guesses.drop_improbable, q_is_one, exact=True),
    Rule("drop-match", "drop a low-confidence guess; drawn, match", guesses.drop_improbable,
         match_verify, exact=True),
    Rule("plan-match", "the number of guesses that pays best; match", guesses.planned,
         match_verify, exact=True),
]
INEXACT = {  # {what goes wrong: rules}
    "the rule": [
        Rule("greedy-match", "match with the target's best token, at any temperature", guess,
             verifiers.best_tokens,
             file_at(SGLANG, "v0.5.23", "python/sglang/srt/speculative/eagle_utils.py",
                     "SGLang 0.5.23 on CPUs and XPUs")),
        Rule("half-threshold", "one-hot rule; argmax guesses, accepted from p_target = .5 on",
             best, partial(q_is_one, p_accept=verifiers.doubled),
             file_at(SGLANG, "v0.5.23", "python/sglang/srt/arg_groups/fields/spec.py",
                     "SGLang's thresholds, both .5 (default: 1)"), status="option"),
        Rule("match-or-ratio", "match or the ratio rule, then the residual", guess,
             partial(chain, p_accept=verifiers.match_or_ratio), RTP_LLM, status="fixed"),
        Rule("match-per-path",
             "match; a tree of guesses, draws from the target for each path, the longest match",
             guesses.two_best_paths, verifiers.match_each_path,
             f"{issue(FMS, 12, '2024-04')}: avoided in {pull(FMS, 17, '2024-04')}",
             status="reported"),
        Rule("hard-ratio-draw",
             "accept if p_target >= p_draft, then a draw from the target", guess,
             partial(chain, p_accept=verifiers.if_not_less, replace=verifiers.from_target),
             file_at("modular/modular", "105920b9a352f04e4ec176a470c8d1cc1981694c",
                     "max/python/max/nn/sampling/rejection_sampler.py",
                     "Modular's RejectionSampler, on logits, read 2026-11")),
        Rule("over-best-draw",
             "accept with p_target / its maximum, then a draw from the target", guess,
             partial(scaled_chain, p_accept=verifiers.probability),
             file_at("1bit-MONSTER/1bit-MONSTER", "c94fc003286702f8042f498108d56f1abd5f355c",
                     "src/laguna_generate.cpp", "1bit-MONSTER, argmax guesses, 2026-07")),
        Rule("half-best-draw",
             "accept if p_target >= half its maximum, then a draw from the target", guess,
             partial(scaled_chain, p_accept=verifiers.half_or_more),
             file_at("rohitg00/ai-engineering-from-scratch",
                     "6b10711e7ba7950c682cc0167020d84bbec210fc",
                     "phases/19-capstone-projects/14-speculative-decoding-server/code/main.py",
                     "ai-engineering-from-scratch, a lesson, 2026-08")),
        Rule("first-untested", "the first guess is not tested", guess, verifiers.first_untested,
             commit("ohdearquant/lattice", "797a77622f8bd486e429a072aeaa849cc66c10c8",
                    "2026-06", "fixed (argmax guesses)"), status="fixed"),
        Rule("last-uncapped", "block verification, the last product of ratios not capped",
             guess, partial(verifiers.traversal, shares=verifiers.last_uncapped),
             file_at(HSD, "f3adf7f13e43011d49c29a9ce9d7ad79a1296343",
                     "transformers/generation/utils.py", "HSD, utils.py, 2025-10")),
        Rule("capped-at-maxima",
             "block verification, the products of ratios capped only at a new maximum", guess,
             partial(verifiers.traversal, shares=verifiers.capped_at_maxima),
             file_at(HSD, HSD_HEAD, "algorithm.py", "HSD, algorithm.py, 2026-04")),
        Rule("paths-kept", "two one-hot paths as blocks, the accepted tokens' probability kept",
             guesses.two_best_paths, verifiers.one_hot_paths,
             file_at(HSD, HSD_HEAD, "EAGLE-3H/eagle/model/utils.py", "HSD, EAGLE-3H, 2026-04")),
        Rule("over-best", "accept with p_target / its maximum, then the residual", guess,
             partial(scaled_chain, p_accept=verifiers.probability,
                     replace=verifiers.from_residual)),
        Rule("hard-ratio", "accept if p_target >= p_draft", guess,
             partial(chain, p_accept=verifiers.if_not_less)),
        Rule("always-rejected", "one-hot rule; argmax guesses, always rejected", best,
             partial(q_is_one, p_accept=verifiers.never)),
        Rule("epsilon", "ratio rule, .01 added to p_draft and to the residual", guess,
             partial(chain, p_accept=verifiers.ratio_with_epsilon,
                     replace=verifiers.from_residual_with_epsilon)),
        Rule("drafts-rest", "traversal, divided by what the draft has left", guess,
             partial(verifiers.traversal, rest=verifiers.drafts_rest)),
    ],
    "the distributions": [
        Rule("argmax-softmax-rows", "argmax guesses, softmax rows",
             partial(guesses.as_drawn, guess=best), verify,
             f"{issue(HF, 32867, '2024-08')}, {pull(HF, 33534, '2024-09')}; {RTP_LLM}",
             status="fixed"),
        Rule("colder-guesses", "guesses drawn at a different temperature than the rows",
             partial(guesses.as_drawn, guess=guesses.colder), verify,
             f"{issue(HF, 47932, '2026-08')}, fixed by {pull(HF, 48007, '2026-08')}",
             status="fixed"),
        Rule("beam-softmax-rows", "beam search's guesses, softmax rows",
             partial(guesses.as_drawn, guess=guesses.beam), verify,
             issue("apple/ml-recurrent-drafter", 6, "2024-11"), status="reported"),
        Rule("bfloat16-guesses", "guesses drawn from bfloat16 rows, tested with float32 rows",
             partial(guesses.as_drawn, guess=guesses.drawn_in_bfloat16), verify,
             file_at("deepseek-ai/DeepSpec", "afdfa7c9382a3341a3e6f17756dd816da79f132c",
                     "deepspec/utils/sampling.py", "DeepSpec afdfa7c, 2026-06")),
        Rule("best-two-guesses", "guesses drawn from the two best tokens, whole rows",
             partial(guesses.as_drawn, guess=guesses.best_two), verify),
        # chain, because speculative.verify refuses rows that do not sum to 1
        Rule("common-tokens", "guesses drawn from common tokens, rows that sum to less than 1",
             guesses.common_tokens, chain),
        Rule("better-path", "the better of two drawn paths as a block, the draft's rows",
             partial(guess_paths, paths=2), verifiers.better_path),
        Rule("next-rows", "ratio rule with the target's next row", guess, verifiers.next_rows),
    ],
    "the replacement or bonus token": [
        Rule("target-draw", "ratio rule, then a draw from the target", guess,
             partial(chain, replace=verifiers.from_target),
             "[Clay (2024)](https://github.com/ccs96307/fast-llm-inference)"),
        Rule("without-guess", "ratio rule, then the target without the guess", guess,
             partial(chain, replace=verifiers.from_others),
             "; ".join([
                 commit("SafeAILab/EAGLE", "2f982e249fc1f171f9f8e2cccfee8acd4087bb2a",
                        "2023-12"),
                 commit("xLLM-AI/xllm", "6337bec39b87f71c61b005099df267f6e23f4a01",
                        "2026-08")]), status="fixed"),
        Rule("softmax-residual", "ratio rule, then the softmax of max(p_target - p_draft, 0)",
             guess, partial(chain, replace=verifiers.from_softmax),
             f"{pull(HF, 28508, '2024-01')}: fixed", status="fixed"),
        Rule("next-row-draw", "ratio rule, then a draw from the next row", guess,
             partial(chain, replace=verifiers.from_next_row),
             issue("openvinotoolkit/openvino.genai", 4190, "2026-07"), status="reported"),
        Rule("argmax-bonus", "ratio rule; the bonus token is the target's best token", guess,
             verifiers.best_bonus,
             file_at("shreyansh26/Speculative-Decoding",
                     "76335be2f8f1a7bf25739310ae80435b83782b23", "common/verification.py",
                     "Speculative-Decoding, verification.py, 2026-05")),
        Rule("match-redraw", "match, then a fresh draw", guess,
             partial(chain, p_accept=verifiers.probability, replace=verifiers.from_target)),
        Rule("last-row-bonus", "bonus token from the last guess's row", guess,
             partial(chain, bonus=-2)),
    ],
    "random numbers": [
        Rule("one-gumbel", "one Gumbel vector for a guess and its replacement", guess,
             verifiers.same_race, f"{pull(VLLM, 47386, '2026-07')}, fixed by "
             f"{pull(VLLM, 54282, '2026-08')}", status="fixed"),
        Rule("one-uniform-twice", "one uniform to judge a guess and to replace it", guess,
             partial(chain, numbers="twice")),
        Rule("one-uniform", "one uniform for all guesses of a round", guess,
             partial(chain, numbers="one")),
        Rule("guess-number", "one-hot rule, with the number that drew the guess", guess,
             verifiers.same_number),
    ],
    "the number of guesses": [
        Rule("drop-ratio", "drop a low-confidence guess; drawn, ratio rule",
             guesses.drop_improbable, verify),
        Rule("plan-ratio", "the number of guesses that pays best; ratio rule", guesses.planned,
             verify),
    ],
}
GROUPS: dict[str, list[Rule]] = {"exact": EXACT_RULES, **INEXACT}
RULES = [rule for group in GROUPS.values() for rule in group]
BY_ID: dict[str, Rule] = {rule.id: rule for rule in RULES}
DOUBTS = {  # {id of an exact rule: where it was called inexact}
    "match": [
        commit(MLX_SWIFT, "5d8dbfc528d5de300e06256e6c7eb4bbfcb1c246", words="its comments"),
        pull(MLX_SWIFT, 459),
        f"{issue('lablup/mlxcel', 902)}, corrected in {pull('lablup/mlxcel', 992)}"],
    "match-argmax": [
        commit("z-lab/dflash", "e4234468192b0c156175e31e5b5325b0b205dc9f",
               words="its message")],
    "match-tree": [issue("SafeAILab/EAGLE", 301)],
    "one-hot-argmax": [
        f"{issue('SafeAILab/EAGLE', 183)}; "
        f"{issue('SafeAILab/EAGLE', 329)}: called not lossless",
        pull(SGLANG, 23838)],
    "one-hot": [issue(VLLM, 40149)],
}


# ---- enumeration

def rule_step(rule: Rule, draft: Model, target: Model, K: int) -> Step:
    """Return the step that guesses and tests as the rule says."""
    make_guesses = partial(rule.guess, draft=along_paths(draft))
    return make_step(along_paths(target), K, make_guesses, rule.verify)


@cache
def round_of_rule(rule: Rule, toy: str, x: tuple[int, ...], k: int) -> dict:
    """Return {ids: p} of the tokens of a round with k guesses after the text x."""
    return law_of_round(rule_step(rule, *TOYS[toy], k), x, k)


@cache
def enumerated_rule(rule: Rule, toy: str, K: int) -> Found:
    """Return the distribution of the K + 1 tokens that a rule writes, from single rounds."""
    # a round depends on the last token alone, because the toys' rows do, and no rule remembers
    # earlier rounds
    texts = texts_by_rounds(lambda x, k: round_of_rule(rule, toy, x[-1:], k), K, K + 1)
    _, target = TOYS[toy]
    return Found(toy, K, texts, text_law(X, target, K + 1))


def tokens_per_round(rule: Rule, toy: str, K: int) -> Any:
    """Return the mean number of tokens of a first round with K guesses."""
    return sum(len(ids) * p for ids, p in round_of_rule(rule, toy, X, K).items())
