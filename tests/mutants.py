"""One-line faults of the algorithm and of every decoder, each of which a named test must detect.

    python -m tests.mutants                  all of them, two at a time
    python -m tests.mutants residual lookup  those with one of these words in their line

Every mutant is a piece of a file, its replacement, and the fault that this is. It is written
into a copy of the project, in which the tests named with it run until one fails. At the end the
tests that failed must pass in a copy without a fault. The exit status is 1 if no test detects a
mutant, or such a test fails.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from lib.terminal import Parser, command

ROOT = Path(__file__).parent.parent
SECONDS = 120  # a mutant may loop for ever
PROFILE = """
import sys
sys.modules["numba"] = None  # NumPy's products: they start faster
from hypothesis import Phase, settings
settings.register_profile("mutants", derandomize=True, database=None, deadline=None,
                          phases=[Phase.explicit, Phase.generate])
"""

RATIO = "min(p_target[t][token] / p_draft[t][token], 1)"
REJECT = "return guesses[:t] + [sample(residual(p_target[t], p_draft[t]), rng)]"
BONUS = "return guesses + [sample(p_target[-1], rng)]"
MAKE = "make_guesses(x, min(K, n_left - 1), rng)"
SPECULATIVE = [
    ("draft(x + guesses, 1)", "draft(x, 1)", "the draft ignores its own guesses"),
    ("guesses.append(draw(p_draft[-1], rng))", "guesses.append(int(np.argmax(p_draft[-1])))",
     "greedy guesses, tested as if they were drawn"),
    (RATIO, "min(p_draft[t][token] / p_target[t][token], 1)", "ratio swapped"),
    ("if not abs(total - 1) < 1e-3:", "if abs(total - 1) >= 1e-3:", "a row of NaN passes unseen"),
    (RATIO, RATIO.replace("p_target[t]", "p_target[t + 1]"), "ratio from the next target row"),
    (RATIO, RATIO.replace("p_draft[t]", "p_draft[0]"), "ratio from the first draft row"),
    (f"if not accept({RATIO}, rng)", "if p_target[t][token] < p_draft[t][token]",
     "accepted if and only if the target's probability is larger"),
    (f"if not accept({RATIO}, rng)",
     f"once = rng.random() if t == 0 else once\n        if not once < {RATIO}",
     "one uniform for all tests of a round"),
    (REJECT, REJECT.replace("return ", "guesses = ") + " + guesses[t + 1 :]",
     "no stop after a rejection"),
    (REJECT, REJECT.replace("[:t]", "[: t + 1]"), "the rejected guess stays"),
    (REJECT, "return guesses[:t] + [sample(p_target[t], rng)]", "resampled from p_target"),
    (REJECT, REJECT.replace("p_draft[t]", "p_draft[0]"), "residual of the first draft row"),
    (BONUS, BONUS.replace("[-1]", "[0]"), "bonus token from the first row"),
    (BONUS, BONUS.replace("+", "or"), "no bonus token"),
    ("if not p_draft[t][token] > 0:", "if False:", "an impossible guess passes unseen"),
    (MAKE, "make_guesses(x, K, rng)", "N is overshot"),
    (MAKE, MAKE.replace("(K,", "(K - 1,"), "one guess too few"),
    ("target(x + guesses, len(guesses) + 1)", "target(x, len(guesses) + 1)",
     "rows of the wrong prefixes"),
    ("target(x + guesses, len(guesses) + 1)",
     "np.array([target(x + guesses[:t], 1)[-1] for t in range(len(guesses) + 1)])",
     "one target pass per guess"),
    ("while len(x) < end:", "while len(x) <= end:", "one round too many"),
    ("x = token_ids(x)  # a copy", "pass  # a copy", "the caller's list is written to"),
    ("    x = token_ids(x)  # read once, because x may be an iterator\n", "    x = list(x)\n",
     "ids that are not Python's stay in the text"),
    ("n_accepted=len(ids) - 1", "n_accepted=len(ids)", "the added token counts as a guess"),
    ("n_accepted=len(ids) - 1",
     "n_accepted=sum(a == b for a, b in zip(ids, guesses))",
     "accepted guesses are inferred from the tokens"),
    ("if not 1 <= len(ids) <= n_left:", "if not ids:",
     "a step that appends too many tokens passes unseen"),
    ("stop = frozenset(token_ids(stop, \"stop\"))", "stop = stop",
     "stop tokens that can be read once are lost"),
    ("result._replace(ids=up_to_stop(result.ids, stop))", "result",
     "stop tokens inside a round pass unseen"),
    ("return ids[: i + 1]", "return ids[:i]", "the stop token is cut off"),
    ("for i, token in enumerate(ids):\n        if token in stop:",
     "for token in sorted(stop):\n        if token in ids and (i := ids.index(token)) >= 0:",
     "cut at the lowest stop token, not at the first"),
]

TO_FLOAT64 = "numbers.astype(np.result_type(numbers, np.float64), copy=False)"
SURPLUS = "np.maximum(p_target - p_draft, 0)"
PREFIX = "ids[: len(ids) - n_unseen]"
TOP_K = """    if top_k:
        for row in probs:  # a view: writing to it writes to probs
            row[:] = keep_largest(row, int(top_k))
