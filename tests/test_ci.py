"""Test what .ci/run relies on: a test that is skipped for an unexpected reason fails the run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
SKIPPED = "import pytest\n\n\ndef test_x():\n    pytest.importorskip({package!r})\n"
MODULE_SKIPPED = "import pytest\n\npytest.importorskip({package!r})\n"


@pytest.mark.parametrize("code, processes", [(SKIPPED, 1), (MODULE_SKIPPED, 0)])
def test_a_skip_fails_the_run_unless_its_reason_is_expected(tmp_path, code, processes):
    (tmp_path / "test_a.py").write_text(code.format(package="no_scipy"), encoding="utf-8")
    (tmp_path / "test_b.py").write_text("def test_z():\n    pass\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "tests.skips", "-p", "no:cacheprovider",
               "-p", "xdist", "-n", str(processes), "."]
    # other plugins are not needed here, and slow to import
    environment = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    for more, status in ((["--may_skip", "no_scipy|no_gpu"], 0), (["--may_skip", "no_gpu"], 1)):
        done = subprocess.run([*command, *more], cwd=tmp_path, capture_output=True, text=True,
                              env=os.environ | environment)
        assert done.returncode == status, done.stdout + done.stderr
        assert (re.search("in spite of --may_skip: .*'no_scipy'", done.stdout) is None) == (
            status == 0)


@pytest.mark.parametrize("package", ["scipy", "torch", "transformers", "matplotlib", "numba",
                                     "websocket", "greenlet"])
def test_ci_does_not_expect_that_a_package_is_missing_that_it_installs(package):
    expected = re.search(r'--may_skip "(.+)"', SCRIPT)[1]
    for reason in (f"could not import '{package}': No module named '{package}'",
                   f"No module named '{package}'", f"needs {package}-client"):
        assert not re.search(expected, reason)


def test_ci_installs_what_the_independent_checks_need():
    """The linear programme, transformers' function, PyTorch's verifier, the pictures."""
    files = re.findall(r"-r (requirements/\w+\.txt)", SCRIPT)
    text = "\n".join((ROOT / file).read_text(encoding="utf-8") for file in files)
    for package in ("scipy", "torch", "transformers", "matplotlib", "websocket-client",
                    "llguidance"):
        assert re.search(rf"^{package}\b", text, re.MULTILINE)


def test_the_mutants_are_run_with_the_packages_of_their_tests():
    """A test that is skipped kills no mutant. Pictures have no mutants."""
    workflow = (ROOT / ".github" / "workflows" / "weekly.yml").read_text(encoding="utf-8")
    job = re.search(r"  mutants:.*?\n\n", workflow, re.DOTALL)[0]
    needed, installed = (set(re.findall(r"-r (requirements/\w+\.txt)", text))
                         for text in (SCRIPT, job))
    assert needed - installed == {"requirements/plots.txt"}


def test_a_package_that_ci_does_not_install_is_skipped_for_an_expected_reason():
    expected = re.search(r'--may_skip "(.+)"', SCRIPT)[1]
    files = ["requirements.txt", *re.findall(r"-r (requirements/\w+\.txt)", SCRIPT)]
    by_others = "torch huggingface_hub "  # .ci/run names torch, and transformers needs the hub's
    installed = by_others + " ".join((ROOT / file).read_text(encoding="utf-8") for file in files)
    calls = [call for path in ROOT.glob("tests/**/*.py") for call in re.findall(
        r'importorskip\(\s*"([\w.]+)"([^)]*)\)', path.read_text(encoding="utf-8"))]
    assert ("distributed", ', reason="needs requirements/cluster.txt"') in calls
    needed = [call for call in calls if call[0] not in sys.stdlib_module_names]
    for package, more in needed:
        reason = re.search(r'reason="([^"]+)"', more)
        text = reason[1] if reason else f"could not import '{package}': No module named '{package}'"
        assert re.search(rf"\b{package.split('.')[0]}\b", installed) or re.search(expected, text), (
            f"{package} may be missing in CI, and its reason is not expected: {text}")
