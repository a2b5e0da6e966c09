"""Run the verifiers that engines ship, by calling the installed packages themselves.

    python -m exact.engines                  # all that is installed, for minutes
    python -m exact.engines --only vllm      # this one

An engine is enumerated or sampled. The enumeration gives the distribution of K + 1 tokens, one
round of the engine and then the target, on the toys of exact/toys.py. Whole programs
(programs.py) are sampled. requirements/verifiers.txt says how to install the packages.
"""

import datetime
import importlib.metadata
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np

from exact.engines import programs
from exact.engines.programs import N_TEXTS, explanation, limit, llama_cpp, openvino
from exact.engines.python import mlx_round, transformers_round
from exact.engines.triton import (
    load_sglang,
    load_vllm,
    round_by_kernel,
    sglang_kernel,
    vllm_gpu,
    vllm_sample,
)
from exact.law import completed, law, text_law, total_variation
from exact.rules.guesses import as_drawn
from exact.toys import TOYS, X, best, distance_cell, mapped
from lib.markdown import markdown_table
from lib.terminal import Parser, command, print_safely
from speculative import guess

# ---- the engines

class Engine(NamedTuple):
    """Hold what loads an engine, its settings, and how it is compared with the target.

    settings    {guesses in words: what is run}. Of an enumerated engine the function of one
                round; of a sampled engine a function: folder -> (seed -> the tokens of a text)
    rounding    an enumerated engine with a smaller distance is exact
    """

    load: Callable[[], object]
    settings: dict[str, Callable]
    rounding: float = 0.0
    is_sampled: bool = False


def load_modules(*names: str) -> None:
    """Import the modules."""
    for name in names:
        import_module(name)


argmax = partial(as_drawn, guess=best)
ENGINES = {  # package: Engine
    "transformers": Engine(partial(load_modules, "transformers.generation.utils"), {
        "drawn, with their rows": partial(transformers_round, guess=guess),
        "argmax, with softmax rows": partial(transformers_round, guess=argmax),
        "drawn, `assistant_ensemble_weight` 0.5":
            partial(transformers_round, guess=guess, assistant_ensemble_weight=0.5)}, 1e-12),
    "mlx-lm": Engine(partial(load_modules, "mlx_lm.generate"), {
        "drawn by its sampler": mlx_round}, 1e-6),
    "sglang": Engine(load_sglang, {
        "drawn": round_by_kernel(sglang_kernel),
        "drawn, block verification": round_by_kernel(sglang_kernel, block_verification=True)},
        1e-5),
    "vllm": Engine(load_vllm, {
        "v1/sample: drawn": round_by_kernel(vllm_sample),
        "v1/sample: one-hot": round_by_kernel(vllm_sample, one_hot=True),
        "v1/worker/gpu: drawn": round_by_kernel(vllm_gpu),
        "v1/worker/gpu: one-hot": round_by_kernel(vllm_gpu, one_hot=True),
        "v1/worker/gpu: drawn, block verification":
            round_by_kernel(vllm_gpu, block_verification=True),
        "v1/worker/gpu: one-hot, block verification":
            round_by_kernel(vllm_gpu, one_hot=True, block_verification=True)}, 1e-5),
    "xllamacpp": Engine(partial(load_modules, "xllamacpp", "gguf"), {
        "none (no draft)": partial(llama_cpp, with_draft=False),
        "its most probable": llama_cpp,
        "`probabilistic`": partial(llama_cpp, probabilistic=True)}, is_sampled=True),
    "openvino-genai": Engine(
        partial(load_modules, "openvino_genai", "optimum.exporters.openvino"), {
            "none (no draft)": partial(openvino, with_draft=False),
            "its own (`enable_prefix_caching` off)": openvino}, is_sampled=True),
}


def reason_to_leave_out(load: Callable[[], object]) -> str:
    """Load an engine now, because imports draw random numbers; return "" or what is missing."""
    try:
        load()
    except (ImportError, OSError) as error:  # a package, or a file of a package
        return str(error)
    return ""


# ---- what is found

def enumerated_distance(one_round: Callable, toy: str, K: int) -> float:
    """Return the distance of K + 1 tokens: one round of the engine, then the target."""
    draft, target = (mapped(model, np.float64) for model in TOYS[toy])
    # the engines compute with floats, so the toys do too
    round_law = law(lambda rng: one_round(list(X), rng, draft, target, K))
    return total_variation(completed(round_law, X, target, K + 1), text_law(X, target, K + 1))


def with_version(package: str) -> str:
    """Return the package and its installed version."""
    return f"{package} {importlib.metadata.version(package)}"


def enumerated_lines(package: str) -> Iterator[list[str]]:
    """Yield the table lines of an engine; settings with equal distances share a line."""
    engine = ENGINES[package]
    settings = defaultdict(list)  # {(verdict, distances on toy A, B, C): settings in words}
    for words, one_round in engine.settings.items():
        # [toy][K - 1]
        distances = [[enumerated_distance(one_round, toy, K) for K in (1, 2, 3)] for toy in TOYS]
        largest = max(max(of_toy) for of_toy in distances)
        verdict = "exact" if largest < engine.rounding else "**no**"
        cells = [" ".join(distance_cell(far, engine.rounding) for far in of_toy)
                 for of_toy in distances]
        settings[verdict, *cells].append(words)
    for verdict_and_cells, shared in settings.items():
        yield [with_version(package), "; ".join(shared), *verdict_and_cells]


def sampled_lines(package: str) -> Iterator[list[str]]:
    """Yield the table lines of a sampled engine; settings with equal verdicts share a line."""
    settings = defaultdict(list)  # {verdict: (settings in words, distance)}
    for words, start in ENGINES[package].settings.items():
        # an engine may still hold its files open when the folder is removed
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            distance = programs.sampled_distance(start(Path(folder)))
        is_wrong = distance > limit(N_TEXTS, len(programs.wanted()))
        verdict = "**no**" if is_wrong else "no difference"
        settings[verdict].append((words, f"{distance:.4f}"))
    for verdict, shared in settings.items():
        names, distances = zip(*shared)
        yield [with_version(package), "; ".join(names), verdict, " ".join(distances)]


def engine_tables(packages: list[str]) -> Iterator[str]:
    """Yield the tables of installed engines: those that are enumerated, then those sampled."""
    sampled = [package for package in packages if ENGINES[package].is_sampled]
    enumerated = [package for package in packages if package not in sampled]
    if enumerated:
        toys = [f"toy {toy}, K = 1, 2, 3" for toy in TOYS]
        lines = [line for package in enumerated for line in enumerated_lines(package)]
        yield markdown_table(["engine", "guesses", "exact?", *toys], lines)
    if sampled:
        lines = [line for package in sampled for line in sampled_lines(package)]
        yield markdown_table(["engine", "guesses", "exact?", "distance"], lines)
        yield explanation()


# ---- the command

@command("exact.engines", "requirements/verifiers.txt")
def main(argv: list[str] | None = None) -> None:
    """Print what was found of the engines that are installed, and which are not."""
    parser = Parser("python -m exact.engines", description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=ENGINES, metavar="ENGINE",
                        default=[*ENGINES], help=", ".join(ENGINES))
    only = parser.parse_args(argv).only
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton
    reasons = {package: reason_to_leave_out(ENGINES[package].load) for package in only}
    print_safely(f"Run on {datetime.date.today()}.\n", sys.stdout)
    for table in engine_tables([package for package in only if not reasons[package]]):
        print_safely(f"{table}\n", sys.stdout)
    for package, reason in reasons.items():
        if reason:
            print_safely(f"Left out: {package} ({reason})", sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
