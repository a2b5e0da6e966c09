"""One-line faults of the algorithm, each of which a test must see.

    python -m tests.mutants                  all of them, a few minutes
    python -m tests.mutants residual cut     those with one of these words in their line

Every mutant is a file, a piece of it, what stands there instead, and what fault that is. It is put
into a copy of the project, the tests of that file run there until one fails, and that one is
printed. At the end the tests that failed must pass in the copy without a fault, so that no mutant
is killed by a broken copy. The exit status is 1 if a mutant survives or such a test fails.

Many of the faults were found in public implementations. Those that no caller could notice are not
listed (residual without its `/ mass` is: `sample` would forgive it, a caller of its own would not).
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
SECONDS = 120  # a mutant may loop for ever
TESTS = {  # in the order in which they are tried
    "speculative.py": ["tests/test_speculative.py", "tests/test_theorem1.py"],
    "sampling.py": ["tests/test_sampling.py", "tests/test_theorem1.py"],
    "gpt2.py": ["tests/test_gpt2.py", "tests/test_theorem1.py"],
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


KEEP = "min(p_target[t][token] / p_draft[t][token], 1)"
REJECT = "return guesses[:t] + [sample(residual(p_target[t], p_draft[t]), rng)]"
FIRST_STOP = "(ids[: i + 1] for i, token in enumerate(ids) if token in stop)"
TOP_K = """    if top_k:
        probs = np.array([keep_top_k(row, top_k) for row in probs])
"""
TOP_P = """    if top_p < 1.0:
        probs = np.array([keep_top_p(row, top_p) for row in probs])
