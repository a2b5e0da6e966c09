"""Every command shows its help and does nothing else."""

import re
import subprocess
import sys

from tests.pages import ROOT

FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py")
               if re.search("^if __name__ ==", path.read_text("utf-8"), re.MULTILINE))
OPTIONAL = ["requests", "torch", "transformers", "matplotlib", "gguf", "xllamacpp", "greenlet",
            "threadpoolctl"]
WRITTEN = ("docs", "benchmarks/results", "tests/data")  # by commands that have no --out
SHOW_HELP = f"""
import contextlib, runpy, sys
sys.modules |= dict.fromkeys({OPTIONAL})
for file in sys.argv[1:]:
    sys.argv = [file, "--help"]
    with contextlib.suppress(SystemExit):
        runpy.run_path(file, run_name="__main__")
"""


def state_of_files():
    """Return {path: time of its last change} of all files that a command might renew."""
    files = [path for folder in WRITTEN for path in (ROOT / folder).rglob("*.*")]
    return {path: path.stat().st_mtime_ns for path in files if path.suffix != ".pyc"}


def test_help_needs_no_optional_package_and_nothing_runs_or_is_written():
    before = state_of_files()
    done = subprocess.run([sys.executable, "-c", SHOW_HELP, *FILES], cwd=ROOT, text=True,
                          capture_output=True)
    shown = re.findall(r"^usage: (main\.py|python -m \S+) ", done.stdout, re.MULTILINE)
    assert (done.returncode, done.stderr) == (0, "")
    modules = [file.removesuffix(".py").removesuffix("/__main__") for file in FILES]
    assert shown == ["main.py" if module == "main" else f"python -m {module.replace('/', '.')}"
                     for module in modules]
    assert state_of_files() == before