"""
TOP_P = """    if top_p < 1.0:
        for row in probs:
            row[:] = keep_top_p(row, top_p)
"""
SAMPLING = [
    ("rng.random() < at_least_float64(", "rng.random() <= at_least_float64(",
     "a uniform of 0 accepts what has no probability"),
    (TO_FLOAT64, "numbers", "uniforms rounded to float32"),
    ("if not prob >= 0:", "if prob < 0:", "a NaN is a rejection"),
    ("rng.random() < cdf", "rng.random() <= cdf", "a token of weight 0 can be drawn"),
    ("    cdf /= cdf[-1]\n", "", "weights taken to sum to 1"),
    ("weights = at_least_float64(probs)\n", "weights = np.asarray(probs)\n",
     "cumulative sum in float32"),
    (" or weights.min() < 0", "", "negative weights pass unseen"),
    (SURPLUS, "abs(p_target - p_draft)", "residual without its maximum"),
    (SURPLUS, f"{SURPLUS} + 1e-10", "an epsilon for every token in the residual"),
    ("surplus / mass if mass > 0 else p_target", "surplus / mass",
     "0 / 0 where target and draft are equal"),
    ("probs -= largest", "np.clip(probs, -50, 50, out=probs)", "logits clipped to +-50"),
    ("probs /= probs.sum(axis=-1, keepdims=True)", "probs /= probs.sum()",
     "normalised over all rows"),
    ("probs = np.array(logits, dtype=np.float64)", "probs = np.asarray(logits, dtype=np.float64)",
     "softmax writes to its argument"),
    ("row >= (1 - top_p) / len(row)", "row > (1 - top_p)", "tokens that top-p needs are left out"),
    ("softmax(rows, temperature)", "softmax(rows)", "temperature ignored"),
    ("    check_finite(rows)\n", "", "NaN logits pass unseen"),
    (TOP_K + TOP_P, TOP_P + TOP_K, "top-p before top-k"),
    ("model(ids, n_last), ids=ids, **settings", "model(ids, n_last), ids=ids",
     "settings dropped on the way to warp"),
    ("rows.argmax(axis=-1)", "rows.shape[1] - 1 - rows[:, ::-1].argmax(axis=-1)",
     "greedy takes the highest id of equals"),
    ("rows = np.array(rows, dtype=np.float64)  # a copy",
     "rows = np.asarray(rows, dtype=np.float64)", "the model's logits are written to"),
    (PREFIX, "ids", "rejected guesses are penalised"),
    (PREFIX, PREFIX.replace("n_unseen", "n_unseen - 1"), "the last token is not penalised"),
    ("np.where(old > 0,", "np.where(old < 0,", "penalty of the wrong sign"),
    ("np.where(larger, row, 0.0)", "np.where(row >= border, row, 0.0)",
     "all equals at the border are kept"),
    ("np.count_nonzero(mass < top_p)", "np.count_nonzero(mass <= top_p)",
     "one token too many for top-p"),
]

N_PAST = "n_past = min(common_prefix(cached_ids, ids), len(ids) - n_last)"
NEW = "forward(tokens, slice(n_past, end)"
WRITE = "keys[:, n_past:] = k\n        values[:, n_past:] = v"
GPT2 = [
    (N_PAST, "n_past = min(len(cached_ids), len(ids) - n_last)", "the cache is not rewound"),
    (N_PAST, N_PAST.replace("n_last", "1"), "rows wanted again are not computed"),
    (N_PAST, "n_past = 0", "nothing is remembered"),
    ("self.ids = ids[:n_past]  # so", "pass  # so",
     "an interrupt leaves tokens that are not in the cache"),
    (NEW, NEW.replace("n_past, end", "0, end - n_past"), "positions start at 0 again"),
    ("self.mask[n_past:end, :end]", "self.mask[: end - n_past, :end]",
     "the mask's rows start at 0 again"),
    (WRITE, WRITE.replace("n_past:", ": q.shape[1]"),
     "keys and values written to the start"),
    ("if a[:n] == b[:n]:", "if a[-n:] == b[-n:]:", "a common suffix taken for a prefix"),
    ("/ math.sqrt(q.shape[-1])", "/ math.sqrt(q.shape[-2])", "scores divided by the wrong length"),
]

LAW = [
    ("range(len(weights) - 1, 0, -1)", "range(1, 0, -1)",
     "the third branch of a decision is left out"),
    ("weights[branch] for weights, branch in forks)",
     "weights[branch] for weights, branch in [*forks, *forks[:1]])",
     "the first decision's probability is counted twice"),
    ("        self.interval[:] = edges[branch : branch + 2]\n"
     "        return (cuts >= self.interval[1])[()]",
     "        return (cuts >= edges[branch + 1])[()]",
     "two comparisons of one uniform are taken as independent"),
    ("pieces if width == 1 else [piece / width for piece in pieces]", "pieces",
     "pieces of a piece are not taken relative to it"),
    ("return ~np.asarray(self < bounds)[()]", "return np.asarray(self < bounds)[()]",
     "above is taken for below"),
    ("            stack.enter_context(mock.patch(name, Forbidden(name)))",
     "            pass", "a draw from another generator is not noticed"),
    ("for _ in range(RERUNS):", "for _ in range(0):",
     "a draw from a generator made before is not noticed"),
    ("        if earlier_weights != weights:", "        if False:",
     "a different decision in a later run is not noticed"),
    ("stopped if token in stop else longer", "longer", "the text goes on after a stop token"),
]
DISTRIBUTIONS = [
    ("law_a.keys() | law_b.keys()]", "law_a.keys()]", "outcomes of one law alone do not count"),
    ("if not deviation <= tolerance:", "if deviation > tolerance:", "NaN is no difference"),
]

REGISTRY = [
    ("if name not in settings:", "if False:", "a flag that a decoder lacks passes unseen"),
    ("settings[name] = flag.read(value, default)", "settings[name] = value",
     "a number of guesses below 1 passes unseen"),
    ("settings[name] = flag.read(value, default)", "self.flags[name][1].read(value)",
     "flags that are given do not arrive"),
    ("self.exact_if(settings) if self.exact_if else bool(self.exact)", "bool(self.exact)",
     "a condition is taken for exact"),
    ('needs.add("costs")', "pass",
     "--K auto does not ask for costs"),
]

FIXED = ("one_hot_rows(guesses, n_vocab)", "one_hot_rows(guesses, n_vocab) * 0.5 + 0.5 / n_vocab",
         "a fixed guess with a row that says it was drawn")


def laws(name):
    """Return the tests of all laws for one decoder."""
    return f"tests/test_laws.py -k {name}-"


def own(name):
    """Return the tests of one decoder's own file."""
    return f"tests/variants/test_{name}.py"