"""

MUTANTS = [Mutant(*mutant) for mutant in [
    # ---- speculative.py: guess
    ("speculative.py", "draft(x + guesses, 1)", "draft(x, 1)", "the draft ignores its own guesses"),
    ("speculative.py", "guesses.append(sample(p_draft[-1], rng))",
     "guesses.append(int(np.argmax(p_draft[-1])))", "greedy guesses, verified as if they were drawn"),
    ("speculative.py", "guesses.append(sample(p_draft[-1], rng))",
     "guesses.append(sample(p_draft[-1] * p_draft[-1], rng))",
     "guesses drawn from another law than p_draft says"),
    # ---- verify
    ("speculative.py", KEEP, "min(p_draft[t][token] / p_target[t][token], 1)", "ratio swapped"),
    ("speculative.py", KEEP, "p_target[t][token]", "accepted with p_target, not with the ratio"),
    ("speculative.py", KEEP, "min(1, p_target[t][token] / p_draft[t][token])",
     "a NaN in p_target is an acceptance"),
    ("speculative.py", KEEP, "min(p_target[t + 1][token] / p_draft[t][token], 1)",
     "ratio from the next row of p_target"),
    ("speculative.py", KEEP, "min(p_target[t][token] / p_draft[0][token], 1)",
     "ratio from the first row of p_draft"),
    ("speculative.py", "if not accept(", "if t and not accept(", "the first guess is never tested"),
    ("speculative.py", f"if not accept({KEEP}, rng)", f"if not p_target[t][token] >= p_draft[t][token]",
     "accepted if and only if the target likes it more"),
    ("speculative.py", f"if not accept({KEEP}, rng)",
     f"once = rng.random() if t == 0 else once\n        if not once < {KEEP}",
     "one uniform for all tests of a round"),
    ("speculative.py", REJECT, REJECT.replace("return ", "guesses = ") + " + guesses[t + 1 :]",
     "no stop after a rejection"),
    ("speculative.py", REJECT, REJECT.replace("[:t]", "[: t + 1]"), "the rejected guess stays"),
    ("speculative.py", REJECT, "return guesses[:t] + [sample(p_target[t], rng)]",
     "resampled from p_target"),
    ("speculative.py", REJECT, REJECT.replace("p_target[t], p_draft[t]", "p_draft[t], p_target[t]"),
     "residual reversed"),
    ("speculative.py", REJECT, REJECT.replace("p_target[t], ", "p_target[t + 1], "),
     "residual from the next row of p_target"),
    ("speculative.py", REJECT, REJECT.replace("p_draft[t])", "p_draft[0])"),
     "residual from the first row of p_draft"),
    ("speculative.py", REJECT, "return guesses[:t] + [int(np.argmax(residual(p_target[t], p_draft[t])))]",
     "most probable token of the residual"),
    ("speculative.py", "return guesses + [sample(p_target[-1], rng)]",
     "return guesses + [sample(p_target[0], rng)]", "bonus from the first row"),
    ("speculative.py", "return guesses + [sample(p_target[-1], rng)]", "return guesses or "
     "[sample(p_target[-1], rng)]", "no bonus"),
    ("speculative.py", "if len(p_draft[t]) != len(p_target[t]):", "if False:",
     "two vocabularies pass unseen"),
    ("speculative.py", "if not p_draft[t][token] > 0:", "if False:",
     "a guess that the draft could not draw passes unseen"),
    # ---- step and generate
    ("speculative.py", "k = min(K, room - 1)", "k = K", "N is overshot"),
    ("speculative.py", "k = min(K, room - 1)", "k = min(K - 1, room - 1)", "one guess too few"),
    ("speculative.py", "k = min(K, room - 1)", "k = min(K, room)", "N is overshot by one"),
    ("speculative.py", "target(x + guesses, k + 1)", "target(x, k + 1)", "rows of the wrong prefixes"),
    ("speculative.py", "target(x + guesses, k + 1)",
     "np.array([target(x + guesses[:t], 1)[-1] for t in range(k + 1)])", "one target pass a guess"),
    ("speculative.py", "p_target = model(x, 1)", "p_target = model(x[-1:], 1)", "the past is forgotten"),
    ("speculative.py", "while len(x) < end:", "while len(x) <= end:", "one round too many"),
    ("speculative.py", "x, end = list(x), len(x) + N", "x, end = x, len(x) + N",
     "the caller's list is written to"),
    ("speculative.py", "round._replace(ids=cut(round.ids, stop))", "round",
     "stop ids inside a round pass unseen"),
    ("speculative.py", "if round.ids[-1] in stop:", "if round.ids[0] in stop:",
     "only a round's first id can stop"),
    ("speculative.py", FIRST_STOP, FIRST_STOP.replace("i + 1", "i"), "the stop id is cut off"),
    ("speculative.py", FIRST_STOP,
     "(ids[: ids.index(token) + 1] for token in sorted(stop) if token in ids)",
     "cut at the lowest stop id, not at the first"),
    # ---- sampling.py: sample and accept
    ("sampling.py", "bool(rng.random() < np.asarray(", "bool(rng.random() <= np.asarray(",
     "a uniform of 0 accepts what has no chance"),
    ("sampling.py", "np.asarray(prob, dtype=np.result_type(np.asarray(prob), np.float64))", "prob",
     "uniforms rounded to float32"),
    ("sampling.py", "return bool(rng.random() <", "return bool(np.random.default_rng(0).random() <",
     "seeded anew at every test"),
    ("sampling.py", "if not prob >= 0:", "if prob < 0:", "a NaN is a rejection"),
    ("sampling.py", "np.argmax(threshold < cdf)", "np.argmax(threshold <= cdf)",
     "searched on the wrong side"),
    ("sampling.py", "int(np.argmax(threshold < cdf))", "int(np.argmax(threshold < cdf)) or 1",
     "id 0 cannot be drawn"),
    ("sampling.py", "dtype=np.result_type(probs, np.float64)", "dtype=np.result_type(probs, np.float32)",
     "cumulative sum in float32"),
    ("sampling.py", "rng.random() * cdf[-1]", "rng.random()", "weights taken to sum to 1"),
    ("sampling.py", " or (probs < 0).any()", "", "negative weights pass unseen"),
    ("sampling.py", "if not 0 < cdf[-1] < np.inf or", "if", "rows without mass pass unseen"),
    # ---- residual
    ("sampling.py", "surplus = np.maximum(p_target - p_draft, 0)", "surplus = abs(p_target - p_draft)",
     "residual without its maximum"),
    ("sampling.py", "np.maximum(p_target - p_draft, 0)", "np.maximum(p_target - p_draft, 0) + 1e-10",
     "an epsilon for every token in the residual"),
    ("sampling.py", "surplus / mass if", "surplus if", "residual not normalised"),
    ("sampling.py", "if mass > 0 else p_target", "if mass > 0 else p_draft", "residual of equal laws"),
    ("sampling.py", "return surplus / mass if mass > 0 else p_target", "return surplus / mass",
     "0 / 0 where target and draft are equal"),
    # ---- softmax and warp
    ("sampling.py", "logits - logits.max(axis=-1, keepdims=True)", "np.clip(logits, -50, 50)",
     "logits clipped to +-50"),
    ("sampling.py", "logits - logits.max(axis=-1, keepdims=True)", "logits - logits.max()",
     "largest logit of all rows subtracted"),
    ("sampling.py", "exps / exps.sum(axis=-1, keepdims=True)", "exps / exps.sum()",
     "normalised over all rows"),
    ("sampling.py", "softmax(rows / temperature)", "softmax(rows)", "temperature ignored"),
    ("sampling.py", "softmax(rows / temperature)", "softmax(rows * temperature)", "temperature inverted"),
    ("sampling.py", "    check_finite(rows)\n", "", "NaN logits pass unseen"),
    ("sampling.py", "~np.isfinite(rows)", "np.isnan(rows)", "infinite logits pass unseen"),
    ("sampling.py", TOP_K + TOP_P, TOP_P + TOP_K, "top-p before top-k"),
    ("sampling.py", "model(ids, n_last), ids=ids, **knobs", "model(ids, n_last), ids=ids",
     "knobs dropped on the way to warp"),
    ("sampling.py", "rows.argmax(axis=-1)", "rows.shape[1] - 1 - rows[:, ::-1].argmax(axis=-1)",
     "greedy takes the highest id of equals"),
    ("sampling.py", "if len(ids) < len(rows):", "if False:", "a penalty without its ids passes unseen"),
    ("sampling.py", "rows = rows.copy()", "rows = rows", "the model's logits are written to"),
    ("sampling.py", "ids[: len(ids) - len(rows) + 1 + i]", "ids", "rejected guesses are penalised"),
    ("sampling.py", "ids[: len(ids) - len(rows) + 1 + i]", "ids[: len(ids) - len(rows) + i]",
     "the last id is not penalised"),
    ("sampling.py", "np.where(row[seen] > 0,", "np.where(row[seen] < 0,", "penalty of the wrong sign"),
    ("sampling.py", "ties[: n - np.count_nonzero(row > border)]",
     "ties[::-1][: n - np.count_nonzero(row > border)]", "the highest ids of equals are kept"),
    ("sampling.py", "np.where(row > border, row, 0.0)", "np.where(row >= border, row, 0.0)",
     "all equals at the border are kept"),
    ("sampling.py", "return kept / kept.sum()", "return kept", "what is kept is not normalised"),
    ("sampling.py", "np.count_nonzero(mass < top_p)", "np.count_nonzero(mass <= top_p)",
     "one token too many for top-p"),
    ("sampling.py", "n = 1 + np.count_nonzero", "n = np.count_nonzero", "one token too few for top-p"),
    # ---- gpt2.py: the cache
    ("gpt2.py", "n_past = min(common_prefix(self.ids, ids), n_seq - n_last)",
     "n_past = min(len(self.ids), n_seq - n_last)", "the cache is not rewound"),
    ("gpt2.py", "n_past = min(common_prefix(self.ids, ids), n_seq - n_last)",
     "n_past = min(common_prefix(self.ids, ids), n_seq - 1)", "rows wanted again are not computed"),
    ("gpt2.py", "n_past = min(common_prefix(self.ids, ids), n_seq - n_last)", "n_past = 0",
     "nothing is remembered"),
    ("gpt2.py", "positions = self.xp.arange(n_past, n_seq)",
     "positions = self.xp.arange(0, n_seq - n_past)", "positions start at 0 again"),
    ("gpt2.py", "positions = self.xp.arange(n_past, n_seq)",
     "positions = self.xp.arange(max(n_past, len(self.ids)), max(n_past, len(self.ids)) + n_seq - n_past)"
     " % self.n_ctx", "positions are not rewound"),
    ("gpt2.py", "self.mask[n_past:n_seq, :n_seq]", "self.mask[: n_seq - n_past, :n_seq]",
     "the mask's rows start at 0 again"),
    ("gpt2.py", "self.ids = ids[:n_past]  # an interrupt", "pass  # an interrupt",
     "an interrupt leaves ids in the books that are not in the cache"),
    ("gpt2.py", "        self.ids = ids\n        return", "        self.ids = ids[:-1]\n        return",
     "the last id is read twice"),
    ("gpt2.py", "        ids = list(ids)\n        n_seq", "        n_seq",
     "the books are the caller's own list"),
    ("gpt2.py", "cache[:, :, n_seq - n_new : n_seq, :] =", "cache[:, :, :n_new, :] =",
     "keys and values written to the start"),
    ("gpt2.py", "= qkv[1:, ...]", "= qkv[:2, ...]", "queries and keys in the cache"),
    ("gpt2.py", "return next(i for i in range(n)", "return 1 + next(i for i in range(n)",
     "the first id that differs counts as shared"),
    ("gpt2.py", "if a[:n] == b[:n]:", "if a[-n:] == b[-n:]:", "a common suffix taken for a prefix"),
]]

QUICK = ["ratio swapped", "resampled from p_target", "residual reversed", "temperature ignored",
         "a uniform of 0 accepts what has no chance", "the cache is not rewound"]


class Copy:
    """A copy of the project in a folder of its own, for one fault after the other."""

    def __init__(self, folder):
        self.folder = Path(folder) / "copy"
        shutil.copytree(ROOT, self.folder, ignore=shutil.ignore_patterns(".*", "models", "__pycache__"))
        os.symlink(ROOT / "models", self.folder / "models")
        with open(self.folder / "conftest.py", "a", encoding="utf-8") as file:
            file.write(PROFILE)

    def first_failure(self, tests):
        """The test that fails first, or None; RuntimeError if the tests could not run at all."""
        command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-rf", "--tb=no",
                   "-p", "no:cacheprovider", "--hypothesis-profile=mutants", *tests]
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
            return self.first_failure(TESTS[mutant.file])
        finally:
            path.write_text(text, encoding="utf-8")


def mutated(text, mutant):
    """The text with the fault in it; the piece that it replaces must stand there exactly once."""
    found = text.count(mutant.old)
    if found != 1:
        raise ValueError(f"need {mutant.old!r} exactly once in {mutant.file}, got it {found} times "
                         f"({mutant.fault})")
    return text.replace(mutant.old, mutant.new)


def run(mutants):
    """Print who kills each of the mutants; True if all are dead and their killers sound."""
    killers = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(folder)
        for mutant in mutants:
            start = time.perf_counter()
            killers.append(copy.killer(mutant))
            print(f"{mutant.file:15} {mutant.fault:64} {killers[-1] or 'SURVIVES'}  "
                  f"{time.perf_counter() - start:.1f} s", flush=True)
        tests = sorted({test for test in killers if test and "::" in test})
        unsound = copy.first_failure(tests) if tests else None
    print(f"{len(killers) - killers.count(None)} of {len(killers)} mutants killed by {len(tests)} tests"
          + (f"; {unsound} fails without a fault" if unsound else ""))
    return None not in killers and not unsound


if __name__ == "__main__":
    words = sys.argv[1:]
    chosen = [m for m in MUTANTS if not words or any(word in f"{m.file} {m.fault}" for word in words)]
    sys.exit(0 if chosen and run(chosen) else 1)
