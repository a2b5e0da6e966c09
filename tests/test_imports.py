"""Test what may import what: the algorithm needs NumPy alone, and a default run few packages."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
APART = {"lib.checkpoints", "lib.demo", "tqdm", "argparse"}
BLOCKED = ("filelock", "requests", "greenlet", "threadpoolctl", "tensorflow", "cupy", "torch")


def file_of(module):
    """Return the project's own file of a module, None for a module of others."""
    path = ROOT.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py")
                 if file.exists()), None)


def imports(file):
    """Return the names of all modules that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {node.module} | {name for name in names if file_of(name)}
    return found


def reached(module, seen):
    """Return `seen` with the module and all that it imports through the project's own files."""
    for name in (module, module.rpartition(".")[0]):  # a.b runs a first
        if name and name not in seen:
            seen.add(name)
            for other in imports(file_of(name)) if file_of(name) else ():
                reached(other, seen)
    return seen


def test_the_algorithm_imports_numpy_alone():
    packages = {name.split(".")[0] for file in ("speculative.py", "sampling.py")
                for name in imports(ROOT / file)} - sys.stdlib_module_names
    assert packages == {"numpy", "sampling"}
    assert not [name for name in imports(ROOT / "sampling.py") if file_of(name)]


@pytest.mark.parametrize("module", ["speculative", "sampling", "gpt2"])
def test_no_checkpoint_download_or_terminal_is_reached(module):
    assert not reached(module, set()) & APART
    assert reached("main", set()) >= APART  # the search follows imports through files


def test_only_tests_import_tests():
    for file in ROOT.rglob("*.py"):
        if file.relative_to(ROOT).parts[0] != "tests":
            assert "tests" not in {name.split(".")[0] for name in imports(file)}, file


def test_a_default_run_needs_no_optional_package():
    code = (f"import sys; sys.modules.update(dict.fromkeys({BLOCKED}))\n"
            "import main; sys.exit(main.main(['--n_tokens_to_generate', '8']))")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")
