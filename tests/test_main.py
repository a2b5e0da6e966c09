"""The command line, end to end."""

import contextlib
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import main
from lib.checkpoints.huggingface import write_folder
from tests.test_trace import stored_run
from utils import MODELS_DIR, load_encoder_hparams_and_params

ROOT = Path(main.__file__).parent


def run_main(*flags):
    """Run main.py in this process; return its status, output and errors."""
    out = io.StringIO()
    err = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main.main([*map(str, flags)])
    return status, out.getvalue(), err.getvalue()


def json_of_run(*flags):
    """Run main.py in this process; return the JSON object that it prints."""
    status, out, err = run_main("--json", *flags)
    assert status == 0 and err == "", err
    return json.loads(out)


def test_the_main_job_prints_two_identical_texts_and_its_figures():
    words = "main.py --K 4 --temperature 0 --n_tokens_to_generate 40".split()
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, timeout=120)
    out = done.stdout.decode()
    assert done.returncode == 0 and done.stderr == b""
    assert out.count(f"Text = {main.PROMPT}") == 1 and "\nText = identical\n" in out
    for words in ("Plain decoding (target alone)", "Speculative decoding", "speed-up", "theory",
                  "target passes", "tokens per pass", "ms per target pass", "guesses accepted"):
        assert out.count(words) == 1, words
    assert re.search(r"^texts identical +yes$", out, re.MULTILINE)


def test_K_auto_writes_the_targets_text_and_says_what_it_chose():
    got = json_of_run("--K", "auto", "--dtype", "float64", "--n_tokens_to_generate", 40)
    assert got["identical"] and got["measuring_s"] > 0 and len(got["costs"]["passes"]) == 9


def test_show_prints_every_round_and_no_colour_into_a_pipe():
    status, out, _ = run_main("--show", "--n_tokens_to_generate", 12)
    assert status == 0 and "{+" in out and "\x1b" not in out
    assert out.index("{+") < out.index("Plain decoding")


def test_trace_keeps_the_run_that_was_reported(tmp_path):
    got = json_of_run("--trace", tmp_path / "run.html", "--decoder", "tree", "--temperature", 0.5)
    seen = stored_run(tmp_path / "run.html")
    shown = [token["id"] for result in seen["rounds"] for token in result["ids"]]
    assert shown == got["tree"]["ids"]
    assert got["settings"]["seed"] == 123 and "numpy" in got["versions"]


def test_the_help_is_short_and_leads_to_a_decoders_flags(capsys, monkeypatch):
    lines = []
    monkeypatch.setenv("COLUMNS", "100")
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


def test_a_prompt_from_a_file_from_standard_input_and_from_the_flag_is_the_same(tmp_path,
                                                                                monkeypatch):
    prompt = "The old wïzard – \"ho!\" said"
    (tmp_path / "prompt.txt").write_text(f"{prompt}\n", encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(prompt.encode())))
    for source in (["--prompt", prompt], ["--prompt_file", tmp_path / "prompt.txt"],
                   ["--prompt", "-"]):
        assert json_of_run(*source, "--n_tokens_to_generate", 0)["prompt"] == prompt


def test_a_text_ends_at_the_targets_own_end_of_text_or_at_any_named_token(tmp_path):
    encoder, *rest = load_encoder_hparams_and_params("tales-large", MODELS_DIR)
    write_folder(tmp_path / "x", encoder, *rest)
    for path in tmp_path.glob("x/*config.json"):
        sizes = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps(sizes | {"eos_token_id": encoder.id_of(".")}), encoding="utf-8")
    flags = ("--prompt", "Once upon a time", "--target_model_size", tmp_path / "x")
    ended = [json_of_run(*flags, *stop)["speculative"]
             for stop in ((), ("--stop", "<|endoftext|>", "--stop", "."),
                          ("--stop", "<|endoftext|>"))]
    assert ended[0]["text"] == ended[1]["text"] and ended[0]["ended_by"] == "stop"
    assert ended[0]["text"].endswith(".") and ended[2]["tokens"] > ended[0]["tokens"]


def test_the_heads_of_a_target_named_by_its_path_are_in_its_folder(tmp_path, monkeypatch):
    folder = tmp_path / "exported" / "x"
    write_folder(folder, *load_encoder_hparams_and_params("tales-large", MODELS_DIR))
    shutil.copy(MODELS_DIR / "tales-large" / "heads.safetensors", folder)
    monkeypatch.chdir(tmp_path)
    for path in ("exported/x", tmp_path / "exported" / "x"):
        assert main.main(["--decoder", "medusa", "--target_model_size", str(path),
                          "--n_tokens_to_generate", "5"]) == 0


# ---- what bad input gets: one line, status 2, nothing left behind

BAD = {
    "K 0": (["--K", 0], "--K: need auto or a whole number >= 1, got '0'"),
    "negative temperature": (["--temperature", -1], "temperature"),
    "top_p 0": (["--top_p", 0], "top_p"),
    "penalty 0": (["--repetition_penalty", 0], "repetition_penalty"),
    "negative N": (["--n_tokens_to_generate", -1], "n_tokens_to_generate"),
    "negative seed": (["--seed", -1], "--seed"),
    "unknown size": (["--target_model_size", "125M"], "125M"),
    "no models there": (["--models_dir", ROOT / "docs", "--draft_model_size", "nope",
                         "--target_model_size", "nope"], "There: none."),
    "a path as size": (["--draft_model_size", "../docs"], "is not a Hugging Face folder"),
    "empty prompt": (["--prompt", ""], "at least one token"),
    "long prompt": (["--prompt", "word " * 600], "(n_ctx = 512): shorten it or add --window"),
    "missing file": (["--prompt_file", "no-such-file"],
                     "cannot read --prompt_file no-such-file: No such file"),
    "stop of two tokens": (["--stop", "the king"], "which is 2: 'the', ' king'"),
    "not a number": (["--K", "four"], "a whole number >= 1"),
    "unknown flag": (["--gamma", 4], "--gamma; see --help"),
    "flag of another decoder":
        (["--decoder", "lookup", "--lenience", 0.5],
         "--lenience does not apply to --decoder lookup (only to lenient)"),
    "no heads for this target":
        (["--decoder", "medusa", "--target_model_size", "tales-small"], "heads"),
    "unknown decoder": (["--decoder", "lookahaed"],
                        "'lookahaed' is not a choice: did you mean lookahead?"),
    "choice like no other": (["--dtype", "x"], "'x' is not a choice: choose from float32, float64"),
    "no number": (["--decoder", "cascade", "--alpha", "a"], "--alpha: need a number, got 'a'"),
    "more children than fit in an integer":
        (["--decoder", "medusa", "--widths", "9" * 30], "at most 4096 guesses in all"),
    "a tree of too many guesses": (["--decoder", "tree", "--widths", 5000],
                                   "need --widths of at most 4096 guesses in all, got 5000"),
    "a draft that is not asked": (["--decoder", "lookup", "--draft_model_size", "tales-small"],
                                  "--draft_model_size does not apply to --decoder lookup"),
    "guesses of a draft that is not asked":
        (["--decoder", "suffix", "--sure", 0, "--K", 4], "--K does not apply with --sure 0"),
    "costs for nothing": (["--costs", "0.1,1,2"], "--costs does not apply to --decoder spec"),
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


def test_no_network_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("GPT2_BASE_URL", "http://127.0.0.1:9")
    status, _, err = run_main("--target_model_size", "124M", "--models_dir", tmp_path / "new")
    assert status == 2 and err.count("\n") == 1
    assert not [*(tmp_path / "new" / "124M").iterdir()]
