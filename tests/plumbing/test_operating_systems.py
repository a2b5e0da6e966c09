"""Test what Windows does differently, as far as Linux can imitate it."""

import ast
import os
from pathlib import Path, PureWindowsPath

import pytest

import main
import utils
from demo.task import prompt_of_flags
from lib.checkpoints.vocabulary import read_merges
from tests.test_trace import stored_run
from utils import MODELS_DIR, find_folder

ROOT = Path(main.__file__).parent
SOURCES = [path for name in (".", "lib", "lib/backend", "lib/checkpoints", "demo", "theory",
                             "variants", "variants/shared") for path in (ROOT / name).glob("*.py")]
FEW = ("--n_tokens_to_generate", "5")


@pytest.mark.skipif(os.name == "nt", reason="there they are no names")
@pytest.mark.parametrize("name", ["C:\\my models", "a'b \"[c]\" *?"])
def test_a_whole_run_in_folders_of_odd_names(tmp_path, monkeypatch, capsys, name):
    """models_dir, heads, prompt and trace, all by relative names."""
    monkeypatch.chdir(tmp_path)
    Path(name).mkdir()
    for size in ("tales-small", "tales-large"):
        Path(name, size).symlink_to(MODELS_DIR / size)
    Path(name, "C:\\prompt.txt").write_text("The king", encoding="utf-8")
    for flags in (("--decoder", "medusa"), ("--trace", f"{name}/D:\\run.html")):
        assert main.main(["--models_dir", name, "--prompt_file", f"{name}/C:\\prompt.txt",
                          *FEW, *flags]) == 0, capsys.readouterr().err
    assert stored_run(Path(name, "D:\\run.html"))["prompt"] == "The king"


class There(PureWindowsPath):
    """Imitate a path of Windows, where one Hugging Face folder is."""

    def is_file(self):
        return self.parent == PureWindowsPath("C:\\exported\\x")

    def glob(self, pattern):
        return [self / pattern]


@pytest.mark.parametrize("size, folder", [
    ("124M", "D:\\models\\124M"), ("C:/exported/x", "C:\\exported\\x"),
    ("c:\\Exported\\X\\", "C:\\exported\\x"), ("C:\\exported", None), ("..\\x", None),
    ("124M:stream", None)])
def test_a_model_is_found_by_name_or_path(monkeypatch, size, folder):
    monkeypatch.setattr(utils, "Path", There)
    if folder:
        assert find_folder(size, "D:\\models") == There(folder)
    else:
        with pytest.raises(ValueError, match="not a Hugging Face folder"):
            find_folder(size, "D:\\models")


def test_half_a_character_of_utf16_in_an_argument(monkeypatch, capsys):
    """Windows' arguments are UTF-16; Python's encoding for them there lets halves pass."""
    monkeypatch.setattr(os, "fsencode", lambda text: text.encode("utf-8", "surrogatepass"))
    assert main.main(["--prompt", "a\ud83d", *FEW]) == 2
    assert "byte 0xed at position 1" in capsys.readouterr().err


def test_carriage_returns_are_read_as_line_ends_or_kept_as_written(tmp_path):
    (tmp_path / "vocab.bpe").write_bytes(b"#version: 0.2\r\na b\r\nab c\r\n")
    assert read_merges(tmp_path / "vocab.bpe") == [("a", "b"), ("ab", "c")]
    (tmp_path / "prompt").write_bytes(b"a\r\nb")
    args = main.parse_args(["--prompt_file", str(tmp_path / "prompt")])
    assert prompt_of_flags(args) == "a\r\nb"


def test_every_text_file_is_opened_with_its_encoding():
    """Windows' default is not UTF-8."""
    for file in SOURCES:
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and opens_text(call):
                assert "encoding" in {each.arg for each in call.keywords}, (file, call.lineno)


def opens_text(call):
    """Return whether a call opens a text file."""
    if isinstance(call.func, ast.Name):
        mode = "".join(map(ast.unparse, call.args[1:2]))
        return call.func.id == "open" and "b" not in mode
    return getattr(call.func, "attr", "") in ("read_text", "write_text")