CASES = [  # (file, tests, [(piece, its replacement, fault)])
    ("speculative.py", "tests/test_speculative.py", SPECULATIVE),
    ("sampling.py", "tests/test_sampling.py", SAMPLING),
    ("gpt2.py", "tests/test_gpt2.py tests/test_caches.py", GPT2),
    ("exact/law.py", "tests/test_law.py", LAW),
    ("tests/distributions.py", "tests/test_law.py", DISTRIBUTIONS),
    ("variants/registry.py", own("flags"), REGISTRY),
    ("wrappers/intersection.py",
     "tests/wrappers/test_intersection.py -k is_rejected", [
        ("rows[:, self.common.draft_ids]", "rows[:, : len(self.common.ids)]",
         "the draft's first entries, whatever their ids"),
    ]),
    ("lib/memory.py", own("suffix"), [
        ('with file_lock(f"{path}.lock"):', "if True:", "writers overwrite each other's texts"),
        ("with atomic(path) as file:", 'with open(path, "wb") as file:', "written in place"),
    ]),
    ("wrappers/batch_gpt2.py", "tests/test_laws.py -k batch", [
        ("k[:, rows], v[:, rows]", "k[:, : part.n_new], v[:, : part.n_new]",
         "keys and values of another text"),
        ("x[end - part.n_last : end]", "x[-part.n_last :]", "the last text's rows for all"),
    ]),
    ("wrappers/batch_gpt2.py", "tests/test_caches.py", [
        ("part.ids[: part.n_past], part.cache", "part.ids, part.cache",
         "a text is taken for read before its pass"),
    ]),
    ("wrappers/window.py", "tests/wrappers/test_window.py", [
        ("n_left, n_ctx - len(seen)", "n_left, n_ctx", "a round that goes beyond its window"),
        ("max(n_prompt, n_ctx)", "n_ctx", "a long prompt sees other windows than its text"),
    ]),
]
CASES += [("variants/" + file, tests, mutants) for file, tests, mutants in [
    ("speculative.py", own("speculative"), [
        ("accepted += result.n_accepted", "accepted += result.n_tested", "all guesses count"),
        ("patience = 2 * patience", "pass", "no longer pause after a useless trial"),
    ]),
    ("lookup.py", laws("lookup"), [
        FIXED, ("for i in range(k):", "for i in range(k + 1):", "copies beyond N"),
    ]),
    ("lookup.py", own("chain"), [
        ("range(len(x) - n - 1, -1, -1)", "range(len(x) - n, -1, -1)", "the suffix finds itself"),
        ("range(len(x) - n - 1, -1, -1)", "range(len(x) - n)", "the earliest occurrence"),
    ]),
    ("suffix.py", laws("suffix"), [
        FIXED,
    ]),
    ("suffix.py", own("suffix"), [
        ("sum(followed.values())", "(1 + sum(followed.values()))",
         "the position to be guessed is counted"),
        ("score += probability", "score = probability", "the score is the last probability"),
        ("max(reversed(followed)", "max(followed",
         "the first of the most frequent, not the latest"),
        ("if x[: len(self.text)] != self.text:", "if False:",
         "a new text is counted with the one before"),
        ("self.add(x, len(self.text))", "self.add(x, 0)", "old tokens count once per round"),
    ]),
    ("jacobi.py", laws("jacobi"), [
        FIXED, ("[last] * k)[:k]", "[last] * k)", "a block longer than n_left"),
    ]),
    ("jacobi.py", own("jacobi"), [
        ("result.p_target[len(result.ids) :]", "result.p_target[len(result.ids) - 1 :]",
         "the next block is one position behind"),
        (".argmax(axis=-1).tolist()", ".argmin(axis=-1).tolist()", "the target's worst token"),
    ]),
    ("skip.py", own("skip"), [
        ("[i for i in range(n_layer) if i not in skipped]", "sorted(skipped)",
         "the blocks to leave out are those that run"),
        ("list(range(exit))", "list(range(exit + 1))", "one block more than --exit"),
    ]),
    ("quantized.py", own("quantized"), [
        ("return GPT2(with_matrices(model.params, int8), model.n_head)",
         "copy = GPT2(with_matrices(model.params, int8), model.n_head)\n"
         "    copy.cache = model.cache\n    return copy",
         "the copy writes into the target's cache"),
    ]),
    ("assisted.py", laws("assisted"), [
        ("greedy_row(row) if greedy else row)\n"
         "        guesses.append(sample(p_draft[-1], rng))",
         "row)\n        guesses.append(int(row.argmax()))",
         "the best token as the guess, with the draft's row in the ratio"),
        ("        if row[guesses[-1]] < confidence:\n            break",
         "        if row[guesses[-1]] < confidence:\n"
         "            guesses.pop(), p_draft.pop()\n            break",
         "a low-confidence guess is dropped because of its own probability"),
    ]),
    ("assisted.py", own("chain"), [
        ("K + 2 if all_are_accepted", "K + 2 if result.n_accepted",
         "K grows after a rejection"),
    ]),
    ("stopping.py", laws("stopping"), [
        ("        s *= a[bucket]\n",
         "        if row[guesses[-1]] < 0.4:\n"
         "            guesses.pop(), p_draft.pop()\n            break\n"
         "        s *= a[bucket]\n", "a guess that was drawn is dropped for being unlikely"),
    ]),
    ("stopping.py", own("stopping"), [
        ("gains = row_price + net_tokens(", "gains = net_tokens(", "the draft step is paid twice"),
        ("if bucket_fractions @ np.maximum(0, gains) <= row_price:", "if False:",
         "rows whatever they bring"),
        ("prices[len(guesses) :]", "prices", "every guess has the price of the first"),
        ("        s *= a[bucket]\n", "", "the guesses before are taken for certain"),
        ("DECAY * self.time + cost", "self.time + cost", "the time of old rounds never decays"),
    ]),
    ("match.py", laws("match"), [
        ("            return ids\n", "            return ids[:-1] + [draw(row, rng)]\n",
         "a fresh draw where the target's own was not the guess"),
        ("zip(p_target, [*guesses, None])", "zip(p_target[1:], [*guesses, None])",
         "the row of the next position"),
    ]),
    ("coupled.py", laws("coupled"), [
        ("del drawn[: len(result.ids)]", "pass", "every round draws with the first one's numbers"),
    ]),
    ("coupled.py", own("coupled"), [
        ("del drawn[: len(result.ids)]", "del drawn[: len(result.guesses)]",
         "numbers of guesses used up, not those of the text"),
        ("probs / exponentials(", "probs * exponentials(", "the last of the race, not the first"),
        ("p_target, Replay(drawn, rng), draw)", "p_target, rng, draw)",
         "the target draws with its own numbers"),
    ]),
    ("block.py", laws("block"), [
        ("residual(share[n] * p_target[n], p_draft[n])", "residual(p_target[n], p_draft[n])",
         "the residual of verify"),
        ("share[-1] * p_target[t][token] / p_draft[t][token], 1)",
         "share[-1] * min(p_target[t][token] / p_draft[t][token], 1), 1)",
         "each ratio cut at 1"),
        ("divisor = surplus + 1 - share_t", "divisor = surplus + 1",
         "wrong probability of t guesses"),
    ]),
    ("lenient.py", own("chain"), [
        ("p_target[t][token] / (lenience * p_draft[t][token])",
         "lenience * p_target[t][token] / p_draft[t][token]", "lenience on the wrong side"),
        ("sample(residual(p_target[t], p_draft[t]), rng)", "sample(p_target[t], rng)",
         "resampled from the target"),
        ("lenience * p_target[t].max()", "lenience", "greedy lenience compared with 1"),
    ]),
    ("big_little.py", own("chain"), [
        ("p_large[t][guesses[t]]", "p_large[t - 1][guesses[t]]", "the row before"),
        ("        if row.max() < fallback:\n            break\n        rows.append(row)\n"
         "        guesses.append(int(row.argmax()))",
         "        rows.append(row)\n        guesses.append(int(row.argmax()))\n"
         "        if row.max() < fallback:\n            break",
         "the low-confidence token is written"),
    ]),
    ("cascade.py", own("cascade"), [
        ("np.maximum(p_target - p_draft, 0).sum(axis=-1)", "abs(p_target - p_draft).sum(axis=-1)",
         "total variation without its half"),
        ("lead > price * distance", "lead >= price * distance", "a tie goes to the target"),
        ('settings["price"] < -1)', 'settings["price"] <= -1)', "exact where a tie is the draft's"),
        ("[:, None], p_target, p_draft)", "[:, None], p_draft, p_target)",
         "draft and target exchanged"),
        ("        if models.is_greedy:", "        pi[-1] = target(ids, 1)[-1]\n"
         "        if models.is_greedy:", "the bonus token is the target's"),
    ]),
    ("tree.py", laws("tree"), [
        ("            remaining = residual(remaining, row)", "            remaining = remaining",
         "siblings tested against the whole distribution again"),
        ("        drawn.append((token, row))",
         "        drawn.append((token, drawn[0][1] if drawn else row))",
         "drawn without replacement, tested as if with"),
        ("remaining = row_after(p_target, node)", "remaining = p_target[0]",
         "the root's row at every node"),
        ("return list(zip(best, one_hot_rows(best, len(row))))",
         "return [(token, row) for token in best]", "the best children with the draft's row"),
        (" if len(path) <= k)", ")", "a tree deeper than n_left"),
    ]),
    ("shared/best_tree.py", own("best_tree"), [
        ("enumerate(acceptances):", "enumerate(acceptances[:1]):", "no second child"),
        ("pass_cost[size] + depth * c", "pass_cost[size] + c", "one draft step for all levels"),
        ("guesses.index(token) if", "0 if", "every accepted guess was a first child"),
    ]),
    ("shared/dynamic_tree.py", laws("tree"), [
        ("range(1, k + 1)", "range(1, DEPTH + 1)", "a dynamic tree deeper than n_left"),
    ]),
    ("traversal.py", laws("traversal"), [
        ("surplus / mass if mass > 0 else 1",
         "min(1, surplus / max(1 - row[token], surplus)) if surplus > 0 else 0",
         "a public port's denominator"),
        ("residual(share * remaining, row)", "residual(remaining, row)", "verify_tree's residual"),
        ("min(share * remaining[token] / row[token], 1)", "min(remaining[token] / row[token], 1)",
         "the path so far is forgotten"),
    ]),
    ("kseq.py", laws("kseq"), [
        ("accepted = once * mean_tested", "accepted = once",
         "the residual of one guess"),
        ("m = len(guesses)", "m = len({child for child, _ in guesses})",
         "a guess made twice counts once"),
    ]),
    ("lookahead.py", laws("lookahead"), [
        ("[ngram[:k] for", "[ngram for", "n-grams longer than n_left"),
    ]),
    ("lookahead.py", own("lookahead"), [
        ("first = len(result.ids) - 1", "first = len(result.ids)",
         "the window moves one position too far"),
        ("reversed(ngrams)", "ngrams", "the oldest n-gram is tested first"),
        ("trunk[:i] + column[1:]", "column[1:]", "no column looks back at the trunk"),
    ]),
    ("staged.py", laws("staged"), [
        ("p_draft += list(result.p_target[: len(result.ids)])",
         "p_draft += list((*result.p_draft, result.p_target[-1])[: len(result.ids)])",
         "the inner draft's rows in the outer ratio"),
        ("tree.add(parent, sibling, its_row)", "tree.add(parent, sibling, row)",
         "siblings drawn without replacement, tested as if with"),
    ]),
    ("medusa.py", own("heads"), [
        ("min(epsilon, delta * np.exp(-entropy))", "max(epsilon, delta * np.exp(-entropy))",
         "the larger threshold"),
        ("key=passed.get", "key=lambda node: passed[node][::-1]",
         "the most probable path, not the longest"),
        ("x = h + z *", "x = z *", "no residual connection in the heads"),
        ("epsilon=0.09, delta=0.3", "epsilon=0.9, delta=0.3", "ten times the paper's threshold"),
    ]),
    ("markov.py", own("heads"), [
        ("scores[[head]]", "scores[[0]]", "the first head guesses at every position"),
        ("follows(ids[-1])", "follows(x[-1])", "every guess sees the last token of x alone"),
    ]),
    ("shared/states.py", laws("medusa"), [
        ("self.states_of(ids, 1)[0]", "[*self.state_of_text.values()][-1]",
         "the state of the last guess, not of the one where the round stopped"),
    ]),
    ("eagle.py", own("eagle"), [
        ("with_tree_sampling(head, **models.sampling)", "with_tree_sampling(head)",
         "the sampling settings do not reach the head"),
        ("siblings, total, K or 4)", "siblings, total, (K or 4) + 1)", "a level more than --K"),
    ]),
    ("shared/eagle_head.py", own("eagle"), [
        ("x[n_past + 1 :], n_past,", "x[n_past:-1], n_past,",
         "a state beside its own token, not beside the next"),
        ("min(n_common, n - 1)", "n - 1",
         "keys and values of predicted states taken for true ones"),
        ("row_after(self.predicted, parent)", "self.predicted[0]",
         "every guess from the state at the end of the text"),
        ("self.predicted[-n_last:]", "self.predicted[:n_last]", "another node's row"),
    ]),
    ("blockwise.py", own("heads"), [
        ("n = minimum - 1\n", "n = minimum\n", "the minimum counts guesses, not tokens"),
        ("in best_ids(p_target[n], top_k)", "in best_ids(p_target[n + 1], top_k)",
         "the row of the next position"),
    ]),
    ("shared/branches.py", laws("medusa"), [
        ("one_hot_rows(tree.tokens, n_vocab)", "np.full((len(tree), n_vocab), 1 / n_vocab)",
         "the best tokens tested as if they were drawn"),
    ]),
    ("shared/branches.py", laws("lookahead"), [
        ("one_hot_rows(tree.tokens, n_vocab)",
         "one_hot_rows(tree.tokens, n_vocab) * 0.5 + 0.5 / n_vocab", FIXED[2]),
    ]),
    ("shared/branches.py", laws("tree"), [
        ("ids=text, **settings", "ids=ids.x, **settings", "the penalty forgets the path"),
    ]),
    ("shared/tree_gpt2.py", own("tree"), [
        ("sees.sum(axis=1)", "np.arange(1, 1 + len(sees))", "positions by column, not by depth"),
        ("self.cache[:, :, :, n : n + len(path)] = self.cache[:, :, :, columns]", "pass",
         "the accepted path's columns stay where they are"),
    ]),
    ("shared/tree_gpt2.py", "tests/test_caches.py", [
        ("self.ids = x[:]", "self.ids = x", "a list that the caller grows is taken for read"),
    ]),
]]


