"""The command line, end to end."""

import io
import re
import sys

import pytest

import main
from page.page import stored_run
from run.flags import PROMPT, parse_args
from run.task import load_task, stops
from tests import bundled
from tests.checkpoints import HPARAMS, write_converted
from tests.commands import json_of_run, refusal, run_main


def test_the_main_job_prints_two_identical_texts_and_its_figures():
    status, out, err = run_main("--K", 4, "--temperature", 0, "--n_tokens_to_generate", 40)
    assert (status, err) == (0, "")
    assert out.count(f"Text = {PROMPT}") == 1 and "\nText = identical\n" in out
    for words in ("Plain decoding (target alone)", "speculative decoding", "speed-up", "theory",
                  "target passes", "tokens per pass", "ms per target pass", "guesses accepted",
                  "accepted per round"):
        assert out.count(words) == 1, words
    assert re.search(r"^texts identical +yes$", out, re.MULTILINE)


def test_K_auto_writes_the_targets_text_and_says_what_it_chose():
    got = json_of_run("--K", "auto", "--dtype", "float64", "--n_tokens_to_generate", 40)
    assert got["identical"] and got["measuring_s"] > 0 and len(got["costs"]["passes"]) == 9


def test_show_prints_every_round_and_no_colour_into_a_pipe():
    status, out, _ = run_main("--show", "--n_tokens_to_generate", 12)
    assert status == 0 and "\x1b" not in out
    legend, rounds, *_ = out.split("\n\n")
    assert legend == "Round by round: accepted, [-rejected-], {+replacement or bonus token+}"
    assert "{+" in rounds and out.index(rounds) < out.index("Plain decoding")


def test_trace_keeps_the_run_that_was_reported(tmp_path):
    got = json_of_run("--trace", tmp_path / "run.html", "--decoder", "tree", "--temperature", 0.5,
                      "--n_tokens_to_generate", 30)
    seen = stored_run(tmp_path / "run.html")
    shown = [token["id"] for result in seen["rounds"] for token in result["ids"]]
    assert shown == got["tree"]["ids"]
    assert got["settings"]["seed"] == 123 and "numpy" in got["versions"]


def test_the_help_is_short_and_has_the_flags_of_one_decoder(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    status, text, _ = run_main("--help")
    status_of_tree, of_tree, _ = run_main("--decoder", "tree", "--help")
    assert status == status_of_tree == 0
    assert "--siblings" in of_tree and "--lenience" not in text + of_tree
    n_lines = text.count("\n")
    assert n_lines <= 76 and of_tree.count("\n") < n_lines + 10


def test_a_prompt_from_a_file_from_standard_input_and_from_the_flag_is_the_same(
        tmp_path, monkeypatch):
    prompt = "The old wïzard – \"ho!\" said"
    # some editors write a byte order mark, which utf-8-sig adds
    (tmp_path / "prompt.txt").write_text(f"{prompt}\n", encoding="utf-8-sig")
    standard_input = io.TextIOWrapper(io.BytesIO(prompt.encode()), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", standard_input)
    for source in (["--prompt", prompt], ["--prompt_file", tmp_path / "prompt.txt"],
                   ["--prompt", "-"]):
        assert json_of_run(*source, "--n_tokens_to_generate", 0)["prompt"] == prompt


def test_a_closed_standard_error_loses_nothing_and_a_closed_input_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input, which is closed" in refusal(main.main, "--prompt", "-")
    why = refusal(main.main, "--prompts", "-", "--out", "-")
    assert why == "main.py: --prompts - reads standard input, which is closed\n"
    monkeypatch.setattr(sys, "stderr", None)
    assert main.main(["--n_tokens_to_generate", "2"]) == 0


def test_a_text_ends_at_the_targets_own_ends_of_text_or_at_what_stop_names():
    encoder = bundled.encoder()
    assert stops(None, encoder) == (encoder.end_tokens, ())
    assert stops(["<|endoftext|>", "."], encoder) == ({4095}, (".",))


@pytest.mark.parametrize("draft_n_ctx, target_n_ctx", [(16, 24), (24, 16)])
def test_a_text_ends_at_the_shorter_context_of_the_two_models(
        tmp_path, draft_n_ctx, target_n_ctx):
    write_converted(tmp_path / "tales-small", HPARAMS | {"n_ctx": draft_n_ctx})
    write_converted(tmp_path / "tales-large", HPARAMS | {"n_ctx": target_n_ctx})
    assert load_task(parse_args(["--models_dir", str(tmp_path), "--prompt", "ab"])).n_ctx == 16
