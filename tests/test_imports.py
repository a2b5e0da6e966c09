"""Imports: the algorithm needs NumPy alone, and all lead down.

tests/test_docs.py has the packages of a default run.
"""

import re
import subprocess
import sys

from tests.pages import ROOT

APART = {"lib.checkpoints", "run", "measure", "tqdm", "argparse", "numba"}


def loaded_by(modules):
    """Return the names of the modules that an import loads, without those that NumPy loads."""
    code = ("import sys, numpy.random, numpy.typing; before = set(sys.modules); "
            f"import {modules}; print(*set(sys.modules) - before)")
    names = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True)
    return set(names.split())


def test_the_algorithm_imports_numpy_alone():
    packages = {name.split(".")[0] for name in loaded_by("speculative")}
    assert packages - sys.stdlib_module_names == {"sampling", "speculative"}


def test_no_checkpoint_download_or_terminal_is_loaded_with_the_forward_pass():
    assert not loaded_by("gpt2") & APART


def test_a_default_run_loads_the_decoder_that_it_uses_and_what_its_flags_need():
    """Other decoders, files of yours, pages, many prompts and models of transformers stay out."""
    # the run prints its figures too; no word among them is a module's name
    words = loaded_by("main; main.main(['--n_tokens_to_generate', '4', '--json'])")
    assert words >= APART - {"numba"}
    module = r"(variants|wrappers|measure|run|exact)\.[\w.]+"
    rooms = {word for word in words if re.fullmatch(module, word)}
    assert rooms == {
        "variants.registry", "variants.speculative", "variants.shared",
        "variants.shared.acceptance", "variants.shared.branches",
        "wrappers.forced", "wrappers.window",
        "measure.passes", "run.compare", "run.describe", "run.flags", "run.task"}


def test_a_verifier_is_judged_with_numpy_alone():
    """Of the decoders only the files whose tests are in the register are loaded."""
    loaded = loaded_by("exact.law, exact.toys, exact.oracle, exact.judge, exact.rules.__main__, "
                       "exact.rules.batched")
    assert {name.split(".")[0] for name in loaded} - sys.stdlib_module_names <= {*FLOOR}
    assert "variants.eagle" not in loaded


FLOORS = [  # an import leads to a lower floor, or stays in its room
    {"lib", "sampling"}, {"cache", "encoder"}, {"gpt2", "llama"}, {"speculative"}, {"theory"},
    {"variants"}, {"wrappers", "exact"}, {"utils"}, {"measure"}, {"run"}, {"page"}, {"main"},
    {"benchmarks"}, {"tools", "docs", "models"}, {"tests"}]
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
FLOOR_IN_EXACT = {"exact.law": 0, "exact.toys": 0, "exact.rules": 2, "exact.engines": 3,
                  "exact.judge": 3}  # the instruments are between


def test_imports_lead_down():
    for file in ROOT.rglob("*.py"):
        room = file.relative_to(ROOT).parts[0].removesuffix(".py")
        if room in FLOOR:
            text = file.read_text("utf-8")
            for other in re.findall(r"^\s*(?:from|import) (\w+)", text, re.M):
                assert room == other or FLOOR.get(other, -1) < FLOOR[room], (file, other)


def floor_in_exact(module):
    """Return the floor of a module of exact/, or of a name in it."""
    return next((n for room, n in FLOOR_IN_EXACT.items() if module.startswith(room)), 1)


def test_imports_within_exact_lead_down():
    """The rules need no engine, and the instruments no rule, but for the judge, which names it."""
    for file in (ROOT / "exact").rglob("*.py"):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        imported = re.findall(r"^\s*from (exact[\w.]*) import (\w+)", file.read_text("utf-8"), re.M)
        for package, name in imported:
            other = f"{package}.{name}"
            assert floor_in_exact(other) <= floor_in_exact(module), (module, other)
