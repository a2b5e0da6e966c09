"""The command line, end to end."""

import contextlib
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import main
from gpt2 import GPT2
from sampling import with_sampling
from speculative import autoregressive_sampling, speculative_sampling
from tests import bundled
from tests.checkpoints import write_converted, write_model
from tests.test_trace import stored
from tools.export_hf import export
from utils import MODELS_DIR, load_encoder_hparams_and_params
from variants import DECODERS

ROOT = Path(main.__file__).parent
OPENINGS = ["Once upon a time", "\"Oh dear!\" cried the little girl", "One day the fox met",
            "She opened the door and", "At night"]


def command(*flags, stdin=None):
    """`python main.py` with these flags, in a process of its own, output in pipes."""
    return subprocess.run([sys.executable, "main.py", *map(str, flags)], cwd=ROOT, input=stdin,
                          capture_output=True, timeout=120)


def said(*flags):
    """Status, output and errors of a run, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main.main([*map(str, flags)])
    return status, out.getvalue(), err.getvalue()


def figures(*flags):
    """The JSON object of a run, in this process."""
    status, out, err = said("--json", *flags)
    assert status == 0 and err == "", err
    return json.loads(out)


# ---- the promise: greedy texts are the same

@pytest.fixture(scope="module")
def pair():
    """Encoder, draft and target of the bundled pair, greedy, in float64."""
    return bundled.encoder(), *(with_sampling(GPT2(*bundled.weights(size)), temperature=0)
                                for size in ("tales-small", "tales-large"))


@pytest.mark.parametrize("opening", OPENINGS)
def test_greedy_speculation_writes_the_targets_own_text(pair, opening):
    encoder, draft, target = pair
    x, N, rng = encoder.encode(opening), 24, np.random.default_rng(0)
    plain = autoregressive_sampling(x, target, N, rng)
    for K in range(1, 9):
        assert speculative_sampling(x, draft, target, N, K, rng) == plain, K


def test_the_main_job_prints_two_identical_texts_and_its_figures():
    done = command("--K", 4, "--temperature", 0, "--n_tokens_to_generate", 40)
    out = done.stdout.decode()
    assert done.returncode == 0 and done.stderr == b""
    assert out.count(f"Text = {main.PROMPT}") == 1 and "\nText = identical\n" in out
    for words in ("Plain decoding (target alone)", "Speculative decoding", "speed-up", "theory",
                  "target passes", "tokens per pass", "ms per target pass", "guesses accepted"):
        assert out.count(words) == 1, words
    assert re.search(r"^texts identical +yes$", out, re.MULTILINE)


def test_json_is_one_object_and_its_counts_agree():
    got = figures("--K", 3, "--n_tokens_to_generate", 50, "--temperature", 0.8, "--top_k", 40)
    fast = got["speculative"]
    assert fast["tokens"] == len(fast["ids"]) <= 50
    assert 0 <= got["accepted"] <= got["tested"]
    assert got["acceptance"] == got["accepted"] / got["tested"]
    assert fast["tokens"] / got["tokens_per_target_pass"] == pytest.approx(round(
        fast["tokens"] / got["tokens_per_target_pass"]))  # whole passes
    assert got["speedup_measured"] == pytest.approx(
        got["autoregressive"]["time_s"] / fast["time_s"])
    assert got["settings"]["seed"] == 123 and "numpy" in got["versions"]


def test_the_same_seed_gives_the_same_text_in_another_process():
    flags = ("--temperature", 1, "--seed", 7, "--n_tokens_to_generate", 20)
    here, there = figures(*flags), json.loads(command("--json", *flags).stdout)
    assert here["speculative"]["ids"] == there["speculative"]["ids"]
    assert here["speculative"]["ids"] != figures(*flags, "--seed", 8)["speculative"]["ids"]


@pytest.mark.parametrize("decoder", [name for name in DECODERS if "draft" in DECODERS[name].needs
                                     or not DECODERS[name].needs])
def test_every_decoder_runs_and_the_exact_ones_write_the_targets_text(decoder):
    got = figures("--decoder", decoder, "--dtype", "float64", "--n_tokens_to_generate", 20)
    assert got[decoder]["tokens"] == 20 and got["rows_per_target_pass"] >= 1
    assert got["identical"] or not got["exact"]


def test_K_auto_writes_the_targets_text_and_says_what_it_chose():
    got = figures("--K", "auto", "--dtype", "float64", "--n_tokens_to_generate", 40)
    assert got["identical"] and got["measuring_s"] > 0 and len(got["costs"]["passes"]) == 9


def test_show_prints_every_round_and_no_colour_into_a_pipe():
    status, out, _ = said("--show", "--n_tokens_to_generate", 12)
    assert status == 0 and "{+" in out and "\x1b" not in out
    assert out.index("{+") < out.index("Plain decoding")


@pytest.mark.parametrize("decoder", ["speculative", "tree", "lookup"])
def test_trace_keeps_the_run_that_was_reported(tmp_path, decoder):
    got = figures("--trace", tmp_path / "run.html", "--decoder", decoder, "--temperature", 0.5)
    ids = [token["id"] for round in stored(tmp_path / "run.html")["rounds"]
           for token in round["ids"]]
    assert ids == got[decoder]["ids"]


@pytest.mark.parametrize("speedup", [0.5, 2.0])
def test_what_is_advised_next_can_be_run(tmp_path, monkeypatch, speedup):
    """After every kind of run, a remembered text among them, whose second run asks no draft."""
    measured = main.compare
    monkeypatch.setattr(main, "compare", lambda *args, **options: (
        measured(*args, **options) | {"speedup_measured": speedup}))
    memory = ("--decoder", "suffix", "--memory", tmp_path / "texts", "--cap", 4)
    for flags in ((), memory, memory, ("--decoder", "big_little"), ("--decoder", "blockwise")):
        status, out, _ = said(*flags, "--n_tokens_to_generate", 20)
        (advice,) = re.findall(r"^Try: (.*?)(?:,| \(|$)", out, re.MULTILINE)
        advice = advice.replace("run.html", str(tmp_path / "run.html")).split()
        advice = advice if advice[0].startswith("--") else []
        assert status == 0 and said(*flags, *advice, "--n_tokens_to_generate", 20)[0] == 0


def test_the_help_is_short_and_leads_to_a_decoders_flags(capsys):
    lines = []
    for flags, *needed in ((["--help"], "--decoder NAME --help shows the flags of that decoder",
                            "keep writing when the context is full", "exact for the target with",
                            "without the newline at its end"),
                           (["--decoder", "tree", "--help"], "--siblings")):
        with pytest.raises(SystemExit) as exit:
            main.main(flags)
        said = capsys.readouterr().out
        assert exit.value.code == 0 and "--lenience" not in said
        assert all(words in " ".join(said.split()) for words in needed)
        lines.append(len(said.splitlines()))
    assert lines[0] <= 70 and lines[1] < lines[0] + 10


def test_a_draft_equal_to_the_target_is_always_accepted():
    got = figures("--draft_model_size", "tales-large", "--temperature", 1, "--dtype", "float64",
                  "--n_tokens_to_generate", 30, "--stop", "!")
    assert got["acceptance"] == 1


def test_a_prompt_from_a_file_from_standard_input_and_from_the_flag_is_the_same(tmp_path):
    prompt = "The old wïzard – \"ho!\" said"
    (tmp_path / "prompt.txt").write_text(prompt, encoding="utf-8")
    few = ("--n_tokens_to_generate", 5)
    piped = command("--json", "--prompt", "-", *few, stdin=prompt.encode())
    got = [figures("--prompt_file", tmp_path / "prompt.txt", *few), json.loads(piped.stdout),
           figures("--prompt", prompt, *few)]
    assert got[0]["prompt"] == prompt
    assert got[0]["autoregressive"]["ids"] == got[1]["autoregressive"]["ids"]
    assert got[0]["autoregressive"]["ids"] == got[2]["autoregressive"]["ids"]


def test_a_stop_token_ends_both_texts():
    got = figures("--prompt", "Once upon a time", "--stop", ".", "--n_tokens_to_generate", 100)
    for run in (got["autoregressive"], got["speculative"]):
        assert run["text"].endswith(".") and run["tokens"] < 100 and run["text"].count(".") == 1


def test_a_text_ends_at_the_targets_own_end_of_text_or_at_any_named_token(tmp_path):
    encoder, *rest = load_encoder_hparams_and_params("tales-large", MODELS_DIR)
    export(tmp_path / "x", encoder, *rest)
    for path in tmp_path.glob("x/*config.json"):
        sizes = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps(sizes | {"eos_token_id": encoder.id_of(".")}), encoding="utf-8")
    flags = ("--prompt", "Once upon a time", "--target_model_size", tmp_path / "x")
    ended = [figures(*flags, *stop)["speculative"]
             for stop in ((), ("--stop", "<|endoftext|>", "--stop", "."),
                          ("--stop", "<|endoftext|>"))]
    assert ended[0]["text"] == ended[1]["text"] and ended[0]["ended_by"] == "stop"
    assert ended[0]["text"].endswith(".") and ended[2]["tokens"] > ended[0]["tokens"]


def test_greedy_texts_in_windows_are_the_same():
    got = figures("--window", "--n_tokens_to_generate", 50, "--dtype", "float64", "--K", 6,
                  "--prompt", "The king had a daughter, and she had a cat. " * 40)
    assert got["identical"] and got["speculative"]["tokens"] == 50 and got["window_moved"]


def test_no_tokens_wanted_is_no_error():
    got = figures("--n_tokens_to_generate", 0)
    assert got["speculative"]["ids"] == [] and got["acceptance"] is None


def test_the_heads_of_a_target_named_by_its_path_are_in_its_folder(tmp_path, monkeypatch):
    export(tmp_path / "exported" / "x", *load_encoder_hparams_and_params("tales-large", MODELS_DIR))
    shutil.copy(MODELS_DIR / "tales-large" / "heads.safetensors", tmp_path / "exported" / "x")
    monkeypatch.chdir(tmp_path)
    for path in ("exported/x", tmp_path / "exported" / "x"):
        assert main.main(["--decoder", "medusa", "--target_model_size", str(path),
                          "--n_tokens_to_generate", "5"]) == 0


def test_another_backend_is_reached_or_refused():
    assert said("--backend", "cupy")[0] in (0, 2)  # 0 where there is a GPU


# ---- what bad input gets: one line, status 2, nothing left behind

BAD = {
    "K 0": (["--K", 0], "--K: need a whole number >= 1, got '0'"),
    "negative temperature": (["--temperature", -1], "temperature"),
    "temperature nan": (["--temperature", "nan"], "temperature"),
    "top_p 0": (["--top_p", 0], "top_p"),
    "top_p above 1": (["--top_p", 1.1], "top_p"),
    "negative top_k": (["--top_k", -1], "top_k"),
    "penalty 0": (["--repetition_penalty", 0], "repetition_penalty"),
    "negative N": (["--n_tokens_to_generate", -1], "n_tokens_to_generate"),
    "negative seed": (["--seed", -1], "--seed"),
    "unknown size": (["--target_model_size", "125M"], "125M"),
    "unknown draft": (["--draft_model_size", "nope"], "There: tales-large, tales-small."),
    "no models there": (["--models_dir", ROOT / "docs", "--draft_model_size", "nope",
                         "--target_model_size", "nope"], "There: none."),
    "a path as size": (["--draft_model_size", "../docs"], "is not a Hugging Face folder"),
    "empty prompt": (["--prompt", ""], "at least one token"),
    "long prompt": (["--prompt", "word " * 600], "n_ctx"),
    "missing file": (["--prompt_file", "no-such-file"], "no-such-file"),
    "stop of two tokens": (["--stop", "the king"], "which is 2: 'the', ' king'"),
    "not a number": (["--K", "four"], "a whole number >= 1"),
    "widths of nothing": (["--decoder", "tree", "--widths", "2,0"], "a whole number >= 1"),
    "a tree with a hole": (["--decoder", "medusa", "--sparse", "0 1.0"], "start of each path"),
    "ranks that are words": (["--decoder", "medusa", "--sparse", "best"], "such as '0 1 0.0 0.1'"),
    "unknown flag": (["--gamma", 4], "--gamma; --help lists all"),
    "flag of another decoder": (["--decoder", "lookup", "--lenience", 0.5], "--lenience"),
    "K auto elsewhere": (["--decoder", "block", "--K", "auto"], "--K"),
    "no heads for this target":
        (["--decoder", "medusa", "--target_model_size", "tales-small"], "heads"),
    "a greedy method at temperature 1":
        (["--decoder", "big_little", "--temperature", 1], "--temperature 0"),
    "unknown decoder": (["--decoder", "lookahaed"], "such as lookahead, got 'lookahaed'"),
    "no number": (["--decoder", "cascade", "--alpha", "a"], "invalid float value: 'a'"),
    "two prompts": (["--prompt", "X", "--prompt_file", "Y"], "--prompt or --prompt_file, got both"),
    "a draft that is not asked":
        (["--decoder", "lookup", "--draft_model_size", "124M"], "need no --draft_model_size"),
    "a threshold of another test": (["--decoder", "medusa", "--epsilon", "0.5"], "typical"),
    "costs for nothing": (["--costs", "0.1,1,2"], "need --K auto"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_line_and_status_2(case, capsys):
    flags, words = BAD[case]
    try:
        status = main.main([str(flag) for flag in flags])
    except SystemExit as exit:  # argparse
        status = exit.code
    out, err = capsys.readouterr()
    assert status == 2 and out == "" and err.count("\n") == 1 and words in err


def test_bad_input_has_no_traceback_in_a_process_of_its_own():
    done = command("--K", 0)
    assert (done.returncode, done.stdout) == (2, b"") and done.stderr.count(b"\n") == 1


def test_bytes_that_are_no_utf8_are_reported_with_their_place(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"once \xff upon")))
    status, _, err = said("--prompt", "-")
    assert status == 2 and "byte 0xff at position 5" in err


def test_models_of_different_vocabularies_are_refused(tmp_path, capsys):
    hparams = dict(n_vocab=257, n_ctx=128, n_embd=12, n_head=3, n_layer=2)
    write_converted(tmp_path / "other", hparams)
    (tmp_path / "tales-large").symlink_to(MODELS_DIR / "tales-large")
    assert main.main(["--models_dir", str(tmp_path), "--draft_model_size", "other"]) == 2
    assert "different vocabularies" in capsys.readouterr().err


def test_a_released_size_runs_and_a_broken_one_is_one_line(tmp_path):
    """Through TensorFlow's checkpoint; TensorFlow writes notes of its own to stderr."""
    pytest.importorskip("tensorflow")
    write_model(tmp_path / "124M")
    flags = ("--models_dir", tmp_path, "--draft_model_size", "124M", "--target_model_size", "124M",
             "--prompt", "hello", "--n_tokens_to_generate", 5)
    assert figures(*flags)["identical"]
    (tmp_path / "124M" / "params.safetensors").unlink()
    (tmp_path / "124M" / "model.ckpt.index").write_bytes(b"")
    done = command(*flags)
    assert done.returncode == 2 and b"Traceback" not in done.stderr
    assert b"checkpoint" in done.stderr.splitlines()[-1]


def test_no_network_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("GPT2_BASE_URL", "http://127.0.0.1:9")
    status, _, err = said("--target_model_size", "124M", "--models_dir", tmp_path / "new")
    assert status == 2 and err.count("\n") == 1
    assert not [path for path in (tmp_path / "new" / "124M").iterdir() if path.name != ".lock"]
