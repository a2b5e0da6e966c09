"""One-line faults of the algorithm, each of which a test must see.

    python -m tests.mutants                  all of them, some minutes on all cores
    python -m tests.mutants residual cut     those with one of these words in their line

Every mutant is a file, a piece of it, what stands there instead, and what fault that is. It is put
into a copy of the project, the tests of that file run there until one fails, and that one is
printed. At the end the tests that failed must pass in the copy without a fault, so that no mutant
is killed by a broken copy. The exit status is 1 if a mutant survives or such a test fails.

Many of the faults were found in public implementations. Faults that no caller could notice are not
listed. Those of variants/ are in tests/variants/mutants.py.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import tests.variants.mutants as variants

ROOT = Path(__file__).parent.parent
SECONDS = 120  # a mutant may loop for ever
TESTS = {  # in the order in which they are tried
    "speculative.py": ["tests/test_speculative.py", "tests/test_theorem1.py"],
    "sampling.py": ["tests/test_sampling.py", "tests/test_theorem1.py"],
    "gpt2.py": ["tests/test_gpt2.py", "tests/test_theorem1.py"],
    "variants/shared/long_context.py": ["tests/variants/test_long_context.py"],
    "lib/backend/products.py": ["tests/test_products.py"],
    "lib/demo/compare.py": ["tests/test_compare.py"],
    "lib/demo/costs.py": ["tests/test_compare.py", "tests/plumbing/test_costs.py"],
    "lib/demo/task.py": ["tests/test_compare.py"],
    "variants/auto.py": ["tests/variants/test_auto.py"],
    "exact/law.py": ["tests/test_law.py", "tests/test_speculative.py"],
}
PROFILE = """
from hypothesis import Phase, settings
settings.register_profile("mutants", derandomize=True, database=None, deadline=None,
                          phases=[Phase.explicit, Phase.generate])
