"""What is shown of a run is what happened in it, and showing it changes nothing."""

import errno
import inspect
import json
import os
import re

import numpy as np
import pytest

import main
from encoder import Encoder, byte_characters
from exact.law import Scripted
from lib.demo import page
from lib.demo import trace as watch
from lib.demo.compare import decode, with_costs
from lib.demo.task import load_task
from main import parse_args, settings_for_json
from sampling import residual, sample
from speculative import complete, draft_and_verify, generate, verify
from variants import DECODERS

ENCODER = Encoder({character: id for id, character in enumerate(byte_characters().values())}, [])
PROMPT = ENCODER.encode("Hi")
HOSTILE = "</script><script>alert(1)</script><!--<b>&amp;\u2028\x00\x1b[31m\u202e\"'"


def toy(seed):
    """Return a model of bytes with a row for each last id; two of them agree at times."""
    rows = np.random.default_rng(seed).random((256, 256)) ** 30
    rows += np.random.default_rng(0).random((256, 256)) ** 60
    rows /= rows.sum(axis=1, keepdims=True)
    return lambda ids, n_last: rows[np.array(ids[-n_last:])]


STEP = draft_and_verify(toy(1), toy(2), 4)


def watched(step=STEP, N=60, seed=0, stop=(), x=PROMPT, n_top=5):
    """Return the rounds of a run, and what was seen of them."""
    rng = watch.Recorded(np.random.default_rng(seed))
    see = watch.watcher(ENCODER, rng, n_top=n_top)
    pairs = [(round, see(round)) for round in generate(x, step, N, rng, stop)]
    return [round for round, _ in pairs], [seen for _, seen in pairs]


def example(N=60, K=4, prompt="Hi"):
    _, rounds = watched(draft_and_verify(toy(1), toy(2), K), N)
    return page.trace(prompt, rounds, {"K": K, "note": HOSTILE}, seconds=1.5)


def texts(tokens):
    return "".join(token["text"] for token in tokens)


# ---- the data are the run's

@pytest.mark.parametrize("seed", range(3))
def test_every_decision_can_be_made_again_from_what_is_shown(seed):
    drawn = []
    for round, seen in zip(*watched(seed=seed)):
        assert [token["id"] for token in seen["ids"]] == round.ids
        n, bonus = len(round.ids) - 1, len(round.ids) > len(round.guesses)
        origins = ["kept"] * n + ["bonus" if bonus else "replacement"]
        assert [token["origin"] for token in seen["ids"]] == origins
        for t, guess in enumerate(seen["guesses"]):
            assert guess["threshold"] == min(1, guess["p_target"] / guess["p_draft"])
            assert sample(round.p_draft[t], Scripted([guess["u_draft"]])) == guess["id"]
            assert guess.get("accepted") == (t < n if t <= n else None)
            if t <= n:
                assert guess["accepted"] == (guess["u_accept"] < guess["threshold"])
        last, law = seen["last"], round.p_target[-1]
        if not bonus:
            law = residual(round.p_target[n], round.p_draft[n])
        assert last["law"] == ("target" if bonus else "residual")
        assert sample(law, Scripted([last["u"]])) == round.ids[-1]
        assert last["p"] == law[round.ids[-1]]
        assert [token["p"] for token in last["top"]] == np.sort(law)[:-6:-1].tolist()
        drawn += [*(guess["u_draft"] for guess in seen["guesses"]),
                  *(guess["u_accept"] for guess in seen["guesses"][: n + 1]), last["u"]]
    assert drawn == np.random.default_rng(seed).random(len(drawn)).tolist()


def test_watching_does_not_change_the_text():
    plain = complete(PROMPT, STEP, 60, np.random.default_rng(5))
    assert PROMPT + [token["id"] for seen in watched(seed=5)[1] for token in seen["ids"]] == plain


def test_clocks_are_read_round_by_round():
    rng, clock = watch.Recorded(np.random.default_rng(0)), [100.0]
    see = watch.watcher(ENCODER, rng, clocks={"target": clock})
    for new, round in zip(([1.0, 2.0], [], [4.0]), generate(PROMPT, STEP, 60, rng)):
        clock.extend(new)
        assert see(round)["seconds"] == {"target": sum(new)}


def test_a_character_of_several_ids_gets_its_text_with_its_last_id():
    text = "déjà – 🐉!"
    ids = ENCODER.encode(text)

    def recite(x, n_last):
        return np.eye(256)[[*ids, 0, 0][len(x) - n_last + 1 : len(x) + 1]]

    _, rounds = watched(draft_and_verify(recite, recite, 3), N=len(ids) - 1, x=ids[:1])
    assert "".join(texts(seen["ids"]) for seen in rounds) == text[1:]
    assert "".join(page.pieces(ENCODER, ids)) == text


