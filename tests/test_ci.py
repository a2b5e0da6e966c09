"""Test what .ci/run relies on: a test that is skipped for an unexpected reason fails the run."""

import os
import re
import subprocess
import sys

import pytest

from tests.pages import ROOT


@pytest.mark.parametrize("expected, unexpected", [
    ("no_scipy|no_gpu", ""), ("no_gpu", "no_scipy"), ("no_scipy", "no_gpu")])
def test_a_skip_fails_the_run_unless_its_reason_is_expected(tmp_path, expected, unexpected):
    (tmp_path / "test_a.py").write_text(
        "import pytest\n\n\ndef test_x():\n    pytest.importorskip('no_scipy')\n", "utf-8")
    (tmp_path / "test_b.py").write_text("import pytest\n\npytest.importorskip('no_gpu')\n", "utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "tests.skips", "-p", "no:cacheprovider",
               "-p", "xdist", "-n1", "--may_skip", expected, "."]
    # other plugins are not needed here, and slow to import
    environment = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | environment, text=True,
                          capture_output=True)
    found = "".join(re.findall("in spite of --may_skip: .*'(no_\\w+)'", done.stdout))
    assert (done.returncode, found) == (bool(unexpected), unexpected), done.stdout
