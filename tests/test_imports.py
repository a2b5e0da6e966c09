"""What may know of what: the algorithm knows sampling.py and NumPy, and nothing of a terminal."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CORE = ("speculative", "sampling", "gpt2", "encoder", "utils", "main")
APART = {"lib.checkpoints", "lib.demo", "requests", "tqdm", "tensorflow", "argparse"}
ENTRIES = 23  # files and folders that a reader meets first


def file_of(module):
    """The project's own file of a module, None for a module of others."""
    path = ROOT.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py")
                 if file.exists()), None)


def imports(file):
    """All (module, name) that a file imports, anywhere in it; name None: the module itself."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {(alias.name, None) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            found |= {(node.module, alias.name) for alias in node.names}
    return found


def parents(module):
    """a.b.c runs a and a.b first."""
    parts = module.split(".")
    return [".".join(parts[: n + 1]) for n in range(len(parts))]


def reached(module, seen=None):
    """The module and every one that it imports, directly or through the project's own files."""
    seen = set() if seen is None else seen
    if module not in seen:
        seen.add(module)
        if file := file_of(module):
            for other, name in imports(file):
                for step in parents(other):
                    reached(step, seen)
                if name and file_of(f"{other}.{name}"):
                    reached(f"{other}.{name}", seen)
    return seen


def own(file):
    """What a file imports of the project's own."""
    return {(module, name) for module, name in imports(file) if file_of(module)}


def others(file):
    """The packages of others that a file imports, without the standard library."""
    return {module.split(".")[0] for module, _ in imports(file)
            if not file_of(module)} - sys.stdlib_module_names


def test_the_algorithm_knows_sampling_and_numpy_only():
    assert {module for module, _ in own(ROOT / "speculative.py")} == {"sampling"}
    assert own(ROOT / "sampling.py") == set()
    for name in ("speculative.py", "sampling.py"):
        assert others(ROOT / name) == {"numpy"}


def test_the_forward_pass_knows_numpy_and_what_shares_its_work():
    assert own(ROOT / "gpt2.py") == {("lib.backend.products", "matmul"),
                                     ("lib.backend.products", "one_blas_thread")}
    assert others(ROOT / "gpt2.py") == {"numpy"}


@pytest.mark.parametrize("module", ["speculative", "sampling", "gpt2"])
def test_no_checkpoint_download_or_terminal_is_reached(module):
    assert not {name.split(".")[0] for name in reached(module)} & APART


def test_what_is_reached_is_followed_through_files():
    """That the test above could fail: main.py reaches all of these, most through others."""
    assert {name.split(".")[0] for name in reached("main")} >= APART
    assert "variants.lookup" in reached("variants") and "backend" in reached("gpt2")


def test_the_first_six_files_are_the_top_of_the_tree_and_short():
    assert {path.stem for path in ROOT.glob("*.py")} == set(CORE)


@pytest.mark.parametrize("path", [*(f"{name}.py" for name in CORE), *sorted(
    path.relative_to(ROOT).as_posix() for path in (ROOT / "variants").glob("*.py"))])
def test_a_file_that_stands_beside_a_paper_has_at_most_200_lines(path):
    assert len((ROOT / path).read_text(encoding="utf-8").splitlines()) <= 200


def test_the_front_page_lists_few_entries():
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        pytest.skip("needs a git checkout")
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"git says {done.stderr}")
    entries = {path.split("/")[0] for path in done.stdout.splitlines() if (ROOT / path).exists()}
    assert len([entry for entry in entries if not entry.startswith(".")]) <= ENTRIES