"""


class Mutant(NamedTuple):
    file: str
    old: str
    new: str
    fault: str
    tests: list


GUESS = "guesses.append(sample(p_draft[-1], rng))"
KEEP = "min(1, p_target[t][token] / p_draft[t][token])"
REJECT = "return guesses[:t] + [sample(residual(p_target[t], p_draft[t]), rng)]"
BONUS = "return guesses + [sample(p_target[-1], rng)]"
FIRST_STOP = "return ids[: i + 1]"
STEP_K = "guess(x, min(K, n_left - 1), rng)"
SCORE = "target(x + guesses, len(guesses) + 1)"
SPECULATIVE = [
    # guess
    ("draft(x + guesses, 1)", "draft(x, 1)", "the draft ignores its own guesses"),
    (GUESS, "guesses.append(int(np.argmax(p_draft[-1])))",
     "greedy guesses, verified as if they were drawn"),
    (GUESS, "guesses.append(sample(p_draft[-1] * p_draft[-1], rng))",
     "guesses drawn from another law than p_draft says"),
    # verify
    (KEEP, "min(1, p_draft[t][token] / p_target[t][token])", "ratio swapped"),
    (KEEP, "p_target[t][token]", "accepted with p_target, not with the ratio"),
    ("if not p_target[t][token] >= 0:", "if p_target[t][token] < 0:",
     "a NaN in p_target is an acceptance"),
    (KEEP, KEEP.replace("p_target[t]", "p_target[t + 1]"), "ratio from the next row of p_target"),
    (KEEP, KEEP.replace("p_draft[t]", "p_draft[0]"), "ratio from the first row of p_draft"),
    ("if not accept(", "if t and not accept(", "the first guess is never tested"),
    (f"if not accept({KEEP}, rng)", "if p_target[t][token] < p_draft[t][token]",
     "accepted if and only if the target likes it more"),
    (f"if not accept({KEEP}, rng)",
     f"once = rng.random() if t == 0 else once\n        if not once < {KEEP}",
     "one uniform for all tests of a round"),
    (REJECT, REJECT.replace("return ", "guesses = ") + " + guesses[t + 1 :]",
     "no stop after a rejection"),
    (REJECT, REJECT.replace("[:t]", "[: t + 1]"), "the rejected guess stays"),
    (REJECT, "return guesses[:t] + [sample(p_target[t], rng)]", "resampled from p_target"),
    (REJECT, REJECT.replace("p_target[t], p_draft[t]", "p_draft[t], p_target[t]"),
     "residual reversed"),
    (REJECT, REJECT.replace("p_target[t]", "p_target[t + 1]"),
     "residual from the next row of p_target"),
    (REJECT, REJECT.replace("p_draft[t]", "p_draft[0]"), "residual from the first row of p_draft"),
    (REJECT, "return guesses[:t] + [int(np.argmax(residual(p_target[t], p_draft[t])))]",
     "most probable token of the residual"),
    (BONUS, BONUS.replace("[-1]", "[0]"), "bonus from the first row"),
    (BONUS, BONUS.replace("+", "or"), "no bonus"),
    ("if len(p_draft[t]) != len(p_target[t]):", "if False:", "two vocabularies pass unseen"),
    ("if not p_draft[t][token] > 0:", "if False:",
     "a guess that the draft could not draw passes unseen"),
    # step and generate
    (STEP_K, "guess(x, K, rng)", "N is overshot"),
    (STEP_K, STEP_K.replace("(K,", "(K - 1,"), "one guess too few"),
    (STEP_K, STEP_K.replace("n_left - 1", "n_left"), "N is overshot by one"),
    (SCORE, "target(x, len(guesses) + 1)", "rows of the wrong prefixes"),
    (SCORE, "np.array([target(x + guesses[:t], 1)[-1] for t in range(len(guesses) + 1)])",
     "one target pass a guess"),
    ("p_target = model(x, 1)", "p_target = model(x[-1:], 1)", "the past is forgotten"),
    ("while len(x) < end:", "while len(x) <= end:", "one round too many"),
    ("x, end = list(x), len(x) + N", "x, end = x, len(x) + N", "the caller's list is written to"),
    ("round._replace(ids=up_to_stop(round.ids, stop))", "round",
     "stop ids inside a round pass unseen"),
    ("if round.ids[-1] in stop:", "if round.ids[0] in stop:", "only a round's first id can stop"),
    (FIRST_STOP, FIRST_STOP.replace("i + 1", "i"), "the stop token is cut off"),
    ("for i, token in enumerate(ids):\n        if token in stop:",
     "for token in sorted(stop):\n        if token in ids and (i := ids.index(token)) >= 0:",
     "cut at the lowest stop token, not at the first"),
]

TO_FLOAT64 = "numbers.astype(np.result_type(numbers, np.float64), copy=False)"
SURPLUS = "np.maximum(p_target - p_draft, 0)"
PREFIX = "ids[: len(ids) - len(rows) + 1 + i]"
TIES = "ties[: n - np.count_nonzero(row > border)]"
TOP_K = """    if top_k:
        probs = np.array([keep_largest(row, int(top_k)) for row in probs])
"""
TOP_P = """    if top_p < 1.0:
        probs = np.array([keep_top_p(row, top_p) for row in probs])
