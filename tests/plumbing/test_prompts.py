"""main.py --prompts: files that are read, written, cut off and gone on with."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import main
from lib.demo import prompts
from lib.demo.prompts import in_order
from lib.demo.task import MAX_PROMPT
from sampling import with_sampling
from speculative import complete, draft_and_verify
from tests.checkpoints import HPARAMS, write_converted
from utils import load_encoder_hparams_and_params
from variants.shared.tree_gpt2 import TreeGPT2

ROOT = Path(main.__file__).parent
SIZES = HPARAMS | dict(n_embd=16, n_head=2, n_ctx=32)
PROMPTS = ["A bear", "A bird who sang well", "b", "The end of it", "", "A bear", "Nobody"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with two small models."""
    folder = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("small", "large")):
        write_converted(folder / name, SIZES, seed)
    return folder


@pytest.fixture
def run(models, tmp_path, monkeypatch):
    """A run in this process: status, standard output, errors; the files are `prompts` and `out`."""
    monkeypatch.chdir(tmp_path)

    def run(*flags):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main.main([*map(str, flags_of(models)), *map(str, flags)])
        return status, out.getvalue(), err.getvalue()

    return run


def flags_of(models):
    return ("--models_dir", models, "--draft_model_size", "small", "--target_model_size", "large",
            "--n_tokens_to_generate", 9, "--temperature", 1, "--prompts", "prompts", "--out", "out")


def write(lines):
    """The file of prompts; strings and bytes, the last without an end of line."""
    lines = [line if isinstance(line, bytes) else line.encode() for line in lines]
    Path("prompts").write_bytes(b"\n".join(lines))


def records():
    return [json.loads(line) for line in Path("out").read_bytes().splitlines()]


# ---- what is written

def test_each_line_is_the_text_that_its_prompt_has_alone(run, models):
    write(PROMPTS)
    status, said, err = run("--batch", 3)
    assert (status, err) == (0, "") and "7 prompts in out: 7 now, 0 before, 1 with" in said
    encoder, *_ = load_encoder_hparams_and_params("large", models)
    for i, (prompt, record) in enumerate(zip(PROMPTS, records(), strict=True)):
        assert record["index"] == i and record["prompt"] == prompt and record["seed"] == [123, i]
        if prompt:
            draft, target = (with_sampling(TreeGPT2(
                load_encoder_hparams_and_params(name, models)[2], SIZES["n_head"]), temperature=1)
                for name in ("small", "large"))
            x, rng = encoder.encode(prompt), np.random.default_rng((123, i))
            expected = complete(x, draft_and_verify(draft, target, 4), 9, rng, {256})
            assert record["ids"] == expected[len(x) :]
            assert record["text"] == encoder.decode(expected)
            assert record["tokens_per_pass"] >= 1 and 0 <= record["acceptance"] <= 1


def test_the_size_of_a_batch_changes_nothing_in_the_file(run):
    write(PROMPTS)
    files = []
    for batch in (1, 2, 8):
        assert run("--batch", batch)[0] == 0
        files.append(Path("out").read_bytes())
        os.remove("out")
    assert files[0] == files[1] == files[2]


def test_a_line_may_be_an_object_with_an_id(run):
    write(['{"prompt": "A bear", "id": "x1"}', '{"id": [2], "prompt": "b", "other": 0}', "A bear"])
    assert run()[0] == 0
    got = records()
    assert [record.get("id") for record in got] == ["x1", [2], None]
    assert [record["prompt"] for record in got] == ["A bear", "b", "A bear"]
    assert "other" not in got[1] and list(got[0])[:4] == ["index", "id", "prompt", "seed"]


