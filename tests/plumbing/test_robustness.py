"""Give main.py odd input and odd surroundings: a text, or one line and status 2."""

import io
import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from safetensors.numpy import save_file

import main
from demo.task import Task, with_prompt
from tests.conftest import pytest_configure
from utils import MODELS_DIR

ROOT = Path(main.__file__).parent
FEW = ("--n_tokens_to_generate", 5)
BLAS = {"OPENBLAS_NUM_THREADS": "1"}
# A background job of a shell ignores Ctrl-C, and so would its children.
DEFAULT_CTRL_C = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)


def run_process(*flags, stdin=None, env=BLAS, **kwargs):
    """Run `python main.py` with these flags in its own process, output in pipes.

    With NumPy's products: that starts in a third of the time.
    """
    kwargs = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | kwargs
    words = [sys.executable, "-W", "error", "main.py", "--backend", "numpy", *map(str, flags)]
    return subprocess.run(words, cwd=ROOT, input=stdin, timeout=120,
                          env={**os.environ, **BLAS, **env}, **kwargs)


@pytest.fixture
def run_here(monkeypatch, capsys):
    """Return a function that runs main.py in this process, which starts faster."""
    def run(*flags, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        args = [*map(str, flags)]
        status = main.main(args)
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(args, status, out.encode(), err.encode())

    return run


def refused(done, words):
    """Assert status 2, nothing on standard output, one line that says why."""
    assert done.returncode == 2 and not done.stdout, done
    assert done.stderr.count(b"\n") == 1 and words.encode() in done.stderr, done.stderr
    assert b"Traceback" not in done.stderr


# ---- prompts

BYTES = {
    "no UTF-8": (b"once \xff upon", "byte 0xff at position 5"),
    "a megabyte of one letter": (b"a" * 10**6, "n_ctx = "),
    "five megabytes": (b"a" * 5 * 2**20, "at most 4194304 bytes"),
    "nothing": (b"", "at least one token"),
}


@pytest.mark.parametrize("case", BYTES)
def test_a_prompt_that_cannot_be_read_is_refused_in_one_line(run_here, case):
    data, words = BYTES[case]
    refused(run_here("--prompt", "-", stdin=data), words)


def test_bytes_in_a_flag_that_are_no_utf8_are_refused(run_here):
    prompt = b"\xff".decode("utf-8", "surrogateescape")
    refused(run_here("--prompt", prompt), "byte 0xff at position 0")


@pytest.mark.parametrize("prompt", [
    "a\0b", "e\u0301" * 30, "\u202eabc\u2028", "\ufeffonce\r\n\r\na\x1b[31m",
    "<|endoftext|>\U0010ffff"], ids=ascii)
def test_any_text_is_a_prompt(run_here, prompt):
    done = run_here("--prompt", "-", "--json", *FEW, stdin=prompt.encode())
    assert done.returncode == 0 and done.stderr == b""
    got = json.loads(done.stdout)
    assert got["prompt"] == prompt and got["speculative"]["text"].startswith(prompt)


@pytest.mark.parametrize("source", ["/dev/zero", "/dev/null", "/", "no\nsuch\nfile"])
def test_a_prompt_file_that_is_none_is_one_line(run_here, source):
    refused(run_here("--prompt_file", source), "main.py: ")


# ---- the end of the context

@pytest.mark.parametrize("n, N, window, fits", [
    (31, 1, False, True), (32, 1, False, False), (32, 0, False, True), (33, 0, False, False),
    (99, 3, True, True)])
def test_a_prompt_that_leaves_no_position_is_refused_or_seen_through_the_window(n, N, window, fits):
    task = Task(*[None] * 13)._replace(encoder=mock.Mock(encode=list), n_ctx=32, N=N, window=window)
    if fits:
        assert with_prompt(task, "a" * n).x == ["a"] * n
    else:
        words = f"the prompt has {n} tokens, and at most {32 - min(N, 1)} fit .n_ctx = 32.: shorten"
        with pytest.raises(ValueError, match=words):
            with_prompt(task, "a" * n)


# ---- where the output goes

@pytest.mark.parametrize("flags", [(), ("--show",)])
def test_a_pipe_that_is_closed_ends_quietly(flags):
    """As `python main.py | head -1` does: the reader is gone before a word came."""
    read, write = os.pipe()
    os.close(read)
    done = run_process(*FEW, *flags, stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("flags", [(), ("--show",)])
def test_output_to_a_full_disk_is_one_line(flags):
    with open("/dev/full", "wb") as full:
        done = run_process(*FEW, *flags, stdout=full)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1
    assert b"No space left" in done.stderr


def test_neither_locale_nor_terminal_matters_and_no_bar_gets_into_a_pipe():
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TERM": "dumb",
           "COLUMNS": "x", "FORCE_COLOR": "1"}
    done = run_process("--prompt", "-", *FEW, stdin="Das Märchen 語".encode(), env=env)
    assert done.returncode == 0 and done.stderr == b"" and not {0x1b, 0x0d} & {*done.stdout}
    assert "Text = Das M\\xe4rchen \\u8a9e" in done.stdout.decode("ascii")


def test_a_closed_standard_input_is_no_error_where_nobody_reads_it():
    assert run_process(*FEW, stdin=None, preexec_fn=partial(os.close, 0)).returncode == 0


@pytest.mark.parametrize("fault, status, words", [
    (KeyboardInterrupt, 130, "interrupted"), (MemoryError("Unable to\nallocate"), 2, "Unable")])
def test_ctrl_c_and_missing_memory_are_one_line(monkeypatch, capsys, fault, status, words):
    monkeypatch.setattr(main, "load_task", mock.Mock(side_effect=fault))
    assert main.main([]) == status
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and words in err


INTERRUPTED = """
import runpy, sys
class Interrupt:
    def find_spec(self, name, *_):
        if name == "demo.compare":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
runpy.run_path("main.py", run_name="__main__")
"""


def test_ctrl_c_while_main_is_imported_is_one_line():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], cwd=ROOT, capture_output=True)
    assert done.returncode in (130, -signal.SIGINT) and done.stdout == b""
    assert done.stderr == b"main.py: interrupted\n"


