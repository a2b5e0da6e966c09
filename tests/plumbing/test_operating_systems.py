"""What Windows has otherwise, as far as it can be had elsewhere: no test here has run on Windows.

Names with backslashes and drive letters are real folders here; pathlib's Windows flavour says what
they mean there; modules and constants that only POSIX has are taken away; and the errors are raised
that Windows raises where POSIX has none.
"""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

import main
import utils
from lib.demo.task import read_prompt
from lib.vocabulary import read_merges
from tests.checkpoints import HPARAMS, write_model
from utils import MODELS_DIR, find_folder, load_encoder_hparams_and_params

ROOT = Path(main.__file__).parent
FOLDERS = ("lib", "theory", "variants")
SOURCES = sorted(path for name in (".", *FOLDERS) for path in (ROOT / name).glob("*.py"))
NAMES = [str(path.relative_to(ROOT)) for path in SOURCES]
FEW = ("--n_tokens_to_generate", "5")
ODD = ["C:\\my models", "\\\\server\\share", "a[b]", "D:", "back\\", "a'b \"c\"", "*?"]


# ---- names with backslashes and drive letters

@pytest.mark.skipif(os.name == "nt", reason="there they are no names")
@pytest.mark.parametrize("name", ODD)
def test_a_whole_run_in_folders_of_odd_names(tmp_path, monkeypatch, capsys, name):
    """models_dir, heads, prompt and trace, all by relative names."""
    monkeypatch.chdir(tmp_path)
    Path(name).mkdir()
    for size in ("tales-small", "tales-large"):
        Path(name, size).symlink_to(MODELS_DIR / size)
    Path(name, "C:\\prompt.txt").write_text("The king", encoding="utf-8")
    for flags in (("--json",), ("--decoder", "medusa"), ("--trace", f"{name}/D:\\run.json")):
        assert main.main(["--models_dir", name, "--prompt_file", f"{name}/C:\\prompt.txt",
                          *FEW, *flags]) == 0, capsys.readouterr().err
        assert "The king" in capsys.readouterr().out
    trace = json.loads(Path(name, "D:\\run.json").read_text(encoding="utf-8"))
    assert trace["prompt"] == "The king"


@pytest.mark.skipif(os.name == "nt", reason="there they are no names")
def test_a_checkpoint_in_a_folder_of_an_odd_name_is_read(tmp_path, monkeypatch):
    """TensorFlow looks for a checkpoint by a pattern, in which a backslash and [ are no letters."""
    pytest.importorskip("tensorflow")
    write_model(tmp_path / "x")
    monkeypatch.chdir(tmp_path)
    for name in ODD:
        for models_dir in (tmp_path / name, Path(name)):
            shutil.copytree(tmp_path / "x", models_dir / "x")
            assert load_encoder_hparams_and_params("x", models_dir)[1] == HPARAMS
            shutil.rmtree(models_dir)
    assert Path.cwd() == tmp_path


@given(st.from_regex(r"\w[\w.-]*", fullmatch=True))
def test_no_name_of_a_model_leaves_models_dir(name):
    for folder in map(PureWindowsPath, ("C:\\models", "models", "C:/a b")):
        assert (folder / name).parent == folder and (folder / name).drive == folder.drive


class There(PureWindowsPath):
    """A path of Windows, where one Hugging Face folder is."""

    def is_file(self):
        return self.parent == PureWindowsPath("C:\\exported\\x")


@pytest.mark.parametrize("size, folder", [
    ("124M", "D:\\models\\124M"), ("C:\\exported\\x", "C:\\exported\\x"),
    ("C:/exported/x", "C:\\exported\\x"), ("c:\\Exported\\X\\", "C:\\exported\\x"),
    ("C:\\exported", None), ("C:", None), ("C:x", None), ("..\\x", None), ("\\\\server\\x", None),
    ("models\\124M", None), ("NUL:", None), ("124M:stream", None)])
def test_a_model_is_found_by_name_or_path(monkeypatch, size, folder):
    monkeypatch.setattr(utils, "Path", There)
    if folder:
        assert find_folder(size, "D:\\models") == There(folder)
    else:
        with pytest.raises(ValueError, match="not a Hugging Face folder"):
            find_folder(size, "D:\\models")


# ---- without what only POSIX has

POSIX_MODULES = ["fcntl", "resource", "pwd", "grp", "termios", "tty", "pty"]
WITHOUT = f"""
import os, sys, filelock  # what it uses of each system is its own affair
for name in {POSIX_MODULES}:
    sys.modules[name] = None
import json, subprocess, tempfile, threading, numpy, requests, tqdm, threadpoolctl, regex
for name in ("O_NOFOLLOW", "fork", "getuid", "geteuid", "getgid", "mkfifo", "chown", "killpg",
             "setsid", "O_CLOEXEC", "uname", "sysconf", "sched_getaffinity", "getpgid",
             "O_NONBLOCK", "fchmod"):
    if hasattr(os, name):
        delattr(os, name)
import main, theory
from lib.checkpoints import openai
from tools import export_hf
sys.exit(main.main(sys.argv[1:]))
"""


def test_a_run_without_what_only_posix_has(tmp_path):
    flags = ["--json", *FEW, "--trace", tmp_path / "run.html"]
    done = subprocess.run([sys.executable, "-c", WITHOUT, *flags], cwd=ROOT, capture_output=True,
                          timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["speculative"]["tokens"] == 5


@pytest.mark.parametrize("errors, status", [("strict", 2), ("replace", 0)])
def test_half_a_character_of_utf16_in_an_argument(monkeypatch, capsys, errors, status):
    """Windows' arguments are UTF-16; Python's encoding for them there lets halves pass."""
    monkeypatch.setattr(os, "fsencode", lambda text: text.encode("utf-8", "surrogatepass"))
    assert main.main(["--prompt", "a\ud83d", "--errors", errors, *FEW]) == status
    assert ("byte 0xed at position 1" in capsys.readouterr().err) == (status == 2)


# ---- texts

def test_carriage_returns_are_read_as_line_ends_or_kept_as_written(tmp_path):
    (tmp_path / "vocab.bpe").write_bytes(b"#version: 0.2\r\na b\r\nab c\r\n")
    assert read_merges(tmp_path / "vocab.bpe") == [("a", "b"), ("ab", "c")]
    (tmp_path / "prompt").write_bytes(b"a\r\nb")
    args = main.parse_args(["--prompt_file", str(tmp_path / "prompt")])
    assert read_prompt(args) == "a\r\nb"


def opens_text(call):
    """Whether a call opens a text file, and so needs an encoding: Windows' own is no UTF-8."""
    function = call.func
    name = getattr(function, "attr", getattr(function, "id", ""))
    if name in ("read_text", "write_text"):
        return True
    if name != "open" or not isinstance(function, ast.Name):
        return False
    modes = [arg.value for arg in call.args[1:2] if isinstance(arg, ast.Constant)]
    modes += [keyword.value.value for keyword in call.keywords if keyword.arg == "mode"]
    return not any("b" in mode for mode in modes)


@pytest.mark.parametrize("file", SOURCES, ids=NAMES)
def test_every_text_file_is_opened_with_its_encoding(file):
    for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(call, ast.Call) and opens_text(call):
            assert any(keyword.arg == "encoding" for keyword in call.keywords), call.lineno


@pytest.mark.parametrize("file", SOURCES, ids=NAMES)
def test_posix_modules_are_imported_under_a_guard_only(file):
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        names = {alias.name for alias in getattr(node, "names", [])}
        assert not (names | {getattr(node, "module", None)}) & {*POSIX_MODULES}