BAD = {
    "an empty line": (b"", "at least one token"),
    "no UTF-8": (b"once \xff upon", "byte 0xff at position 5"),
    "too long for the context": (b"a" * 32, "n_ctx = 32, got 32 tokens"),
    "too long for anything": (b"a" * (MAX_PROMPT + 1), f"at most {MAX_PROMPT} bytes"),
    "half an object": (b'{"prompt": "b"', "a JSON object where a line begins with {"),
    "nested without end": (b'{"a":' * 10**5, "a JSON object"),
    "an object without a prompt": (b'{"text": "b"}', '"prompt" that is text'),
    "a prompt that is no text": (b'{"prompt": ["b"]}', 'got ["b"]'),
    "an empty prompt": (b'{"prompt": ""}', "at least one token"),
    "half a surrogate pair": (b'{"prompt": "\\ud800"}', "surrogate"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_line_becomes_its_error_and_the_others_go_on(run, case):
    line, words = BAD[case]
    write(["A bear", line, "b"])
    status, said, _ = run()
    assert status == 0 and "1 with an error" in said
    first, bad, last = records()
    assert len(first["ids"]) == 9 and len(last["ids"]) == 9
    assert words in bad["error"] and "text" not in bad and bad["index"] == 1


def test_a_prompt_that_all_but_fills_the_context_has_the_room_that_is_left(run):
    write(["a" * 30, "a" * 31])
    assert run()[0] == 0
    assert [len(record["ids"]) for record in records()] == [2, 1]


def test_no_new_tokens_no_prompts_and_other_ends_of_lines(run):
    write([b"A bear\r", b"b\r", b""])  # three lines would be a fourth, empty one
    assert run("--n_tokens_to_generate", 0)[0] == 0
    assert [(r["text"], r["ids"], r["tokens_per_pass"]) for r in records()] == [
        ("A bear", [], None), ("b", [], None)]
    os.remove("out")
    write([])
    assert run()[0] == 0 and records() == []


def test_other_decoders_and_replaced_bytes(run):
    write(["A bear", b"\xff"])
    assert run("--decoder", "lookup", "--errors", "replace")[0] == 0
    assert [len(record["ids"]) for record in records()] == [9, 9]


# ---- gone on with

def test_a_file_cut_at_any_byte_is_gone_on_with_to_the_same_bytes(run):
    write(PROMPTS)
    assert run()[0] == 0
    whole = Path("out").read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == 10]
    for n_bytes in (0, 1, 5, ends[0] - 1, ends[0], ends[0] + 1, ends[2] + 40, ends[-2], ends[-1]):
        Path("out").write_bytes(whole[:n_bytes])
        status, said, _ = run("--batch", 2)
        n_done = sum(end <= n_bytes for end in ends)
        assert status == 0 and f"{7 - n_done} now, {n_done} before" in said
        assert Path("out").read_bytes() == whole


def test_what_is_there_is_not_continued_again(run, monkeypatch):
    write(PROMPTS)
    assert run()[0] == 0
    Path("out").write_bytes(b"".join(Path("out").read_bytes().splitlines(True)[:-2]))
    read, make_job = [], prompts.make_job
    monkeypatch.setattr(prompts, "make_job", lambda *args: (read.append(args), make_job(*args))[1])
    assert run()[0] == 0 and len(read) == 2
    assert run()[0] == 0 and len(read) == 2


@pytest.mark.parametrize("change", ["another prompt", "another seed", "fewer prompts", "no record",
                                    "one line without an end"])
def test_a_file_of_another_command_is_refused_and_kept(run, change):
    write(PROMPTS)
    assert run()[0] == 0
    if change == "another prompt":
        write(["A bee", *PROMPTS[1:]])
    elif change == "fewer prompts":
        write(PROMPTS[:3])
    elif change != "another seed":
        Path("out").write_bytes(b"notes" + b"\n" * (change == "no record"))
    before = Path("out").read_bytes()
    status, said, err = run("--seed", 123 + (change == "another seed"))
    assert status == 2 and said == "" and "need --out to be new, or written for these" in err
    assert Path("out").read_bytes() == before


def test_a_killed_run_leaves_whole_lines_and_is_gone_on_with(run, models, tmp_path):
    write(PROMPTS * 12)
    flags = [*map(str, flags_of(models)), "--batch", "2"]
    process = subprocess.Popen([sys.executable, ROOT / "main.py", *flags], cwd=tmp_path,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        if Path("out").exists() and Path("out").read_bytes().count(b"\n") >= 5:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    n_done = Path("out").read_bytes().count(b"\n")
    status, said, _ = run("--batch", 4)
    assert status == 0 and f"{84 - n_done} now, {n_done} before" in said and n_done >= 5
    got = records()
    assert [record["index"] for record in got] == list(range(84))
    assert got[0]["text"] != got[7]["text"]  # one prompt, two seeds


def test_what_is_finished_early_waits_for_its_turn():
    class Done:
        def __init__(self, index):
            self.head = {"index": index}

    order = [3, 5, 4, 2, 7, 6]
    assert [job.head["index"] for job in in_order(map(Done, order), 2)] == sorted(order)


# ---- flags

@pytest.mark.parametrize("flags, words", [
    (["--batch", 0], "need --batch >= 1"), (["--prompt", "b"], "without --prompt, got both"),
    (["--prompt_file", "b"], "without --prompt_file"), (["--json"], "without --json"),
    (["--show"], "without --show"), (["--trace", "a.html"], "without --trace"),
    (["--window"], "without --window"), (["--K", "auto"], "need a number for --K"),
    (["--out", "prompts"], "need two files"), (["--prompts", "none"], "No such file"),
    (["--out", "none/out"], "No such file"), (["--decoder", "tree"], "guesses are a chain"),
    (["--decoder", "medusa"], "got medusa"), (["--decoder", "lookahead"], "got lookahead"),
    (["--decoder", "stopping"], "numbers for --costs"), (["--temperature", -1], "temperature"),
    (["--decoder", "suffix", "--memory", "a"], "without --memory"),
    (["--decoder", "big_little", "--temperature", 1], "need --temperature 0")])
def test_flags_that_do_not_fit_are_refused_in_one_line(run, flags, words):
    write(PROMPTS)
    status, said, err = run(*flags)
    assert status == 2 and said == "" and err.count("\n") == 1 and words in err
    assert not Path("out").exists() and Path("prompts").read_bytes().startswith(b"A bear\n")


@pytest.mark.parametrize("flags, words", [
    (["--prompts", "prompts"], "need --out FILE.jsonl"), (["--out", "out"], "need --prompts FILE"),
    (["--batch", "2"], "need --prompts FILE with --batch")])
def test_flags_that_are_missing_are_named(flags, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(PROMPTS)
    assert main.main(flags) == 2
    assert words in capsys.readouterr().err
