"""What is shown of a run is what happened in it, and showing it changes nothing."""

import json
import re
from functools import partial

import numpy as np
import pytest

import speculative
from lib.demo import page
from lib.demo import trace as watch
from encoder import Encoder, byte_characters
from sampling import sample
from speculative import complete, draft_and_verify, generate
from exact.law import Scripted
from utils import MODELS_DIR, load_encoder_hparams_and_params
from variants import DECODERS, Models, build
from variants import settings as all_settings
from variants.lenient import lenient_verify
from variants.registry import Rounds
from variants.shared.tree_gpt2 import TreeGPT2

ENCODER = Encoder({character: id for id, character in enumerate(byte_characters().values())}, [])
PROMPT = ENCODER.encode("Hi")
HOSTILE = "</script><script>alert(1)</script><!--<b>&amp;\u2028\x00\x1b[31m\u202e\"'"


def toy(seed, sharpness=1.0):
    """A model of bytes: a law for each last id, peaked enough for two of them to agree at times."""
    weights = np.random.default_rng(seed).random((256, 256)) ** 30
    agreed = np.random.default_rng(0).random((256, 256)) ** 60 * sharpness
    rows = weights + agreed
    rows /= rows.sum(axis=1, keepdims=True)
    return lambda ids, n_last: rows[np.array(ids[-n_last:])]


STEP = draft_and_verify(toy(1), toy(2), 4)


def watched(step=STEP, N=60, seed=0, stop=(), known=watch.PLAIN, x=PROMPT, encoder=ENCODER):
    """The rounds of a run, and what was seen of them."""
    rng = watch.Recorded(np.random.default_rng(seed))
    see = watch.watcher(encoder, rng, known)
    pairs = [(round, see(round)) for round in generate(x, step, N, rng, stop)]
    return [round for round, _ in pairs], [seen for _, seen in pairs]


def texts(tokens):
    return "".join(token["text"] for token in tokens)


# ---- the data are the run's

@pytest.mark.parametrize("seed", range(5))
def test_a_guess_is_accepted_iff_its_uniform_is_below_its_threshold(seed):
    tested = [guess for seen in watched(seed=seed)[1] for guess in seen["guesses"]
              if "accepted" in guess]
    assert {guess["accepted"] for guess in tested} == {True, False}
    for guess in tested:
        assert guess["accepted"] == (guess["u_accept"] < guess["threshold"])
        assert guess["threshold"] == min(1, guess["p_target"] / guess["p_draft"])


@pytest.mark.parametrize("seed", range(5))
def test_kept_guesses_and_the_last_id_are_the_rounds_ids(seed):
    for round, seen in zip(*watched(seed=seed)):
        kept = [guess["id"] for guess in seen["guesses"] if guess.get("accepted")]
        assert [token["id"] for token in seen["ids"]] == round.ids
        assert [token["id"] for token in seen["ids"] if token["origin"] == "kept"] == kept
        assert len(round.ids) == len(kept) + 1
        bonus = len(kept) == len(round.guesses)
        assert seen["ids"][-1]["origin"] == ("bonus" if bonus else "replacement")
        assert seen["last"]["law"] == ("target" if bonus else "residual")


def test_the_uniforms_are_the_generators_own_in_the_order_drawn():
    _, rounds = watched(seed=3)
    told = [u for seen in rounds for u in (*(guess["u_draft"] for guess in seen["guesses"]),
                                           *(guess["u_accept"] for guess in seen["guesses"]
                                             if "u_accept" in guess), seen["last"]["u"])]
    assert told == np.random.default_rng(3).random(len(told)).tolist()


def test_every_id_can_be_drawn_again_from_its_law_and_uniform():
    for round, seen in zip(*watched(seed=4)):
        for t, guess in enumerate(seen["guesses"]):
            assert sample(round.p_draft[t], Scripted([guess["u_draft"]])) == guess["id"]
        law = round.p_target[-1]
        if seen["last"]["law"] == "residual":
            t = len(round.ids) - 1
            law = np.maximum(round.p_target[t] - round.p_draft[t], 0)
            law = law / law.sum()
        assert sample(law, Scripted([seen["last"]["u"]])) == round.ids[-1]
        assert seen["last"]["p"] == law[round.ids[-1]]
        assert [token["p"] for token in seen["last"]["top"]] == np.sort(law)[:-6:-1].tolist()


def test_watching_does_not_change_the_text():
    plain = complete(PROMPT, STEP, 60, np.random.default_rng(5))
    assert PROMPT + [token["id"] for seen in watched(seed=5)[1] for token in seen["ids"]] == plain


