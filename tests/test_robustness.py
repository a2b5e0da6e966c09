"""Odd input, odd surroundings, long runs: the command line in processes of its own; and the table."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import main
from gpt2 import GPT2
from sampling import warped
from speculative import speculative_sampling
from utils import MODELS_DIR, load_encoder_hparams_and_params, random_params, read_hparams

ROOT = Path(main.__file__).parent
N_CTX = read_hparams(MODELS_DIR / "tales-large")["n_ctx"]
FEW = ("--n_tokens_to_generate", 5)
BLAS = {"OPENBLAS_NUM_THREADS": "1"}


def command(*flags, stdin=None, env={}, **kwargs):
    """`python main.py` with these flags, output in pipes."""
    kwargs = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | kwargs
    return subprocess.run([sys.executable, "-W", "error", "main.py", *map(str, flags)], cwd=ROOT,
                          input=stdin, timeout=120, env={**os.environ, **BLAS, **env}, **kwargs)


def refused(done, words):
    """Status 2, nothing on standard output, one line that says so."""
    assert done.returncode == 2 and not done.stdout, done
    assert done.stderr.count(b"\n") == 1 and words.encode() in done.stderr, done.stderr
    assert b"Traceback" not in done.stderr


# ---- prompts

BYTES = {
    "no UTF-8": (b"once \xff upon", "byte 0xff at position 5"),
    "half a character at the end": (b"once \xe8\xaa", "byte 0xe8 at position 5"),
    "an encoded surrogate": (b"\xed\xa0\x80", "byte 0xed at position 0"),
    "an overlong form": (b"\xc0\xaf", "byte 0xc0 at position 0"),
    "UTF-16": ("once".encode("utf-16"), "byte 0xff at position 0"),
    "a megabyte of one letter": (b"a" * 10**6, f"n_ctx = {N_CTX}"),
    "a megabyte of zeros": (bytes(10**6), f"n_ctx = {N_CTX}"),
    "a megabyte of words": (b"once upon a time " * 60_000, f"n_ctx = {N_CTX}"),
    "five megabytes": (b"a" * 5 * 2**20, "at most 4194304 bytes"),
    "nothing": (b"", "at least one token"),
}


@pytest.mark.parametrize("case", BYTES)
def test_a_prompt_that_cannot_be_read_is_refused_in_one_line(case):
    data, words = BYTES[case]
    start = time.perf_counter()
    refused(command("--prompt", "-", stdin=data), words)
    assert time.perf_counter() - start < 30  # seconds of work, on a busy machine too


@pytest.mark.parametrize("case", ["no UTF-8", "half a character at the end", "an encoded surrogate",
                                  "an overlong form"])
def test_bytes_that_are_no_utf8_are_replaced_on_request(case):
    done = command("--prompt", "-", "--errors", "replace", "--json", *FEW, stdin=BYTES[case][0])
    assert done.returncode == 0 and "\ufffd" in json.loads(done.stdout)["prompt"]


@pytest.mark.parametrize("prompt", ["a\0b", "\0", "e\u0301" * 30, "👩‍👩‍👧‍👦", "\u202eabc\u2028", "\ufeffonce", "\r\n\r\n",
                                    "\x1b[31m", " ", "<|endoftext|>", "\U0010ffff"])
def test_any_text_is_a_prompt(prompt):
    done = command("--prompt", "-", "--json", *FEW, stdin=prompt.encode())
    assert done.returncode == 0 and done.stderr == b""
    got = json.loads(done.stdout)
    assert got["prompt"] == prompt and got["speculative"]["text"].startswith(prompt)


def test_a_flag_of_bytes_that_are_no_utf8_is_refused():
    refused(command("--prompt", b"\xff".decode("utf-8", "surrogateescape")), "byte 0xff at position 0")


@pytest.mark.parametrize("source", ["/dev/zero", "/dev/null", "/", "no\nsuch\nfile"])
def test_a_prompt_file_that_is_none_is_one_line(source):
    refused(command("--prompt_file", source), "main.py: ")


# ---- the end of the context

@pytest.fixture(scope="module")
def encoder():
    return load_encoder_hparams_and_params("tales-large", MODELS_DIR)[0]


def status(capsys, *flags):
    """main.main in this process: its status, its JSON (or None), its errors."""
    code = main.main(["--json", *map(str, flags)])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, err


@pytest.mark.parametrize("n_prompt", [1, N_CTX // 2, N_CTX - 8, N_CTX - 1])
def test_prompt_and_new_tokens_fill_the_context_to_the_last_place(encoder, capsys, n_prompt):
    prompt, room = " the" * n_prompt, N_CTX - n_prompt
    assert len(encoder.encode(prompt)) == n_prompt
    for N in (room - 1, room, room + 1):
        code, got, err = status(capsys, "--prompt", prompt, "--stop", "\0", "--n_tokens_to_generate", N)
        assert (code, err) == (0, "")
        for run in (got["autoregressive"], got["speculative"]):
            assert (run["tokens"], run["ended_by"]) == (min(N, room), "N" if N <= room else "n_ctx")


@pytest.mark.parametrize("n_prompt", [N_CTX - 1, N_CTX, N_CTX + 1, 3 * N_CTX])
def test_a_prompt_that_leaves_no_room_is_refused_or_seen_through_the_window(encoder, capsys, n_prompt):
    flags = ("--prompt", " the" * n_prompt, "--stop", "\0", "--n_tokens_to_generate")
    assert status(capsys, *flags, 0)[0] == (0 if n_prompt <= N_CTX else 2)
    code, got, err = status(capsys, *flags, 1)
    assert code == 0 if n_prompt < N_CTX else f"n_ctx = {N_CTX}, or --window, got {n_prompt}" in err
    code, got, err = status(capsys, *flags, 3, "--window")
    assert (code, err) == (0, "") and got["speculative"]["tokens"] == 3 and got["window_moved"]


def test_a_full_context_is_said_to_people_and_a_moved_window_too():
    long = ("--prompt", " the" * (N_CTX - 2), "--stop", "~", "--n_tokens_to_generate", 5)
    assert f"n_ctx = {N_CTX} reached after 2 new tokens; --window goes on" in command(*long).stdout.decode()
    shown = command(*long, "--window", "--show").stdout.decode()
    assert f"the last {N_CTX // 2} to {N_CTX - 1} ids" in shown and "Context full" not in shown


def test_the_trace_of_a_windowed_run_is_that_run(tmp_path, capsys):
    code, got, _ = status(capsys, "--window", "--trace", tmp_path / "run.json", "--temperature", 1,
                          "--prompt", " the" * (N_CTX - 9), "--stop", "\0", "--n_tokens_to_generate", 40)
    seen = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert [token["id"] for round in seen["rounds"] for token in round["ids"]] == got["speculative"]["ids"]
    assert code == 0 and seen["settings"]["window"] and got["window_moved"]


# ---- where the output goes

def test_a_pipe_that_is_closed_ends_quietly():
    """As `python main.py | head -1` does, at any place: the reader is gone before a word came."""
    for flags in ((), ("--show",), ("--json",)):
        read, write = os.pipe()
        os.close(read)
        done = command(*FEW, *flags, stdout=write)
        os.close(write)
        assert (done.returncode, done.stderr) == (0, b""), flags


def test_a_pipe_that_is_closed_after_one_line_ends_quietly():
    process = subprocess.Popen([sys.executable, "main.py", "--show"], cwd=ROOT, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env={**os.environ, **BLAS})
    assert process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait(60) == 0
    process.stderr.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("flags", [(), ("--show",), ("--json",)])
def test_output_to_a_full_disk_is_one_line(flags):
    with open("/dev/full", "wb") as full:
        done = command(*FEW, *flags, stdout=full)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and b"No space left" in done.stderr


@pytest.mark.parametrize("env", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C"}, {"LC_ALL": "POSIX"},
                                 {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
                                 {"PYTHONIOENCODING": "latin-1"}, {"TERM": "dumb", "COLUMNS": "1"},
                                 {"LC_ALL": "tr_TR.UTF-8"}, {"COLUMNS": "x", "LINES": "-1"}])
def test_neither_locale_nor_terminal_matters(env):
    done = command("--prompt", "-", *FEW, stdin="Das Märchen 語".encode(), env=env)
    assert done.returncode == 0 and done.stderr == b""
    encoding = env.get("PYTHONIOENCODING") or ("ascii" if "PYTHONUTF8" in env else "utf-8")
    shown = "Das Märchen 語".encode(encoding, "backslashreplace").decode(encoding)
    assert f"Text = {shown}" in done.stdout.decode(encoding)


@pytest.mark.parametrize("env", [{}, {"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1"}])
def test_no_colour_and_no_bar_gets_into_a_file(env, tmp_path):
    with open(tmp_path / "out", "wb") as out, open(tmp_path / "err", "wb") as err:
        done = command(*FEW, stdout=out, stderr=err, env=env)
    assert done.returncode == 0 and (tmp_path / "err").read_bytes() == b""
    assert not {b"\x1b", b"\r"} & {bytes([byte]) for byte in (tmp_path / "out").read_bytes()}


def test_a_closed_standard_input_is_no_error_where_nobody_reads_it():
    assert command(*FEW, stdin=None, preexec_fn=partial(os.close, 0)).returncode == 0


def test_ctrl_c_is_one_line():
    process = subprocess.Popen([sys.executable, "main.py", "--show", "--n_tokens_to_generate", "240",
                                "--stop", "the"], cwd=ROOT, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env={**os.environ, **BLAS})
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    if process.returncode != 0:  # it had not finished before
        assert process.returncode == 130 and err == b"main.py: interrupted\n"


def test_memory_that_is_not_there_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(main, "load", lambda args: np.empty(2**56))
    assert main.main([]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "Unable to allocate" in err


HEADS = {
    "nothing": b"", "no zip archive": b"garbage", "a zip archive cut": b"PK\x03\x04garbage",
    "an array": b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }" + b" " * 56 + b"\n",
    "other arrays": dict(a=np.zeros(1)), "objects": dict(w=np.array([{}]), b=np.array([{}]), a=np.array([{}])),
    "a header of brackets": b"\x93NUMPY\x01\x00\x10\x00" + b"(" * 15 + b"\n",
    "another width": dict(w=np.zeros((2, 3, 3)), b=np.zeros((2, 3)), a=np.zeros((2, 3, 3))),
    "text": dict(w=np.array("w"), b=np.array("b"), a=np.array("a")),
}


@pytest.mark.parametrize("case", HEADS)
def test_broken_heads_are_one_line(tmp_path, capsys, case):
    shutil.copytree(MODELS_DIR / "tales-large", tmp_path / "x")
    path, content = tmp_path / "x" / "medusa.npz", HEADS[case]
    path.write_bytes(content) if isinstance(content, bytes) else np.savez(path, **content)
    assert main.main(["--models_dir", str(tmp_path), "--target_model_size", "x", *map(str, FEW),
                      "--decoder", "medusa"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "heads" in err


# ---- long runs

def test_a_thousand_generations_need_no_more_memory_than_the_first_hundred():
    resource = pytest.importorskip("resource")  # POSIX
    hparams = dict(n_vocab=300, n_ctx=64, n_embd=32, n_head=2, n_layer=2)
    draft, target = (warped(GPT2(random_params(hparams, np.random.default_rng(seed)), 2))
                     for seed in (0, 1))
    used = []
    for i in range(1000):
        x = np.random.default_rng(i).integers(0, 300, 5).tolist()
        assert len(speculative_sampling(x, draft, target, 12, 4, np.random.default_rng(i))) == 17
        if i in (100, 999):
            used.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    assert used[1] - used[0] < 4096  # KiB


# ---- the command line's arguments, and those that fuzzing found

ARGUMENTS = [
    ["--K", "9" * 400], ["--K", "1e3"], ["--K", ""], ["--K", "\u0664x"], ["--seed", "-0x1"],
    ["--temperature", "inf"], ["--temperature", "-nan"], ["--top_p", "nan"], ["--top_p", "inf"],
    ["--repetition_penalty", "inf"], ["--repetition_penalty", "nan"], ["--top_k", "1.5"],
    ["--n_tokens_to_generate", "9" * 30], ["--stop", ""], ["--stop", "\udcff"], ["--dtype", "float8"],
    ["--models_dir", ""], ["--models_dir", "\0"], ["--target_model_size", "\0"], ["--prompt_file", "\0"],
    ["--target_model_size", "a" * 5000], ["--models_dir", "/dev/null"], ["--prompt", "\udcff"],
    ["two\nlines"], ["--K", "4\n5\r6"], ["@file"], ["--"], ["--", "--K"], ["--prompt"], ["--=x"], ["--errors", "ignore"],
    ["--stop=--"], ["--prompt=--"], ["--seed=--"], ["--decoder=--"], ["--trace=--"], ["--K=--"], ["--models_dir=--"],
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda arguments: " ".join(arguments)[:20].encode(
    "ascii", "backslashreplace").decode())
def test_any_argument_gets_a_text_or_one_line(arguments, capsys):
    try:
        code = main.main([*arguments, *map(str, FEW)] if "--n" not in arguments[0] else arguments)
    except SystemExit as exit:  # argparse
        code = exit.code
    out, err = capsys.readouterr()
    assert code == 0 or (code == 2 and out == "" and err.count("\n") == 1)


# ---- the table

TABLE = (ROOT / "docs" / "robustness.md").read_text(encoding="utf-8")
ROWS = [line.split("|")[1:-1] for line in TABLE.split("\n") if re.match(r"\| (?!fault|---)", line)]


def test_the_table_has_at_least_60_rows_of_four_columns():
    assert len(ROWS) >= 60 and all(len(row) == 4 for row in ROWS)
    assert len({row[0] for row in ROWS}) == len(ROWS)


def test_every_test_that_the_table_names_exists():
    for *_, where in ROWS:
        file, test, case = re.fullmatch(r" `(\w+\.py)` `(test_\w+)`(?:, (.+))? ", where).groups()
        source = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert f"def {test}(" in source, where
        assert case is None or case in source, where
