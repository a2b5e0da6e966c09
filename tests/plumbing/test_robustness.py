"""Give main.py odd input and odd surroundings: a text, or one line and status 2.

The last tests are of what Windows does differently.
"""

import io
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

import main
from lib.checkpoints.vocabulary import read_merges
from page.page import stored_run
from run.flags import parse_args
from run.task import Task, prompt_of_flags, with_ids
from tests.commands import json_of_run, refusal, run_main
from utils import MODELS_DIR

ROOT = Path(main.__file__).parent
FEW = ("--n_tokens_to_generate", 5)


def run_process(*flags, env=None, **settings):
    """Run `python main.py` with these flags in its own process, output in pipes."""
    # NumPy's products start in a third of the time.
    words = [sys.executable, "-W", "error", "main.py", "--backend", "numpy", *map(str, flags)]
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | settings
    env = os.environ | {"OPENBLAS_NUM_THREADS": "1"} | (env or {})
    return subprocess.run(words, cwd=ROOT, timeout=120, env=env, **settings)


@pytest.fixture
def standard_input(monkeypatch):
    """Return a function that gives main.py these bytes on its standard input."""
    return lambda data: monkeypatch.setattr(sys, "stdin",
                                         io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))


# ---- prompts

def test_a_megabyte_of_one_letter_is_refused_in_one_line(standard_input):
    standard_input(b"a" * 10**6)
    assert "n_ctx = " in refusal(main.main, "--prompt", "-")


def test_bytes_in_a_flag_that_are_no_utf8_are_refused():
    assert "byte 0xff at position 0" in refusal(main.main, "--prompt", "\udcff")


def test_any_text_is_a_prompt(standard_input):
    prompt = "a\0b" + "e\u0301" * 30 + "\u202eabc\u2028once\ufeff\r\n\r\na\x1b[31m"
    prompt += "<|endoftext|>\U0010ffff"
    standard_input(prompt.encode())
    got = json_of_run("--prompt", "-", *FEW)
    assert got["prompt"] == prompt and got["speculative"]["text"].startswith(prompt)


# ---- the end of the context

@pytest.mark.parametrize("n, N, most", [(31, 1, 31), (32, 0, 32)])
def test_a_prompt_may_fill_the_context_and_exceeds_it_with_a_window(n, N, most):
    task = Task(**dict.fromkeys(Task._fields) | dict(n_ctx=32, N=N, window=False))
    assert with_ids(task, ["a"] * n).x == ["a"] * n
    words = f"the prompt has {n + 1} tokens, and at most {most} fit .n_ctx = 32.: shorten"
    with pytest.raises(ValueError, match=words):
        with_ids(task, ["a"] * (n + 1))
    assert with_ids(task._replace(window=True), ["a"] * 99).x == ["a"] * 99


# ---- where the output goes

def test_a_pipe_that_is_closed_ends_quietly():
    """As `python main.py | head -1` does: the reader is gone before a word came."""
    read, write = os.pipe()
    os.close(read)
    done = run_process(*FEW, stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_to_a_full_disk_is_one_line():
    with open("/dev/full", "wb") as full:
        done = run_process(*FEW, "--show", stdout=full)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1
    assert b"No space left" in done.stderr


def test_neither_locale_nor_terminal_matters_and_no_bar_gets_into_a_pipe():
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TERM": "dumb",
           "COLUMNS": "x", "FORCE_COLOR": "1"}
    done = run_process("--prompt", "-", *FEW, input="Das Märchen 語".encode(), env=env)
    assert done.returncode == 0 and done.stderr == b"" and not {0x1b, 0x0d} & {*done.stdout}
    assert "Text = Das M\\xe4rchen \\u8a9e" in done.stdout.decode("ascii")


def test_a_closed_standard_input_is_no_error_where_nobody_reads_it():
    assert run_process(*FEW, preexec_fn=partial(os.close, 0)).returncode == 0


@pytest.mark.parametrize("fault, status, words", [
    (KeyboardInterrupt, 130, "interrupted"), (MemoryError("Unable to\nallocate"), 2, "Unable"),
    (MemoryError, 2, "main.py: need more memory than this process can have")])
def test_ctrl_c_and_missing_memory_are_one_line(monkeypatch, fault, status, words):
    monkeypatch.setattr(main, "load_task", mock.Mock(side_effect=fault))
    *got, err = run_main()
    assert got == [status, ""] and err.count("\n") == 1 and words in err


# ---- the command line's arguments

@pytest.mark.parametrize("arguments", [
    ["--K", "9" * 400], ["--K", "\u0664x"], ["--temperature", "inf"], ["--top_p", "nan"],
    ["--repetition_penalty", "nan"], ["--stop", "\udcff"], ["--models_dir", "\0"],
    ["--target_model_size", "a" * 5000], ["--models_dir", "/dev/null"], ["two\nlines"],
    ["--K", "4\n5\r6"], ["--"], ["--prompt"], ["--=x"]],
    ids=lambda arguments: ascii(arguments)[:30])
def test_any_argument_gets_a_text_or_one_line(arguments):
    status, out, err = run_main(*arguments, *FEW)
    assert status == 0 or (status, out, err.count("\n")) == (2, "", 1)


# ---- what Windows does differently, as far as Linux can imitate it

@pytest.mark.skipif(os.name == "nt", reason="there it is no name")
def test_a_whole_run_in_a_folder_of_an_odd_name(tmp_path, monkeypatch):
    """models_dir, heads, prompt and trace, all by relative names."""
    monkeypatch.chdir(tmp_path)
    name = "C:\\my a'b \"[c]\" *?"
    Path(name).mkdir()
    for size in ("tales-small", "tales-large"):
        Path(name, size).symlink_to(MODELS_DIR / size)
    Path(name, "C:\\prompt.txt").write_text("The king", encoding="utf-8")
    status, _, err = run_main("--models_dir", name, *FEW, "--decoder", "medusa",
                              "--prompt_file", f"{name}/C:\\prompt.txt",
                              "--trace", f"{name}/D:\\run.html")
    assert status == 0, err
    assert stored_run(Path(name, "D:\\run.html"))["prompt"] == "The king"


def test_half_a_character_of_utf16_in_an_argument(monkeypatch):
    """Windows' arguments are UTF-16; Python's encoding for them there lets halves pass."""
    monkeypatch.setattr(os, "fsencode", lambda text: text.encode("utf-8", "surrogatepass"))
    assert "byte 0xed at position 1" in refusal(main.main, "--prompt", "a\ud83d")


def test_carriage_returns_are_read_as_line_ends_or_kept_as_written(tmp_path):
    (tmp_path / "vocab.bpe").write_bytes(b"#version: 0.2\r\na b\r\nab c\r\n")
    assert read_merges(tmp_path / "vocab.bpe") == [("a", "b"), ("ab", "c")]
    (tmp_path / "prompt").write_bytes(b"a\r\nb")
    args = parse_args(["--prompt_file", str(tmp_path / "prompt")])
    assert prompt_of_flags(args) == {"prompt": "a\r\nb"}
