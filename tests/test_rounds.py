"""What is shown of a run is what happened in it, and showing it changes nothing."""

import errno
import json
import os
import re
from functools import cache
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

from encoder import Encoder, byte_characters
from lib.terminal import check_page_path
from main import decode, decoder_step
from measure.passes import Timed
from page import listing, page
from page.page import stored_run
from run import rounds as watch
from run.flags import parse_args, settings_for_json
from run.task import load_task, models_of_decoder, with_costs
from sampling import residual, sample
from speculative import Round, complete, draft_and_verify, generate, verify
from tests.commands import run_main
from tests.distributions import Scripted
from tests.pages import file_text
from variants import DECODERS
from wrappers.forced import ForcedRound

ENCODER = Encoder({char: token for token, char in enumerate(byte_characters().values())}, [])
PROMPT = ENCODER.encode("Hi")
HOSTILE = "</script><script>alert(1)</script><!--<b>&amp;\u2028\x00\x1b[31m\u202e\"'"


def byte_model(seed):
    """Return a model of bytes with a row for each last id; two of them agree at times."""
    rows = np.random.default_rng(seed).random((256, 256)) ** 30
    rows += np.random.default_rng(0).random((256, 256)) ** 60
    rows /= rows.sum(axis=1, keepdims=True)
    return lambda ids, n_last: rows[np.array(ids[-n_last:])]


TOYS = byte_model(1), byte_model(2)


def watched(target, rng, test=verify, N=60):
    """Return run/rounds.py's generator and function for a toy that alone is timed."""
    task = SimpleNamespace(encoder=ENCODER, n_new=N, settings={},
                           entry=DECODERS["speculative"]._replace(test=test),
                           models=SimpleNamespace(is_greedy=False))
    return watch.watched(task, SimpleNamespace(draft=None, target=target), rng)


def watched_run(N=60, seed=0, K=4, models=TOYS, x=PROMPT, stop=()):
    """Return the rounds of a run, what was seen of them, and the seconds of their passes."""
    draft = models[0]
    target = Timed(models[1])
    rng, see = watched(target, np.random.default_rng(seed), N=N)
    step = draft_and_verify(draft, target, K)
    pairs = [(result, see(result, 0.0)) for result in generate(x, step, N, rng, stop)]
    return [result for result, _ in pairs], [seen for _, seen in pairs], target.seconds


def example_run(N=60, K=4, prompt="Hi"):
    """Return a run as the page gets it, and its rounds."""
    rounds, seen, _ = watched_run(N, K=K)
    settings = {"decoder": "speculative", "K": K, "note": HOSTILE}
    return page.run_as_data(prompt, seen, settings) | {"seconds": 12.0}, rounds


@cache
def bundled_task():
    """Return the Task of a default run, which has loaded the bundled pair."""
    return load_task(parse_args([]))


def decoded_page_run(name, temperature="1"):
    """Return a run of the bundled pair as its page holds it."""
    args = parse_args(["--decoder", name, "--temperature", temperature,
                       "--n_tokens_to_generate", "20"])
    models = bundled_task().models._replace(sampling=args.sampling)
    draft, target = models_of_decoder(args.entry, args.settings, *models[:2])
    task, _ = with_costs(bundled_task()._replace(
        models=models._replace(draft=draft, target=target), entry=args.entry,
        settings=args.settings, N=20))
    seen = []
    decode(task, decoder_step, seen.append)
    run = page.run_as_data("Hi", seen, settings_for_json(args))
    return json.loads(json.dumps(run, allow_nan=False))


def joined_text(tokens):
    """Return the text of tokens as the page holds them."""
    return "".join(token["text"] for token in tokens)


# ---- the data are the run's

@pytest.mark.parametrize("seed", range(3))
def test_every_decision_can_be_made_again_from_what_is_shown(seed):
    rounds, all_seen, seconds = watched_run(seed=seed)
    for result, seen, target_seconds in zip(rounds, all_seen, seconds, strict=True):
        assert seen["seconds"] == {"target": target_seconds}
        n = len(result.ids) - 1  # accepted guesses
        for t, guess in enumerate(seen["guesses"]):
            assert guess["threshold"] == min(1, guess["p_target"] / guess["p_draft"])
            if t <= n:
                assert guess["accepted"] == (t < n) == (guess["u_accept"] < guess["threshold"])
            else:  # not tested
                assert guess.get("accepted") is None and "u_accept" not in guess
        if n == len(result.guesses):
            origin, row = "bonus", result.p_target[n]
        else:
            origin, row = "replacement", residual(result.p_target[n], result.p_draft[n])
        assert sample(row, Scripted([seen["u_last"]])) == result.ids[-1]
        assert [token["id"] for token in seen["ids"]] == result.ids
        assert [token["origin"] for token in seen["ids"]] == ["accepted"] * n + [origin]
    # a run that is not watched writes the same text
    text = complete(PROMPT, draft_and_verify(*TOYS, 4), 60, np.random.default_rng(seed))
    assert text == PROMPT + [token for result in rounds for token in result.ids]