HEADS = {
    "no safetensors file": b"garbage", "other arrays": dict(a=np.zeros(1)),
    "NaN": {f"medusa/{name}": np.full((2, 192, 192), np.nan) for name in "wba"},
    "another width": {f"medusa/{name}": np.zeros((2, 3, 3)) for name in "wba"},
}


@pytest.mark.parametrize("case", HEADS)
def test_broken_heads_are_one_line(tmp_path, capsys, case):
    (tmp_path / "x").mkdir()
    for file in (MODELS_DIR / "tales-large").iterdir():
        (tmp_path / "x" / file.name).symlink_to(file)
    path, content = tmp_path / "x" / "heads.safetensors", HEADS[case]
    path.unlink()
    path.write_bytes(content) if isinstance(content, bytes) else save_file(content, path)
    assert main.main(["--models_dir", str(tmp_path), "--target_model_size", "x", *map(str, FEW),
                      "--decoder", "medusa"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "heads.safetensors" in err


# ---- the command line's arguments

ARGUMENTS = [
    ["--K", "9" * 400], ["--K", ""], ["--K", "\u0664x"], ["--temperature", "inf"],
    ["--top_p", "nan"], ["--repetition_penalty", "nan"], ["--top_k", "1.5"],
    ["--stop", ""], ["--stop", "\udcff"],
    ["--dtype", "float8"], ["--models_dir", "\0"], ["--target_model_size", "a" * 5000],
    ["--models_dir", "/dev/null"], ["two\nlines"], ["--K", "4\n5\r6"], ["--"], ["--prompt"],
    ["--=x"], ["--stop=--"], ["--prompt=--"], ["--K=--"],
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda arguments: ascii(arguments)[:30])
def test_any_argument_gets_a_text_or_one_line(arguments, capsys):
    try:
        status = main.main([*arguments, *map(str, FEW)])
    except SystemExit as exit:  # argparse
        status = exit.code
    out, err = capsys.readouterr()
    assert status == 0 or (status == 2 and out == "" and err.count("\n") == 1)


def test_pytest_names_a_file_that_is_not_there():
    pytest_configure(mock.Mock(args=["tests", f"{Path(__file__)}::test_x"]))
    with pytest.raises(pytest.UsageError, match="not found: tests/nosuch.py::test_x"):
        pytest_configure(mock.Mock(args=["tests/nosuch.py::test_x"]))
