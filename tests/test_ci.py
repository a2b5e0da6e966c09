"""Test what .ci/run relies on: a test that is skipped for an unexpected reason fails the run."""

import os
import re
import subprocess
import sys

import pytest

from tests.pages import ROOT, file_text

SCRIPT = file_text(".ci/run")
EXPECTED = re.search(r'--may_skip "(.+)"', SCRIPT)[1]  # a pattern of the reasons of skips
REQUIREMENTS = r"-r (requirements/\w+\.txt)"
INSTALLED = "\n".join([
    "huggingface_hub", "tokenizers",  # which transformers installs
    file_text("requirements.txt"),
    *(file_text(name) for name in re.findall(REQUIREMENTS, SCRIPT))])
SKIPPED = "import pytest\n\n\ndef test_x():\n    pytest.importorskip('no_scipy')\n"
MODULE_SKIPPED = "import pytest\n\npytest.importorskip('no_scipy')\n"


@pytest.mark.parametrize("code, processes", [(SKIPPED, 1), (MODULE_SKIPPED, 0)])
def test_a_skip_fails_the_run_unless_its_reason_is_expected(tmp_path, code, processes):
    (tmp_path / "test_a.py").write_text(code, encoding="utf-8")
    (tmp_path / "test_b.py").write_text("def test_z():\n    pass\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "tests.skips", "-p", "no:cacheprovider",
               "-p", "xdist", "-n", str(processes), "."]
    # other plugins are not needed here, and slow to import
    environment = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    for pattern, status in (("no_scipy|no_gpu", 0), ("no_gpu", 1)):
        done = subprocess.run([*command, "--may_skip", pattern], cwd=tmp_path, text=True,
                              capture_output=True, env=os.environ | environment)
        assert done.returncode == status, done.stdout + done.stderr
        is_named = re.search("in spite of --may_skip: .*'no_scipy'", done.stdout) is not None
        assert is_named == (status == 1)


@pytest.mark.parametrize("package", ["scipy", "torch", "transformers", "matplotlib", "numba",
                                     "websocket", "greenlet", "llguidance"])
def test_ci_installs_what_checks_need_and_does_not_expect_that_it_is_missing(package):
    """The linear programme, transformers' function, PyTorch's verifier, the pictures."""
    assert re.search(rf"^{package}\b", INSTALLED, re.MULTILINE)
    for reason in (f"could not import '{package}': No module named '{package}'",
                   f"No module named '{package}'", f"needs {package}-client"):
        assert not re.search(EXPECTED, reason)


def test_the_mutants_are_run_with_the_packages_of_their_tests():
    """A test that is skipped kills no mutant. Pictures have no mutants."""
    workflow = file_text(".github/workflows/weekly.yml")
    job = re.search(r"  mutants:.*?\n\n", workflow, re.DOTALL)[0]
    needed, installed = (set(re.findall(REQUIREMENTS, text)) for text in (SCRIPT, job))
    assert needed - installed == {"requirements/plots.txt"}


def test_a_package_that_ci_does_not_install_is_skipped_for_an_expected_reason():
    texts = [path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/*.py")]
    calls = re.findall(r'importorskip\(\s*"([\w.]+)"([^)]*)\)', "\n".join(texts))
    assert ("distributed", ', reason="needs requirements/cluster.txt"') in calls
    for name, more in calls:
        package = name.split(".")[0]
        stated = re.search(r'reason="([^"]+)"', more)
        reason = stated[1] if stated else f"could not import '{name}': No module named '{name}'"
        is_installed = re.search(rf"\b{package}\b", INSTALLED) is not None
        if package not in sys.stdlib_module_names and not is_installed:
            assert re.search(EXPECTED, reason), f"{name} may be missing in CI: {reason}"