class Mutant(NamedTuple):
    """Hold a piece of a file, its replacement, the fault that this is, and the tests to run."""

    file: str
    tests: str
    old: str
    new: str
    fault: str


MUTANTS = [Mutant(file, tests, *mutant) for file, tests, mutants in CASES for mutant in mutants]
QUICK = ["ratio swapped", "temperature ignored", "the earliest occurrence"]


class Copy:
    """Hold a copy of the project in its own folder, for one fault after the other."""

    def __init__(self, folder):
        self.folder = Path(folder)
        left_out = shutil.ignore_patterns(".*", "models", "__pycache__")
        shutil.copytree(ROOT, self.folder, ignore=left_out)
        os.symlink(ROOT / "models", self.folder / "models")
        with open(self.folder / "tests/conftest.py", "a", encoding="utf-8") as file:
            file.write(PROFILE)

    def first_failure(self, *tests):
        """Return the test that fails first, or None; RuntimeError if the tests could not run."""
        command = [sys.executable, "-B", "-m", "pytest", "-n0", "-x", "-rf", "--tb=no",
                   "-p", "no:cacheprovider", "--hypothesis-profile=mutants",
                   f"--basetemp={self.folder}.tmp", *tests]
        try:
            done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True,
                                  timeout=SECONDS, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
        except subprocess.TimeoutExpired:
            return f"the limit of {SECONDS} s"
        failed = re.search(r"^FAILED (\S+::\w+)", done.stdout, re.MULTILINE)
        if done.returncode not in (0, 1) or bool(done.returncode) != bool(failed):
            raise RuntimeError(f"the tests did not run:\n{done.stdout}{done.stderr}")
        return failed and failed[1]

    def killer(self, mutant):
        """Return the test that detects the mutant, or None."""
        path = self.folder / mutant.file
        text = path.read_text(encoding="utf-8")
        path.write_text(mutated(text, mutant), encoding="utf-8")
        try:
            return self.first_failure(*shlex.split(mutant.tests))
        finally:
            path.write_text(text, encoding="utf-8")


