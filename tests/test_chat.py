"""A conversation with a real model, and what ends, counts and shows its text."""

import io
from unittest import mock

import numpy as np
import pytest

import main
from run.describe import text_printer
from run.flags import parse_args
from run.task import load_task
from sampling import with_sampling
from tests.commands import json_of_run, records_of, run_main
from tests.llamas import needs_smollm2


def test_the_articles_question_is_answered_and_a_decoder_gives_the_same_answer():
    needs_smollm2()
    got = json_of_run("--target", "smollm2", "--chat", "What is the capital of Taiwan. And why?",
                      "--decoder", "quantized", "--n_tokens_to_generate", 24)
    plain = got["autoregressive"]
    assert "Taipei" in plain["text"] and got["quantized"]["text"] == plain["text"]
    assert plain["ended_by"] == "stop" and plain["text"].startswith("The capital")
    assert 0 < plain["prompt_s"] < plain["time_s"]


# ---- stop texts

RUN = ("--n_tokens_to_generate", 30, "--temperature", 1)


@pytest.fixture(scope="module")
def new_texts():
    """Return the decoder's tokens, and how their text grows with each of them."""
    got = json_of_run(*RUN)
    encoder = load_task(parse_args([])).encoder
    ids = got["speculative"]["ids"]
    return ids, [encoder.decode(ids[:n]) for n in range(len(ids) + 1)]


@pytest.mark.parametrize("n_letters_left", [0, 2])
def test_a_text_ends_right_after_a_stop_text_of_several_tokens(n_letters_left, new_texts):
    """It may end within the last token; of several stop texts the earliest one counts."""
    ids, texts = new_texts
    n = next(n for n in range(8, 30) if len(texts[n]) - len(texts[n - 1]) > 3)
    text = texts[n][: len(texts[n]) - n_letters_left]
    stop = text[len(texts[n - 3]) :]  # of three tokens
    later = texts[n + 4][len(texts[n + 1]) :]
    got = json_of_run(*RUN, "--stop", later, "--stop", stop)["speculative"]
    assert got["ids"] == ids[:n] and got["ended_by"] == "stop"
    assert got["text"].endswith(text) and got["text"].endswith(stop)


def test_a_stop_text_that_is_a_token_ends_a_text_within_a_longer_token_too():
    task = load_task(parse_args(["--stop", "."]))
    longer = task.encoder.id_of('."')
    assert task.ended([longer]) and task.text_of([longer]).endswith(".")


def test_a_stop_text_is_found_across_tokens_without_text():
    """The name of a special token is not in the text that --stop reads."""
    task = load_task(parse_args(["--stop", "ab"]))
    pieces = {0: b"a", 1: b"", 2: b"b!"}
    encoder = mock.Mock(decode_bytes=lambda ids: b"".join(pieces[token] for token in ids))
    task = task._replace(encoder=encoder, stop=set(), stop_texts=("ab",))
    for n_without in range(4):
        new = [0, *[1] * n_without, 2]
        assert task.ended(new) and task.after_stop(new) == "!"
        assert not task.ended(new[:-1])


# ---- log-probabilities

def test_log_probabilities_are_the_targets_and_the_same_in_a_record(tmp_path):
    flags = (*RUN, "--top_k", 20)
    got = json_of_run(*flags, "--logprobs")
    task = load_task(parse_args(["--temperature", "1", "--top_k", "20"]))
    target = with_sampling(task.models.target, temperature=1, top_k=20)
    for run in (got["autoregressive"], got["speculative"]):
        x = task.x + run["ids"]
        n = len(run["ids"])
        rows = target(x[:-1], n)
        assert run["logprobs"] == pytest.approx(
            np.log(rows[np.arange(n), run["ids"]]).tolist(), abs=1e-4)  # float32 rounds
    assert "logprobs" not in json_of_run(*flags)["speculative"]
    line = {"prompt": "One day a merchant who", "seed": 123}
    status, [record], _ = records_of(tmp_path, [line], *flags, "--logprobs")
    assert status == 0 and record["ids"] == got["speculative"]["ids"]
    assert record["logprobs"] == pytest.approx(got["speculative"]["logprobs"], abs=1e-4)


# ---- on a terminal

class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_half_of_a_character_at_the_end_of_a_text_is_shown_on_a_terminal(capsys):
    task = load_task(parse_args(["--prompt", "A"]))
    half = task.encoder.encode("é")[:1]
    assert task.encoder.decode(half) == "\ufffd"
    show = text_printer(task, "Title")
    show(half)
    assert capsys.readouterr().out.endswith("Text = A")
    show(half, is_whole=True)
    assert capsys.readouterr().out == "\ufffd"


def test_on_a_terminal_both_texts_appear_as_they_are_written():
    """A text is printed in as many parts as it has rounds with whole characters."""
    flags = ["--n_tokens_to_generate", "12", "--temperature", "1"]
    _, out, _ = run_main(*flags)
    with mock.patch("sys.stdout", Terminal()) as terminal:
        parts = []
        write = terminal.write
        terminal.write = lambda text: parts.append(text) or write(text)
        assert main.main(flags) == 0
    shown = terminal.getvalue()
    for line in out.split("\n"):
        if line.startswith("Text = "):
            assert line in shown
    assert shown.count("Text = ") == 2 and "speed-up" in shown
    rounds = [part for part in parts if part and part in out and len(part) < 20]
    assert len(rounds) > 12  # plain decoding's 12 tokens, and the decoder's rounds