def test_a_stop_id_among_accepted_guesses_leaves_no_last_id_and_no_verdict_after_it():
    letters = lambda ids, n_last: np.eye(256)[np.array(ids[-n_last:]) + 1]
    step = draft_and_verify(letters, letters, 4)
    _, (seen,) = watched(step, x=ENCODER.encode("A"), stop=ENCODER.encode("C"))
    assert texts(seen["ids"]) == "BC" and "last" not in seen
    assert [guess.get("accepted") for guess in seen["guesses"]] == [True, True, None, None]
    assert all("u_accept" in guess for guess in seen["guesses"])


def test_a_row_holds_the_likeliest_tokens_of_both_models_and_the_sum_of_the_others():
    for round, seen in zip(*watched(seed=2)):
        k = len(round.guesses)
        assert len(seen["rows"]) == k + 1
        for t, row in enumerate(seen["rows"]):
            target, draft = round.p_target[t], np.zeros(256) if t == k else round.p_draft[t]
            ids = [token for token, *_ in row["top"]]
            assert {target.argmax(), target.argmax() if t == k else draft.argmax()} <= {*ids}
            assert {*round.ids[t : t + 1], *round.guesses[t : t + 1]} <= {*ids}
            for token, text, p_draft, p_target, *_ in row["top"]:
                assert text == ENCODER.decode([token])
                want = (draft[token], target[token])
                assert (p_draft or 0, p_target) == pytest.approx(want, rel=1e-5)
            others = [token not in ids for token in range(256)]
            for got, each in zip(row["others"], (draft, target, np.minimum(draft, target))):
                assert got == pytest.approx(each[others].sum(), rel=1e-5, abs=1e-15)
            law = target if t == k else residual(target, draft)
            for token, *_, start, end in [entry for entry in row["top"] if len(entry) == 6]:
                ends = np.array([start, end]) / row["mass"]
                for u in (*ends, ends.mean(), *np.nextafter(ends, 0), *np.nextafter(ends, 1)):
                    inside = start <= u * row["mass"] < end  # a u in its stretch draws the token
                    assert u >= 1 or (sample(law, Scripted([u])) == token) == inside
    assert not any("rows" in seen for seen in watched(n_top=0)[1])


# ---- every decoder

@pytest.mark.parametrize("name, temperature", [
    (name, t) for name, entry in DECODERS.items() for t in ("0", "1")[: 2 - entry.greedy]])
def test_of_every_decoder_what_is_shown_is_known(name, temperature):
    args = parse_args(["--decoder", name, "--temperature", temperature,
                       "--n_tokens_to_generate", "30"])
    task, seen, entry = with_costs(load_task(args))[0], [], DECODERS[name]
    decode(task, name, seen.append, n_top=5)
    run = json.loads(json.dumps(page.trace("", seen, settings_for_json(args)), allow_nan=False))
    branches = any("parent" in guess for round in seen for guess in round["guesses"])
    guess, test = entry.tree if branches and entry.tree else (entry.guess, entry.test)
    assert_code(run["code"], guess, test)
    if not entry.one_by_one:
        n_tested = sum(place["tested"] for place in run["summary"]["by_place"])
        assert n_tested == sum(len(round["guesses"]) for round in seen)
    assert run["exact"] == entry.is_exact(args.settings)
    assert ("draft_model_size" in run["settings"]) == ("draft" in entry.needs)
    for round in run["rounds"]:
        assert ("rows" in round) == (not branches)
        assert ("last" in round) == (test is verify)
        led = [guess["id"] for guess in round["guesses"] if guess.get("led_on")]
        assert led == [token["id"] for token in round["ids"]][: len(led)]
        for guess in round["guesses"]:
            assert ("threshold" in guess) == (test is verify)
            if "u_accept" in guess and "accepted" in guess:
                assert guess["accepted"] == (guess["u_accept"] < guess["threshold"])


def assert_code(code, guess, test):
    """The lines that the page names are those of the functions, step by step in verify."""
    ends = page.STEPS if test is verify else {"accept": ""}
    assert code.keys() == {"guess", *ends}
    for name, place in code.items():
        lines, first = inspect.getsourcelines(guess if name == "guess" else test)
        assert place["text"] == lines[place["line"] - first].strip()
        assert place["text"].endswith(ends.get(name, ""))
        assert (page.ROOT / place["file"]).samefile(inspect.getsourcefile(
            guess if name == "guess" else test))


# ---- a round as a line

def test_a_line_has_the_text_and_the_rejected_guess():
    for seen in watched()[1]:
        line = watch.line(seen)
        rejected = [guess["text"] for guess in seen["guesses"] if guess.get("accepted") is False]
        struck = "".join(f"[-{watch.printable(text)}-]" for text in rejected)
        text = line.replace(struck, "", 1).replace("{+", "").replace("+}", "")
        assert struck in line and text == watch.printable(texts(seen["ids"]))
        plain = re.sub(r"\[-|-\]|\{\+|\+\}", "", line)
        assert re.sub(r"\x1b\[[\d;]*m", "", watch.line(seen, colour=True)) == plain