def test_a_character_of_several_ids_gets_its_text_with_its_last_id():
    text = "déjà – 🐉!"
    ids = ENCODER.encode(text)

    def recite(x, n_last):
        return np.eye(256)[[*ids, 0, 0][len(x) - n_last + 1 : len(x) + 1]]

    _, rounds, _ = watched_run(N=len(ids) - 1, K=3, models=(recite, recite), x=ids[:1])
    assert "".join(joined_text(seen["ids"]) for seen in rounds) == text[1:]


def test_a_special_token_ends_an_unfinished_character():
    data = {1: b"\xc3", 2: b"", 3: b"\xa9"}
    read = watch.text_reader(SimpleNamespace(decode_bytes=lambda ids: data[ids[0]],
                                             name_of=lambda token: "<end>"))
    assert [read(token) for token in (1, 2, 1, 3)] == ["", "\ufffd<end>", "", "\u00e9"]


def test_a_stop_id_among_accepted_guesses_leaves_no_last_id():
    letters = lambda ids, n_last: np.eye(256)[np.array(ids[-n_last:]) + 1]
    _, (seen,), _ = watched_run(models=(letters, letters), x=ENCODER.encode("A"),
                                stop=ENCODER.encode("C"))
    assert joined_text(seen["ids"]) == "BC"
    assert all("u_accept" in guess for guess in seen["guesses"])
    assert [token["origin"] for token in seen["ids"]] == ["accepted", "accepted"]
    # the guesses after the stop id are not in the text, so they are not called accepted
    assert [guess.get("accepted") for guess in seen["guesses"]] == [True, True, None, None]


def test_a_row_holds_the_likeliest_tokens_of_both_models_and_the_sum_of_the_others():
    for result, seen, _ in zip(*watched_run(seed=2)):
        assert len(seen["rows"]) == len(result.guesses) + 1
        p_draft = [*result.p_draft, np.zeros(256)]  # no draft for the bonus token
        for t, (row, target, draft) in enumerate(zip(seen["rows"], result.p_target, p_draft)):
            ids = [token for token, *_ in row["top"]]
            assert {target.argmax(), *result.ids[t : t + 1], *result.guesses[t : t + 1]} <= {*ids}
            assert draft.argmax() in ids or not draft.any()
            assert_entries_are_of_rows(row["top"], draft, target)
            others = [token not in ids for token in range(256)]
            assert row["others"] == pytest.approx(
                [each[others].sum() for each in (draft, target, np.minimum(draft, target))])


def assert_entries_are_of_rows(entries, draft, target):
    """Assert that each entry has its probabilities, and the uniforms that draw it at last."""
    for token, text, p_draft, p_target, start, end in entries:
        assert text == ENCODER.decode([token])
        assert (p_draft, p_target) == (draft[token], target[token])
        if start < end:
            for u in (start, (start + end) / 2, np.nextafter(end, 0)):
                assert sample(residual(target, draft), Scripted([u])) == token


# ---- every decoder

@pytest.mark.parametrize("name", DECODERS)
def test_of_every_decoder_what_is_shown_is_known(name):
    entry = DECODERS[name]
    run = decoded_page_run(name, "0" if entry.greedy else "1")
    is_tree = any("parent" in guess for result in run["rounds"] for guess in result["guesses"])
    guess, test = entry.tree if is_tree and entry.tree else (entry.guess, entry.test)
    code = run["tree_code" if is_tree else "code"]
    for function, place in ((guess, code["guess"]), (test, code["test"])):
        assert f"def {function.__name__}(" in place["text"]
        assert file_text(place["file"]).split("\n")[place["line"] - 1] == place["text"]
    assert run["exact"] == entry.exact(run["settings"])
    assert ("draft_model_size" in run["settings"]) == ("draft" in entry.needs(run["settings"]))
    for result in run["rounds"]:
        *accepted, _ = (token["id"] for token in result["ids"])
        if is_tree:
            assert [node["id"] for node in result["guesses"] if node.get("led_on")] == accepted
        assert ("rows" in result) == (not is_tree)
        assert ("u_last" in result) == (test is verify)
        for guess in result["guesses"]:
            assert ("threshold" in guess) == (test is verify)
            if "u_accept" in guess and "accepted" in guess:
                assert guess["accepted"] == (guess["u_accept"] < guess["threshold"])


# ---- a round as a line

def test_a_line_has_the_text_and_the_rejected_guess():
    for seen in watched_run()[1]:
        line = watch.round_as_line(seen)
        rejected = [guess["text"] for guess in seen["guesses"] if guess.get("accepted") is False]
        struck = "".join(f"[-{watch.printable(text)}-]" for text in rejected)
        text = line.replace(struck, "", 1).replace("{+", "").replace("+}", "")
        assert struck in line and text == watch.printable(joined_text(seen["ids"]))
        plain = re.sub(r"\[-|-\]|\{\+|\+\}", "", line)
        assert re.sub(r"\x1b\[[\d;]*m", "", watch.round_as_line(seen, watch.ANSI)) == plain