def test_the_same_seed_is_seen_the_same():
    assert watched(seed=6)[1] == watched(seed=6)[1] != watched(seed=7)[1]


def test_clocks_are_read_round_by_round():
    rng, clock = watch.Recorded(np.random.default_rng(0)), [100.0]
    see = watch.watcher(ENCODER, rng, clocks={"target": clock})
    for wanted, round in zip((3.0, 0.0, 4.0), generate(PROMPT, STEP, 60, rng)):
        clock.extend({3.0: [1.0, 2.0], 0.0: [], 4.0: [4.0]}[wanted])
        assert see(round)["seconds"] == {"target": wanted}


def test_a_character_of_several_ids_gets_its_text_with_its_last_id():
    text = "déjà – 🐉!"
    ids = ENCODER.encode(text)
    def recite(x, n_last):
        return np.eye(256)[[*ids, 0, 0][len(x) - n_last + 1 : len(x) + 1]]

    step = draft_and_verify(recite, recite, 3)
    _, rounds = watched(step, N=len(ids) - 1, x=ids[:1])
    assert "".join(texts(seen["ids"]) for seen in rounds) == text[1:]


def test_a_stop_id_among_kept_guesses_leaves_no_last_id_and_no_verdict_behind_it():
    letters = lambda ids, n_last: np.eye(256)[np.array(ids[-n_last:]) + 1]
    step = draft_and_verify(letters, letters, 4)
    _, (seen,) = watched(step, x=ENCODER.encode("A"), stop=ENCODER.encode("C"))
    assert texts(seen["ids"]) == "BC" and "last" not in seen
    assert [guess.get("accepted") for guess in seen["guesses"]] == [True, True, None, None]
    assert all("u_accept" in guess for guess in seen["guesses"])


# ---- the rows: what a page holds of both models' distributions

def test_a_row_holds_the_likeliest_tokens_of_both_models_and_the_sum_of_the_others():
    for round, seen in zip(*watched(seed=2)):
        assert len(seen["rows"]) == len(round.guesses) + 1
        for t, row in enumerate(seen["rows"]):
            target, bonus = round.p_target[t], t == len(round.guesses)
            draft = np.zeros(256) if bonus else round.p_draft[t]
            ids = [token for token, *_ in row["top"]]
            assert {int(target.argmax()), int(draft.argmax() if not bonus else ids[0])} <= set(ids)
            assert len(ids) <= 2 * 5 + 2
            assert bonus or round.guesses[t] in ids
            assert t >= len(round.ids) or round.ids[t] in ids
            for token, text, p_draft, p_target, *_ in row["top"]:
                assert text == ENCODER.decode([token])
                assert p_target == pytest.approx(target[token], rel=1e-5)
                assert p_draft is None if bonus else p_draft == pytest.approx(draft[token], 1e-5)
            others = [ids.count(token) == 0 for token in range(256)]
            for got, each in zip(row["others"], (draft, target, np.minimum(draft, target))):
                assert got == pytest.approx(each[others].sum(), rel=1e-5, abs=1e-15)


def test_a_uniform_in_a_tokens_stretch_draws_this_token():
    for round, seen in zip(*watched(seed=2)):
        for t, row in enumerate(seen["rows"]):
            law = round.p_target[t] if t == len(round.guesses) else speculative.residual(
                round.p_target[t], round.p_draft[t])
            stretches = [entry for entry in row["top"] if len(entry) == 6]
            assert stretches or t > round.n_tested
            for token, *_, start, end in stretches:
                ends = np.array([start, end]) / row["mass"]
                for u in (*ends, ends.mean(), *np.nextafter(ends, 0), *np.nextafter(ends, 1)):
                    inside = start <= u * row["mass"] < end
                    assert u >= 1 or (sample(law, Scripted([u])) == token) == inside


def test_without_n_top_no_rows_are_kept():
    rng = watch.Recorded(np.random.default_rng(0))
    see = watch.watcher(ENCODER, rng, n_top=0)
    assert not any("rows" in see(round) for round in generate(PROMPT, STEP, 20, rng))


def test_a_decision_is_told_with_the_line_that_makes_it():
    for name, marks in (("speculative", "345"), ("lookup", "345"), ("tree", "")):
        told = page.code(name, watched()[1] if marks else [])
        assert ("resample" in told) == bool(marks)
        for step, place in told.items():
            text = (page.ROOT / place["file"]).read_text(encoding="utf-8").splitlines()
            assert text[place["line"] - 1].strip() == place["text"], step
    assert page.code("speculative", watched()[1])["accept"]["text"].endswith("# [3]")
    assert page.code("tree", [])["accept"]["text"].startswith("def verify_tree(")
    assert "speculative.py" == page.code("speculative", [])["guess"]["file"]