def mutated(text: str, mutant: Mutant) -> str:
    """Return the text with the fault in it; ValueError unless the piece occurs once."""
    found = text.count(mutant.old)
    if found != 1:
        raise ValueError(f"need {mutant.old!r} exactly once in {mutant.file}, got it {found} times "
                         f"({mutant.fault})")
    return text.replace(mutant.old, mutant.new)


def run(mutants: list[Mutant], jobs: int = 2) -> bool:
    """Print which test detects each mutant; return whether all are, by tests that are sound."""
    copies = SimpleQueue()
    killers = []

    def kill(mutant):
        """Return the test that detects the mutant, or None, and the seconds it took."""
        start = time.perf_counter()
        copy = copies.get()
        try:
            return copy.killer(mutant), time.perf_counter() - start
        finally:
            copies.put(copy)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        for job in range(jobs):
            copies.put(Copy(f"{folder}/{job}"))
        for mutant, (killer, seconds) in zip(mutants, pool.map(kill, mutants)):
            killers.append(killer)
            fate = killer or "SURVIVES"
            print(f"{mutant.file:30} {mutant.fault:62} {fate}  {seconds:.1f} s", flush=True)
        tests = sorted({killer for killer in killers if killer and "::" in killer})
        unsound = copies.get().first_failure(*tests) if tests else None
    n_alive = killers.count(None)
    print(f"{len(killers) - n_alive} of {len(killers)} mutants killed by {len(tests)} tests")
    if unsound:
        print(f"{unsound} fails without a fault")
    return not n_alive and not unsound


@command("tests.mutants")
def main(argv=None):
    """Run the chosen mutants; return the exit status."""
    parser = Parser("python -m tests.mutants", description=__doc__.split("\n")[0])
    parser.add_argument("words", nargs="*", metavar="WORD",
                        help="run the mutants with one of these words in their file or fault")
    words = parser.parse_args(argv).words
    found = {word: [mutant for mutant in MUTANTS if word in f"{mutant.file} {mutant.fault}"]
             for word in words}
    for word, mutants in found.items():
        if not mutants:
            parser.error(f"no mutant has {word!r} in its file or fault")
    chosen = [mutant for mutant in MUTANTS
              if not words or any(mutant in mutants for mutants in found.values())]
    return 0 if run(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
