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
for module in sys.argv[1:]:
    sys.argv = [module, "--help"]
    sys.modules.pop(module, None)  # another command may have imported it
    with contextlib.suppress(SystemExit):
        runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def state_of_files():
    """Return {path: time of its last change} of all files that a command might renew."""
    files = [path for folder in WRITTEN for path in (ROOT / folder).rglob("*.*")]
    return {path: path.stat().st_mtime_ns for path in files if path.suffix != ".pyc"}


def test_help_needs_no_optional_package_and_nothing_runs_or_is_written():
    before = state_of_files()
    modules = [file.removesuffix(".py").removesuffix("/__main__").replace("/", ".")
               for file in FILES]
    done = subprocess.run([sys.executable, "-c", SHOW_HELP, *modules], cwd=ROOT, text=True,
                          capture_output=True)
    shown = re.findall(r"^usage: (main\.py|python -m \S+) ", done.stdout, re.MULTILINE)
    assert (done.returncode, done.stderr) == (0, "")
    assert shown == ["main.py" if module == "main" else f"python -m {module}"
                     for module in modules]
    assert state_of_files() == before