def test_no_text_breaks_a_line_or_commands_a_terminal():
    hostile = {"ids": [{"text": HOSTILE, "origin": "bonus"}], "guesses": []}
    for seen in [hostile, *watched_run(N=200)[1]]:  # a toy that writes every byte
        assert watch.round_as_line(seen).isprintable()
    assert "\x1b[31m" not in watch.round_as_line(hostile, watch.ANSI)


@pytest.mark.parametrize("tty, environ, wanted", [
    (True, {}, True), (False, {}, False), (True, {"NO_COLOR": "1"}, False),
    (True, {"NO_COLOR": ""}, True), (True, {"TERM": "dumb"}, False)])
def test_colour_is_for_terminals_whose_user_did_not_refuse_it(tty, environ, wanted):
    assert watch.wants_colour(SimpleNamespace(isatty=lambda: tty), environ) == wanted


# ---- a run as a file

def test_the_page_holds_the_run_fetches_nothing_and_none_of_its_texts_is_markup(tmp_path):
    run, _ = example_run(prompt=HOSTILE)
    template = page.template()
    page.save_page(tmp_path / "run.html", run)
    assert stored_run(tmp_path / "run.html") == run
    text = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert len(text) < 1_000_000 and "default-src 'none'" in text
    for sign in ("<", "</script", "<!--", "\u2028", "\x1b", "\x00"):
        assert text.count(sign) == template.count(sign)
    for sign in ("http://", "https://", "src=", "url(", "@import", "import(", "fetch(", "<link ",
                 "innerHTML", "document.write"):
        assert sign not in template.replace('<link rel="icon" href="data:,">', "")
    # docs/run.html is published without the files beside it.
    assert all(re.match("#|data:", link) for link in re.findall('href="([^"]*)"', template))


@pytest.mark.parametrize("name, words", [
    ("run.txt", "choose a name that ends in .html"), ("folder.html", "cannot write --trace ")])
def test_a_page_that_cannot_be_written_is_refused(tmp_path, name, words):
    (tmp_path / "folder.html").mkdir()
    with pytest.raises((ValueError, OSError), match=words):
        check_page_path(tmp_path / name)


def test_on_a_full_disk_the_report_is_printed_and_the_old_page_stays(tmp_path, monkeypatch):
    full = mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    flags = ("--n_tokens_to_generate", 3, "--trace", tmp_path / "run.html")
    status, out, _ = run_main(*flags)
    assert status == 0 and out.endswith(f"Wrote {tmp_path / 'run.html'}\n")
    before = (tmp_path / "run.html").read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    status, out, err = run_main(*flags)
    assert status == 2 and "target passes" in out and err.count("\n") == 1 and "run.html" in err
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("run.html", before)]


def test_the_code_is_not_listed_if_a_line_of_it_was_added(monkeypatch):
    entry = DECODERS["speculative"]
    names = [listed["name"] for listed in page.listing_of(entry)]
    assert names == ["guess", "verify", "speculative_step"]
    monkeypatch.setitem(listing.PLACES, "verify", "one line")
    assert page.listing_of(entry) == []


# ---- numbers and rows, by hand

@pytest.mark.parametrize("n_drawn", [0, 1, 2, 3])
def test_a_guess_has_the_number_that_drew_it_if_each_guess_drew_one(n_drawn):
    """Two guesses. If they drew 1 or 3 numbers, nobody knows which number is whose."""
    target = Timed(None)
    rng, see = watched(target, np.random.default_rng(0), test=None)
    drawn = [rng.random() for _ in range(n_drawn)]
    target.seconds.append(1.0)
    rng.random()  # of the test, after the pass
    seen = see(Round([65], [66, 67], [], [], 0), 1.0)
    shown = [guess["u_draw"] for guess in seen["guesses"] if "u_draw" in guess]
    assert shown == (drawn if n_drawn == 2 else [])


def shown_tokens(draft, target):
    """Return the tokens that a row shows, in their order; its guess and its id are 3."""
    row = watch.row_of(Round([3], [3], [np.array(draft)], [np.array(target)], 0), 0, str)
    return [token for token, *_ in row["top"]]


def test_a_row_shows_no_token_that_neither_model_can_draw():
    """The draft draws 0, the target 1 or 3; four more tokens have no probability."""
    assert shown_tokens([1, 0, 0, 0, 0, 0, 0], [0, 0.5, 0, 0.5, 0, 0, 0]) == [1, 3, 0]
    # of tokens with equal probabilities in the target, the draft's first
    assert shown_tokens([0, 0.2, 0, 0.8], [0, 0.5, 0, 0.5]) == [3, 1]


def test_a_forced_round_is_marked():
    """The page does not count its guesses as tested."""
    _, see = watched(Timed(None), np.random.default_rng(0))
    assert see(ForcedRound([65, 66], [65], [], [], 1), 1.0)["forced"]