def test_no_text_breaks_a_line_or_commands_a_terminal():
    hostile = {"ids": [{"text": HOSTILE, "origin": "bonus"}], "guesses": []}
    for seen in [hostile, *watched(N=200)[1]]:  # a toy that writes every byte
        assert watch.line(seen).isprintable()
    assert "\x1b[31m" not in watch.line(hostile, colour=True)


@pytest.mark.parametrize("tty, environ, wanted", [
    (True, {}, True), (False, {}, False), (True, {"NO_COLOR": "1"}, False),
    (True, {"NO_COLOR": ""}, True), (True, {"TERM": "dumb"}, False)])
def test_colour_is_for_terminals_whose_user_did_not_refuse_it(tty, environ, wanted):
    class Stream:
        isatty = staticmethod(lambda: tty)

    assert watch.wants_colour(Stream, environ) == wanted


# ---- a run as a file

def test_a_summary_counts_what_the_rounds_hold():
    rounds, seen = watched(N=100)
    summary = page.trace("", seen)["summary"]
    assert summary["ids"] == 100 and summary["rounds"] == len(rounds)
    for name, n in (("accepted", "n_accepted"), ("tested", "n_tested")):
        assert sum(place[name] for place in summary["by_place"]) == sum(
            getattr(round, n) for round in rounds)
    for before, after in zip(summary["by_place"], summary["by_place"][1:]):
        assert after["tested"] <= before["accepted"]
    nothing = {"ids": 0, "rounds": 0, "by_place": [], "by_clock": {}}
    assert page.trace("Hi", [])["summary"] == nothing


def test_both_files_hold_the_run_and_none_of_its_texts_is_markup(tmp_path):
    run, template = example(prompt=HOSTILE), page.TEMPLATE.read_text(encoding="utf-8")
    for name in ("run.html", "run.json"):
        page.save(tmp_path / name, run)
    assert json.loads((tmp_path / "run.json").read_text(encoding="utf-8")) == run
    text = (tmp_path / "run.html").read_text(encoding="utf-8")
    data = re.search(r'<script type="application/json" id="run">(.*?)</script>', text, re.DOTALL)
    assert json.loads(data[1]) == run
    for sign in ("<", "</script", "<!--", "\u2028", "\x1b", "\x00"):
        assert text.count(sign) == template.count(sign)
    assert "innerHTML" not in template and "document.write" not in template


def test_a_file_of_a_different_kind_or_place_is_refused(tmp_path):
    for refuse in (page.check_path, lambda path: page.save(path, example())):
        with pytest.raises(ValueError, match="need a trace file that ends in .html or .json, got"):
            refuse(tmp_path / "run.txt")
        with pytest.raises(ValueError, match="need a trace file in a folder that exists, got"):
            refuse(tmp_path / "nowhere" / "run.html")
    assert list(tmp_path.iterdir()) == []


def test_on_a_full_disk_the_report_is_printed_and_the_old_page_stays(tmp_path, monkeypatch, capsys):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    flags = ["--n_tokens_to_generate", "3", "--trace", str(tmp_path / "run.html")]
    assert main.main(flags) == 0
    assert capsys.readouterr().out.endswith(f"Wrote {tmp_path / 'run.html'}\n")
    before = (tmp_path / "run.html").read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    assert main.main(flags) == 2
    out, err = capsys.readouterr()
    assert "target passes" in out and err.count("\n") == 1 and "run.html" in err
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("run.html", before)]


def test_the_page_fetches_nothing_and_stays_below_a_megabyte():
    template = page.TEMPLATE.read_text(encoding="utf-8")
    assert "default-src 'none'" in template
    for sign in ("http://", "https://", "src=", "url(", "@import", "import(", "fetch(", "<link "):
        assert sign not in template.replace('<link rel="icon" href="data:,">', "")
    for K in (1, 4, 16):
        assert len(page.page(example(200, K)).encode()) < 1_000_000


def test_links_lead_to_the_repository_or_are_none(tmp_path):
    run = example()
    assert 'data-root="./"' in page.page(run, page.ROOT)
    assert 'data-root="../../"' in page.page(run, page.ROOT / "docs" / "img")
    assert "data-root=" not in page.page(run, tmp_path).split("<head>")[0]


def test_exactness_is_claimed_only_where_it_is_known():
    lenient = {"decoder": "lenient", "K": 4, "lenience": 0.3}
    assert page.trace("", [], lenient)["exact"] is False
    assert page.trace("", [], lenient | {"lenience": 1})["exact"] is True
    assert "exact" not in page.trace("", [])