"""
SAMPLING = [
    # accept
    ("rng.random() < at_least_float64(", "rng.random() <= at_least_float64(",
     "a uniform of 0 accepts what has no chance"),
    (TO_FLOAT64, "numbers", "uniforms rounded to float32"),
    ("return bool(rng.random() <", "return bool(np.random.default_rng(0).random() <",
     "seeded anew at every test"),
    ("if not prob >= 0:", "if prob < 0:", "a NaN is a rejection"),
    # sample
    ("rng.random() < cdf", "rng.random() <= cdf", "searched on the wrong side"),
    ("int(np.argmax(rng.random() < cdf / cdf[-1]))",
     "int(np.argmax(rng.random() < cdf / cdf[-1])) or 1",
     "id 0 cannot be drawn"),
    ("probs = at_least_float64(probs)\n", "probs = np.asarray(probs)\n",
     "cumulative sum in float32"),
    ("cdf / cdf[-1]))", "cdf))", "weights taken to sum to 1"),
    (" or (probs < 0).any()", "", "negative weights pass unseen"),
    ("if not 0 < cdf[-1] < np.inf or", "if", "rows without mass pass unseen"),
    # residual
    (SURPLUS, "abs(p_target - p_draft)", "residual without its maximum"),
    (SURPLUS, f"{SURPLUS} + 1e-10", "an epsilon for every token in the residual"),
    ("surplus / mass if", "surplus if", "residual not normalised"),
    ("if mass > 0 else p_target", "if mass > 0 else p_draft", "residual of equal laws"),
    ("surplus / mass if mass > 0 else p_target", "surplus / mass",
     "0 / 0 where target and draft are equal"),
    # softmax and warp
    ("logits - logits.max(axis=-1, keepdims=True)", "np.clip(logits, -50, 50)",
     "logits clipped to +-50"),
    ("logits.max(axis=-1, keepdims=True)", "logits.max()", "largest logit of all rows subtracted"),
    ("exps.sum(axis=-1, keepdims=True)", "exps.sum()", "normalised over all rows"),
    ("softmax(row, temperature)", "softmax(row)", "temperature ignored"),
    ("softmax(row, temperature)", "softmax(row, 1 / temperature)", "temperature inverted"),
    ("    check_finite(rows)\n", "", "NaN logits pass unseen"),
    ("np.isfinite(rows)", "~np.isnan(rows)", "infinite logits pass unseen"),
    (TOP_K + TOP_P, TOP_P + TOP_K, "top-p before top-k"),
    ("model(ids, n_last), ids=ids, **settings", "model(ids, n_last), ids=ids",
     "settings dropped on the way to warp"),
    ("rows.argmax(axis=-1)", "rows.shape[1] - 1 - rows[:, ::-1].argmax(axis=-1)",
     "greedy takes the highest id of equals"),
    ("if len(ids) < len(rows):", "if False:", "a penalty without its ids passes unseen"),
    ("rows = rows.copy()", "rows = rows", "the model's logits are written to"),
    (PREFIX, "ids", "rejected guesses are penalised"),
    (PREFIX, PREFIX.replace(" + 1", ""), "the last id is not penalised"),
    (PREFIX, "ids[-1:]", "only the last id is penalised"),
    ("np.where(row[seen] > 0,", "np.where(row[seen] < 0,", "penalty of the wrong sign"),
    (TIES, TIES.replace("ties", "ties[::-1]"), "the highest ids of equals are kept"),
    ("np.where(row > border, row, 0.0)", "np.where(row >= border, row, 0.0)",
     "all equals at the border are kept"),
    ("return kept / kept.sum()", "return kept", "what is kept is not normalised"),
    ("np.count_nonzero(mass < top_p)", "np.count_nonzero(mass <= top_p)",
     "one token too many for top-p"),
    ("1 + np.count_nonzero(mass", "np.count_nonzero(mass", "one token too few for top-p"),
]

N_PAST = "n_past = min(common_prefix(self.ids, ids), n_seq - n_last)"
POSITIONS = "slice(n_past, n_seq), n_past,"
CACHE = [  # of gpt2.py
    (N_PAST, "n_past = min(len(self.ids), n_seq - n_last)", "the cache is not rewound"),
    (N_PAST, N_PAST.replace("n_last", "1"), "rows wanted again are not computed"),
    (N_PAST, "n_past = 0", "nothing is remembered"),
    (POSITIONS, "slice(0, n_seq - n_past), n_past,", "positions start at 0 again"),
    (POSITIONS, "slice(n_seq - len(new), n_seq) if n_seq >= self.cache.shape[3] or not n_past else "
     "slice(n_past + 1, n_seq + 1), n_past,", "positions are one ahead after the first pass"),
    ("self.mask[n_past:n_seq, :n_seq]", "self.mask[: n_seq - n_past, :n_seq]",
     "the mask's rows start at 0 again"),
    ("self.ids = ids[:n_past]  # so", "pass  # so",
     "an interrupt leaves ids in the books that are not in the cache"),
    ("        self.ids = ids\n        return", "        self.ids = ids[:-1]\n        return",
     "the last id is read twice"),
    ("        ids = list(ids)\n        n_seq", "        n_seq",
     "the books are the caller's own list"),
    ("cache[:, :, n_past:n_seq] =", "cache[:, :, :n_new] =",
     "keys and values written to the start"),
    ("= qkv[1:]", "= qkv[:2]", "queries and keys in the cache"),
    ("return next(i for i in range(n)", "return 1 + next(i for i in range(n)",
     "the first id that differs counts as shared"),
    ("if a[:n] == b[:n]:", "if a[-n:] == b[-n:]:", "a common suffix taken for a prefix"),
]

WINDOW = [
    ("n_left, n_ctx - len(seen)", "n_left, n_ctx", "a round that goes beyond its window"),
    ("len(x) - half - (", "len(x) - (", "half the window forgotten"),
    ("max(n_prompt, n_ctx)", "n_ctx", "a long prompt sees other windows than its text"),
    ("(n_ctx - half)", "n_ctx", "a window that moves too late"),
]

PRODUCTS = [
    ("parts = list(zip(bounds, [*bounds[1:], n_out]))", "parts = list(zip(bounds, bounds[1:]))",
     "the last part of the outputs is never computed"),
    ("w[:, first:last], y[:, first:last]", "w[:, : last - first], y[:, first:last]",
     "every part multiplies the first weights"),
    ("zip(bounds, bounds[1:])]", "zip(bounds[:1], bounds[1:])]",
     "only the first group of rows is multiplied"),
    ("            done.put(error)", "            done.put(None)",
     "an error in a thread passes unseen"),
    ("k[first:last], v[first:last], mask)", "k[: last - first], v[first:last], mask)",
     "every head looks at the first one's keys"),
    ("share(work, len(q), q", "share(work, len(q) - 1, q", "the last head is never computed"),
]

ENUMERATING = [
    ("forks[-1].branch == len(forks[-1].weights) - 1:", "forks[-1].branch >= 1:",
     "the third branch of a decision is left out"),
    ("while forks and forks[-1].branch == len(forks[-1].weights) - 1:",
     "while len(forks) > 1 and forks[-1].branch == len(forks[-1].weights) - 2:",
     "the last branch of a decision is left out"),
    ("math.prod(fork.weights[fork.branch] for fork in self.forks)",
     "math.prod(fork.weights[fork.branch] for fork in [*self.forks, *self.forks[:1]])",
     "the first decision's probability is counted twice"),
    ("        yield outcome, probability\n", 2 * "        yield outcome, probability\n",
     "every outcome is counted twice"),
    ("total[tuple(outcome) if isinstance(outcome, list) else outcome] += probability",
     "total[tuple(outcome) if isinstance(outcome, list) else outcome] = probability",
     "equal outcomes are not added up"),
    ("        self.interval[:] = edges[branch : branch + 2]\n"
     "        return (cuts >= self.interval[1])[()]",
     "        return (cuts >= edges[branch + 1])[()]",
     "two comparisons of one uniform are taken as independent"),
    ("pieces if width == 1 else [piece / width for piece in pieces]", "pieces",
     "pieces of a piece are not taken relative to it"),
    ("return ~np.asarray(self < bounds)[()]", "return np.asarray(self < bounds)[()]",
     "above is taken for below"),
    ("return Uniform(self, [0, 1])",
     "self.one = getattr(self, 'one', None) or Uniform(self, [0, 1])\n        return self.one",
     "every draw is the same uniform"),
    ("                stack.enter_context(mock.patch.object(module, name, forbidden))",
     "                pass", "a draw from another generator is not noticed"),
    ("for _ in range(8)):", "for _ in range(0)):",
     "a draw from a generator made before is not noticed"),
    ("        if fork.weights != weights:", "        if False:",
     "another decision in a later run is not noticed"),
    ("    if rng.depth != len(forks):", "    if False:",
     "a decision that is missing in a later run is not noticed"),
    ("(done if token in stop else longer)", "longer", "the text goes on after a stop token"),
    ("if not distance(got, expected) <= tolerance:", "if distance(got, expected) > tolerance:",
     "a probability of NaN is no difference"),
    ("law_a.keys() | law_b.keys()]", "law_a.keys()]",
     "outcomes that only one law has are no matter"),
    ("(size for size in found if size != size)", "(size for size in ())",
     "a probability of NaN beside others is no difference"),
]

COMPARE = [
    ("self.rows.append(n_last)", "self.rows.append(1)", "every pass is taken for one row"),
    ("sum(round.n_accepted for", "sum(len(round.ids) - 1 for", "the last token counts as no guess"),
    ("sum(round.n_tested for", "sum(len(round.guesses) for", "all guesses count as tested"),
    ("if task.is_tree:\n        return {", "if False:\n        return {",
     "rivals in a tree are counted as guesses of one text"),
    (" + (chooser.reading_s if chooser else 0)", "", "the reading of the costs takes no time"),
    ("ratio(plain.seconds, fast.seconds)", "ratio(fast.seconds, plain.seconds)",
     "the speed-up upside down"),
    ("pass_cost=fast.target.ms() / row", "pass_cost=1", "predicted as if rows cost nothing"),
    ("/ guesses", "/ len(fast.rounds)", "predicted with one draft pass a round"),
    ("or not always_K(fast.rounds, K, task.n_left)", "", "predicted for rounds of another K"),
    ('penalize(rows, x, task.sampling.get("repetition_penalty", 1.0))', "rows",
     "the first difference forgets the penalty"),
]
COUNTS = [  # of speculative.py
    ("min(self.n_accepted + 1, len(self.guesses), len(self.ids))",
     "min(self.n_accepted + 1, len(self.guesses))", "n_tested forgets that a stop id cut the round"),
    ("min(self.n_accepted + 1, len(self.guesses), len(self.ids))",
     "min(self.n_accepted, len(self.guesses), len(self.ids))",
     "n_tested forgets the guess that failed"),
]
COSTS = [
    ("self.reading_s + self.measuring.seconds", "self.reading_s",
     "the rounds that try K are not called measuring"),
    ("choosing(self.known, on_choice) if self.known else", "",
     "known costs are measured again"),
    ("all(0 < n < math.inf for n in numbers)", "True", "costs that cannot be are believed"),
    ("os.stat(path).st_mtime_ns", "0", "other weights in the same place are not noticed"),
    ("str(target.cache.dtype)", "0", "float64 has the costs of float32"),
    ("products.name()", "0", "another product has the costs of this"),
    ("platform.node()", "0", "another machine has the costs of this"),
]
AUTO = [
    ("if self.x is not None and x[: len(self.x)] == self.x:", "if True:",
     "the first round, which reads the prompt, is counted"),
    (" and x[: len(self.x)] == self.x:", ":", "a round that reads a moved window is counted"),
    ("self.spent[0] / k)", "self.spent[0])", "the cost of a round's guesses is that of one"),
    ("[min(times) / row for", "[max(times) / row for", "slow moments are believed"),
    ("agree(times) < wanted and", "not times and", "one measurement is always enough"),
    ("self.seconds + self.clock() - start", "self.seconds", "measuring takes no time"),
    ("time <= NEAR * min(times)", "True", "two measurements agree whatever they are"),
]
TASK = [
    ("for folder in folders}) == 1", "for folder in folders}) == 0",
     "one model given twice is kept twice"),
    ("for folder in folders}) == 1", "for folder in folders}) >= 1",
     "draft and target are always one"),
    ("{folder.resolve() for", "{folder for", "a link to a model is another model"),
]

BY_FILE = {"lib/demo/compare.py": COMPARE, "lib/demo/costs.py": COSTS, "lib/demo/task.py": TASK,
           "variants/auto.py": AUTO,
           "exact/law.py": ENUMERATING, "speculative.py": SPECULATIVE,
           "sampling.py": SAMPLING, "gpt2.py": CACHE,
           "variants/shared/long_context.py": WINDOW, "lib/backend/products.py": PRODUCTS}
MUTANTS = [
    *(Mutant(file, *mutant, TESTS[file]) for file, mutants in BY_FILE.items()
      for mutant in mutants),
    *(Mutant("speculative.py", *mutant, TESTS["lib/demo/compare.py"]) for mutant in COUNTS),
    *(Mutant(*mutant, variants.TESTS[mutant[0]]) for mutant in variants.MUTANTS),
    *(Mutant(*mutant, [variants.SETTINGS]) for mutant in variants.BUILDERS),
]

QUICK = ["ratio swapped", "temperature ignored"]


class Copy:
    """A copy of the project in a folder of its own, for one fault after the other."""

    def __init__(self, folder):
        self.folder = Path(folder)
        left_out = shutil.ignore_patterns(".*", "models", "__pycache__")
        shutil.copytree(ROOT, self.folder, ignore=left_out)
        os.symlink(ROOT / "models", self.folder / "models")
        with open(self.folder / "tests/conftest.py", "a", encoding="utf-8") as file:
            file.write(PROFILE)

    def first_failure(self, tests):
        """The test that fails first, or None; RuntimeError if the tests could not run at all."""
        command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-rf", "--tb=no",
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
        """The test that sees the mutant, or None."""
        path = self.folder / mutant.file
        text = path.read_text(encoding="utf-8")
        path.write_text(mutated(text, mutant), encoding="utf-8")
        try:
            return self.first_failure(mutant.tests)
        finally:
            path.write_text(text, encoding="utf-8")


def mutated(text, mutant):
    """The text with the fault in it; the piece that it replaces must stand there exactly once."""
    found = text.count(mutant.old)
    if found != 1:
        raise ValueError(f"need {mutant.old!r} exactly once in {mutant.file}, got it {found} times "
                         f"({mutant.fault})")
    return text.replace(mutant.old, mutant.new)


def run(mutants, jobs=1):
    """Print who kills each of the mutants; True if all are dead and their killers sound."""
    copies, killers = SimpleQueue(), []

    def kill(mutant):
        start, copy = time.perf_counter(), copies.get()
        try:
            return copy.killer(mutant), time.perf_counter() - start
        finally:
            copies.put(copy)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        for job in range(jobs):
            copies.put(Copy(f"{folder}/{job}"))
        for mutant, (killer, seconds) in zip(mutants, pool.map(kill, mutants)):
            killers.append(killer)
            print(f"{mutant.file:22} {mutant.fault:66} {killer or 'SURVIVES'}  {seconds:.1f} s",
                  flush=True)
        tests = sorted({killer for killer in killers if killer and "::" in killer})
        unsound = copies.get().first_failure(tests) if tests else None
    n_alive = killers.count(None)
    print(f"{len(killers) - n_alive} of {len(killers)} mutants killed by {len(tests)} tests")
    if unsound:
        print(f"{unsound} fails without a fault")
    return not n_alive and not unsound


if __name__ == "__main__":
    words = sys.argv[1:]
    chosen = [mutant for mutant in MUTANTS
              if not words or any(word in f"{mutant.file} {mutant.fault}" for word in words)]
    sys.exit(0 if chosen and run(chosen, os.cpu_count()) else 1)