@pytest.mark.parametrize("name", DECODERS)
def test_every_decoder_has_a_line_that_guesses_and_one_that_tests(name):
    for rounds in ([], [{"rows": []}]):
        for place in page.code(name, rounds).values():
            assert (page.ROOT / place["file"]).is_file() and place["text"]


# ---- other decoders: what cannot be known is absent

@pytest.fixture(scope="module")
def pair():
    """The bundled encoder and models, which give logits."""
    encoder, *draft = load_encoder_hparams_and_params("tales-small", MODELS_DIR)
    _, *target = load_encoder_hparams_and_params("tales-large", MODELS_DIR)
    return encoder, *(TreeGPT2(params, hparams["n_head"]) for hparams, params in (draft, target))


CASES = [(name, {}, t) for name, decoder in DECODERS.items()
         for t in (0, 1) if not decoder.has_heads and not decoder.greedy]
CASES += [("staged", {"width": 2}, 1), ("big_little", {"fallback": 0.1}, 0)]


@pytest.mark.parametrize("name, settings, temperature", CASES)
def test_of_every_decoder_no_more_is_said_than_is_known(pair, name, settings, temperature):
    encoder, draft, target = pair
    step = build(name, Models(draft, target, dict(temperature=temperature)), settings)
    branches = DECODERS[name].is_tree(all_settings(name, settings))
    known = Rounds() if branches else DECODERS[name].rounds
    x = encoder.encode("Once upon a time")
    rounds, seen = watched(step, 40, known=known, x=x, encoder=encoder)
    assert [token["id"] for each in seen for token in each["ids"]] == [
        token for round in rounds for token in round.ids]
    guesses = [guess for each in seen for guess in each["guesses"]]
    assert all(("rows" in each) == known.chain for each in seen)
    assert any("parent" in guess for guess in guesses) <= branches
    for round, each in zip(rounds, seen):
        assert not known.chain or len(round.p_draft) == len(round.guesses)
        led = [guess["id"] for guess in each["guesses"] if guess.get("led_on")]
        assert led == round.ids[:-1][: len(led)]
    assert any("p_draft" in guess for guess in guesses) == known.chain
    assert any("u_accept" in guess for guess in guesses) == known.verified
    assert any("u_draft" in guess for guess in guesses) == (known.draws == 1)
    assert all(("last" in each) == known.verified for each in seen)
    json.dumps(page.trace("", seen), allow_nan=False)


def test_a_test_that_is_not_verifys_is_not_shown_as_if_it_were():
    step = draft_and_verify(toy(1), toy(2), 4, partial(lenient_verify, lenience=0.1))
    with pytest.raises(ValueError, match="need rounds of a decoder that tests as"):
        watched(step)
    _, rounds = watched(step, known=DECODERS["lenient"].rounds)
    assert not any("threshold" in guess for seen in rounds for guess in seen["guesses"])


def test_a_generator_that_was_not_recorded_leaves_uniforms_out():
    see = watch.watcher(ENCODER, watch.Recorded(None))
    seen = [see(round) for round in generate(PROMPT, STEP, 40, np.random.default_rng(0))]
    assert not any("u_accept" in guess or "u_draft" in guess
                   for each in seen for guess in each["guesses"])
    assert all("u" not in each["last"] and each["last"]["top"] for each in seen)


# ---- a round as a line

def test_a_line_has_the_text_and_the_rejected_guess():
    for seen in watched()[1]:
        line = watch.line(seen)
        rejected = [guess["text"] for guess in seen["guesses"] if guess.get("accepted") is False]
        struck = "".join(f"[-{watch.printable(text)}-]" for text in rejected)
        assert struck in line
        text = line.replace(struck, "", 1).replace("{+", "").replace("+}", "")
        assert text == watch.printable(texts(seen["ids"]))


def test_without_colour_a_line_is_one_line_of_printable_characters():
    for seen in watched(N=200)[1]:  # a toy that writes every byte
        assert watch.line(seen).isprintable()
    seen = {"ids": [{"text": HOSTILE, "origin": "bonus"}], "guesses": []}
    assert watch.line(seen).isprintable()


def test_colour_codes_surround_the_same_text_that_marks_surround():
    for seen in watched()[1]:
        plain = re.sub(r"\[-|-\]|\{\+|\+\}", "", watch.line(seen))
        assert re.sub(r"\x1b\[[\d;]*m", "", watch.line(seen, colour=True)) == plain
    seen = {"ids": [{"text": "\x1b[2J", "origin": "kept"}], "guesses": []}
    assert "\x1b[2J" not in watch.line(seen, colour=True)


