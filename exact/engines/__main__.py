"""Check whether the acceptance rules of installed engines are exact, by calling the engines.

    python -m exact.engines                  # all engines that are installed; takes minutes
    python -m exact.engines --only vllm      # one engine

An engine is enumerated or sampled. Enumeration computes the distribution of K + 1 tokens on the
toys of exact/toys.py: the engine writes one round, and the target writes the tokens after it.
Whole programs (programs.py) are sampled. requirements/verifiers.txt says how to install the
packages.
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
    """Hold how an engine is loaded and run, and how its verdict is found.

    load        imports what the engine needs; ImportError or OSError if it is not installed
    settings    {what guesses, in words: a function}. The function of an enumerated engine
                returns the tokens of one round, (x, rng, draft, target, K) -> ids. The function
                of a sampled engine gets a folder for its files; it returns a function
                write_text(seed) -> tokens
    rounding    an enumerated engine with a distance below it is exact
    """

    load: Callable[[], object]
    settings: dict[str, Callable]
    rounding: float = 0.0
    is_sampled: bool = False


def load_modules(*names: str) -> None:
    """Import the modules."""
    for name in names:
        import_module(name)


argmax = partial(as_drawn, guess=best)  # the draft's best tokens with its softmax rows
ENGINES = {  # package: Engine
    "transformers": Engine(partial(load_modules, "transformers.generation.utils"), {
        "drawn, with their rows": partial(transformers_round, guess=guess),
        "argmax, with softmax rows": partial(transformers_round, guess=argmax),
        "drawn, `assistant_ensemble_weight` 0.5":
            partial(transformers_round, guess=guess, assistant_ensemble_weight=0.5)},
        rounding=1e-12),
    "mlx-lm": Engine(partial(load_modules, "mlx_lm.generate"), {
        "drawn by its sampler": mlx_round}, rounding=1e-6),
    "sglang": Engine(load_sglang, {
        "drawn": round_by_kernel(sglang_kernel),
        "drawn, block verification": round_by_kernel(sglang_kernel, block_verification=True)},
        rounding=1e-5),
    "vllm": Engine(load_vllm, {
        "v1/sample: drawn": round_by_kernel(vllm_sample),
        "v1/sample: one-hot": round_by_kernel(vllm_sample, one_hot=True),
        "v1/worker/gpu: drawn": round_by_kernel(vllm_gpu),
        "v1/worker/gpu: one-hot": round_by_kernel(vllm_gpu, one_hot=True),
        "v1/worker/gpu: drawn, block verification":
            round_by_kernel(vllm_gpu, block_verification=True),
        "v1/worker/gpu: one-hot, block verification":
            round_by_kernel(vllm_gpu, one_hot=True, block_verification=True)},
        rounding=1e-5),
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
    """Load an engine; return "" if that succeeds, else what is missing."""
    # engines are loaded before any enumeration, because some imports draw random numbers
    try:
        load()
    except (ImportError, OSError) as error:  # a package, or a file of a package
        return str(error)
    return ""


# ---- the tables

def enumerated_distance(one_round: Callable, toy: str, K: int) -> float:
    """Return the distance of K + 1 tokens: one round of the engine, then the target."""
    # the engines compute with floats, so the toys' rows become floats too
    draft, target = (mapped(model, np.float64) for model in TOYS[toy])
    round_law = law(lambda rng: one_round(list(X), rng, draft, target, K))
    texts = completed(round_law, X, target, K + 1)
    return total_variation(texts, text_law(X, target, K + 1))


def enumerated_cells(one_round: Callable, rounding: float) -> Iterator[str]:
    """Yield the cells of an enumerated setting: its verdict, and three distances per toy."""
    distances = [[enumerated_distance(one_round, toy, K) for K in (1, 2, 3)] for toy in TOYS]
    yield "exact" if np.max(distances) < rounding else "**no**"
    for of_toy in distances:
        yield " ".join(distance_cell(distance, rounding) for distance in of_toy)


def sampled_cells(start: Callable) -> Iterator[str]:
    """Yield the cells of a sampled setting: its verdict and its distance."""
    # errors are ignored, because an engine may hold its files open when the folder is removed
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        distance = programs.sampled_distance(start(Path(folder)))
    is_wrong = distance > limit(N_TEXTS, len(programs.wanted()))
    yield "**no**" if is_wrong else "no difference"
    yield f"{distance:.4f}"


def engine_lines(package: str) -> Iterator[list[str]]:
    """Yield the table lines of an engine; settings with equal cells share a line."""
    engine = ENGINES[package]
    settings = defaultdict(list)  # {cells: settings in words}
    for words, function in engine.settings.items():
        cells = (sampled_cells(function) if engine.is_sampled
                 else enumerated_cells(function, engine.rounding))
        settings[tuple(cells)].append(words)
    version = importlib.metadata.version(package)
    for shared_cells, names in settings.items():
        yield [f"{package} {version}", "; ".join(names), *shared_cells]


def engine_tables(packages: list[str]) -> Iterator[str]:
    """Yield the table of the enumerated engines, then the table of the sampled engines."""
    def lines_of(is_sampled):
        return [line for package in packages if ENGINES[package].is_sampled == is_sampled
                for line in engine_lines(package)]

    head = ["engine", "guesses", "exact?"]
    if lines := lines_of(is_sampled=False):
        toys = [f"toy {toy}, K = 1, 2, 3" for toy in TOYS]
        yield markdown_table([*head, *toys], lines)
    if lines := lines_of(is_sampled=True):
        yield markdown_table([*head, "total variation"], lines)
        yield explanation()


# ---- the command

@command("exact.engines", "requirements/verifiers.txt")
def main(argv: list[str] | None = None) -> None:
    """Print the tables of the installed engines, and why each other engine is left out."""
    parser = Parser("python -m exact.engines", description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=ENGINES, metavar="ENGINE",
                        default=[*ENGINES],
                        help=f"run only these: {', '.join(ENGINES)}")
    only = parser.parse_args(argv).only
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton
    reasons = {package: reason_to_leave_out(ENGINES[package].load) for package in only}
    print_safely(f"Run on {datetime.date.today()}.\n", sys.stdout)
    installed = [package for package in only if not reasons[package]]
    for table in engine_tables(installed):
        print_safely(f"{table}\n", sys.stdout)
    for package, reason in reasons.items():
        if reason:
            print_safely(f"Left out: {package} ({reason})", sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