@pytest.mark.parametrize("tty, environ, wanted", [
    (True, {}, True), (False, {}, False), (True, {"NO_COLOR": "1"}, False),
    (True, {"NO_COLOR": ""}, True), (True, {"TERM": "dumb"}, False)])
def test_colour_is_for_terminals_whose_reader_did_not_refuse_it(tty, environ, wanted):
    class Stream:
        isatty = staticmethod(lambda: tty)

    assert watch.wants_colour(Stream, environ) == wanted


# ---- a run as a file

def example(N=60, K=4, prompt="Hi"):
    _, rounds = watched(draft_and_verify(toy(1), toy(2), K), N)
    return page.trace(prompt, rounds, {"K": K, "note": HOSTILE}, seconds=1.5)


def data_of(text):
    """The data that a browser would find in the page."""
    return json.loads(re.search(r'<script type="application/json" id="run">(.*?)</script>', text,
                                re.DOTALL)[1])


def test_a_summary_counts_what_the_rounds_hold():
    rounds, seen = watched(N=100)
    summary = page.trace("", seen)["summary"]
    assert summary["ids"] == 100 and summary["rounds"] == len(rounds)
    assert sum(place["kept"] for place in summary["by_place"]) == sum(r.n_accepted for r in rounds)
    assert sum(place["examined"] for place in summary["by_place"]) == sum(
        r.n_tested for r in rounds)
    for before, after in zip(summary["by_place"], summary["by_place"][1:]):
        assert after["examined"] <= before["kept"]


def test_both_files_hold_the_same_run(tmp_path):
    run = example(prompt=HOSTILE)
    for name in ("run.html", "run.json"):
        page.save(tmp_path / name, run)
    assert json.loads((tmp_path / "run.json").read_text(encoding="utf-8")) == run
    assert data_of((tmp_path / "run.html").read_text(encoding="utf-8")) == run


def test_another_file_is_refused_before_and_when_it_is_written(tmp_path):
    for refuse in (page.check_path, lambda path: page.save(path, example())):
        with pytest.raises(ValueError, match="need a trace file that ends in .html or .json, got"):
            refuse(tmp_path / "run.txt")
        with pytest.raises(ValueError, match="need a trace file in a folder that exists, got"):
            refuse(tmp_path / "nowhere" / "run.html")
    assert list(tmp_path.iterdir()) == []


def test_no_text_of_the_run_is_markup_in_the_page():
    text, template = page.page(example(prompt=HOSTILE)), page.TEMPLATE.read_text(encoding="utf-8")
    for sign in ("<", "</script", "<!--", "\u2028", "\x1b", "\x00"):
        assert text.count(sign) == template.count(sign)
    assert "innerHTML" not in template and "document.write" not in template


def test_the_page_fetches_nothing():
    template = page.TEMPLATE.read_text(encoding="utf-8")
    assert "default-src 'none'" in template
    for sign in ("http://", "https://", "src=", "url(", "@import", "import(", "fetch(", "<link "):
        assert sign not in template.replace('<link rel="icon" href="data:,">', "")


def test_a_run_of_200_tokens_is_a_page_of_less_than_a_megabyte():
    for K in (1, 4, 16):
        assert len(page.page(example(200, K)).encode()) < 1_000_000


def test_a_run_without_rounds_is_a_page_too():
    assert data_of(page.page(page.trace("Hi", [])))["summary"] == {
        "ids": 0, "rounds": 0, "by_place": [], "by_clock": {}}


def test_links_lead_to_the_repository_or_are_none(tmp_path):
    assert page.root_from(page.ROOT / "run.html") == ""
    assert page.root_from(page.ROOT / "docs" / "img" / "run.html") == "../../"
    assert page.root_from(tmp_path / "run.html") is None
    run = example()
    assert 'data-root="./"' in page.page(run, "") and 'data-root="../"' in page.page(run, "../")
    assert "data-root=" not in page.page(run).split("<head>")[0]


def test_what_is_not_exact_is_said_to_be_so():
    lenient = {"decoder": "lenient", "K": 4, "lenience": 0.3}
    assert page.trace("", [], lenient)["exact"] is False
    assert page.trace("", [], lenient | {"lenience": 1})["exact"] is True
    assert "exact" not in page.trace("", [], {"decoder": "lenient"})  # not known


def test_plain_decoding_is_told_piece_by_piece():
    text = "d\u00e9j\u00e0 \U0001f409!"
    pieces = page.pieces(ENCODER, ENCODER.encode(text))
    assert len(pieces) == len(ENCODER.encode(text)) and "".join(pieces) == text
