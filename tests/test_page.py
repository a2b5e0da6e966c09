"""The page of a run in Chromium: what it shows and claims is what the run and `verify` say."""

import json

import numpy as np
import pytest

from lib.demo import page
from lib.demo import trace as watch
from speculative import generate, verify
from tests import bundled
from tests.chromium import chromium
from exact.law import Scripted
from tests.test_trace import ENCODER, HOSTILE, STEP, example, watched
from variants import Models, build
from variants.lenient import lenient_law
from variants.registry import Rounds
from variants.shared.tree_gpt2 import TreeGPT2


@pytest.fixture(scope="module")
def browser():
    with chromium() as tab:
        yield tab


def opened(tab, folder, run, anchor=""):
    """The page of a run, opened."""
    page.save(folder / "run.html", run)
    tab.said.clear()
    tab.open((folder / "run.html").as_uri() + anchor)
    return tab


def raced(N=30):
    """A run with plain decoding beside it, and its rounds."""
    rng = watch.Recorded(np.random.default_rng(1))
    see = watch.watcher(ENCODER, rng, clocks={"target": (clock := [])})
    rounds, seen = [], []
    for round in generate(ENCODER.encode("Hi"), STEP, N, rng):
        clock.append(0.5)
        rounds.append(round)
        seen.append(see(round))
    plain = {"seconds": 15.0, "pieces": ["x"] * N, "speedup": 1.25, "target_passes": len(rounds)}
    return rounds, page.trace("Hi", seen, {"K": 4, "decoder": "speculative"}, 12.0, plain)


@pytest.mark.parametrize("run", [example(prompt=HOSTILE), page.trace("Hi", [])],
                         ids=["a run", "no rounds"])
def test_a_browser_opens_the_page_without_a_word_in_its_console(browser, tmp_path, run):
    tab = opened(browser, tmp_path, run, "#round-1")
    tab("document.querySelectorAll('details').forEach(each => { each.open = true })")
    assert tab("document.querySelectorAll('details.round').length") == len(run["rounds"])
    assert tab("document.querySelectorAll('script').length") == 2 and tab.said == []


def wanted(round, us):
    """What speculative.verify gives if us[t] tests guess t and the last of us draws the token."""
    passed = [u < min(1, round.p_target[t][token] / round.p_draft[t][token])
              for t, (u, token) in enumerate(zip(us, round.guesses))]
    n = [*passed, False].index(False)
    script = us if n == len(passed) else [*us[: n + 1], us[-1]]
    return verify(round.guesses, round.p_draft, round.p_target, Scripted(script))


def test_what_a_dragged_tick_claims_is_what_verify_gives(browser, tmp_path):
    rounds, run = raced()
    tab, cases = opened(browser, tmp_path, run), []
    chance = np.random.default_rng(0)
    for i, (round, seen) in enumerate(zip(rounds, run["rounds"])):
        k = len(round.guesses)
        grid = [[u] * (k + 1) for u in (0.0, 0.25, 0.5, 0.75, 0.999)]
        grid += chance.random((30, k + 1)).tolist()
        grid.append([*(g.get("u_accept", 0.5) for g in seen["guesses"]), seen["last"]["u"]])
        cases += [(i, us) for us in grid]
    said = tab(f"{json.dumps(cases)}.map(([i, us]) => {{ const got = replay(run.rounds[i], us);"
               "return [got.kept, got.token?.id ?? null]; })")
    held = 0
    for (i, us), (kept, token) in zip(cases, said):
        ids = wanted(rounds[i], us)
        assert kept == len(ids) - 1
        if token is None:
            assert ids[-1] not in [entry[0] for entry in run["rounds"][i]["rows"][kept]["top"]]
        else:
            held += 1
            assert token == ids[-1]
    assert held > len(cases) / 4


def test_a_tick_is_moved_by_the_arrow_keys_and_put_back(browser, tmp_path):
    rounds, run = raced()
    i = next(i for i, seen in enumerate(run["rounds"]) if any(
        g.get("accepted") is False and 0.05 < g["threshold"] < 0.95 for g in seen["guesses"]))
    tab = opened(browser, tmp_path, run, f"#round-{i + 1}")
    tab.wait(f"at('round-{i + 1}').querySelector('.result') !== null")
    t = rounds[i].n_accepted
    tab(f"globalThis.box = at('round-{i + 1}')")
    tab(f"box.querySelectorAll('.uniform input')[{t}].focus()")
    said = "box.querySelector('.result').textContent"
    before = tab(said)
    assert before.startswith("The run: ")
    for _ in range(100):
        tab.press("ArrowLeft")
        if "Kept" in tab("document.activeElement.getAttribute('aria-valuetext')"):
            break
    assert tab(said).startswith("With these numbers it would have been: ")
    assert shown_round(tab) == i + 1
    us = tab("[...box.querySelectorAll('.uniform input')].map(each => Number(each.value))")
    ids = wanted(rounds[i], us)
    for guess in ids[:-1]:
        assert json.dumps(ENCODER.decode([guess]), ensure_ascii=False) in tab(said)
    tab("box.querySelector('.result + button').click()")
    assert tab(said) == before


def shown_round(tab):
    return tab("shown")


def test_the_distribution_under_lenience_is_the_exact_one_of_the_kept_tokens(browser, tmp_path):
    _, run = raced()
    tab = opened(browser, tmp_path, run)
    grid = [(t, lenience) for t in (0.5, 1, 2) for lenience in (0.1, 0.5, 1)]
    row = run["rounds"][0]["rows"][0]
    draft, target = (np.array([entry[j] for entry in row["top"]]) for j in (2, 3))
    norm = lambda weights: weights / weights.sum()
    for temperature, lenience in grid:
        got = tab(f"oneToken(run.rounds[0].rows[0], {temperature}, {lenience})")
        warped = [norm(row ** (1 / temperature)) for row in (draft, target)]
        assert np.allclose(got["law"], lenient_law(*warped, lenience), rtol=0, atol=1e-12)
        assert np.isclose(got["kept"], np.minimum(warped[0], warped[1] / lenience).sum())
    greedy = tab("oneToken(run.rounds[0].rows[0], 0, 1)")
    assert greedy["law"] == greedy["target"] == np.eye(len(target))[target.argmax()].tolist()


def test_the_next_round_can_be_asked_for_again_and_again(browser, tmp_path):
    _, run = raced()
    tab, n = opened(browser, tmp_path, run), len(run["rounds"])
    tab("at('next').focus()")
    for i in range(1, n + 2):
        tab.press("Enter")
        assert (shown_round(tab), tab("document.activeElement.id")) == (1 + (i - 1) % n, "next")
        assert tab(f"at('round-{shown_round(tab)}').open")
    for key, by in (("n", 1), ("p", -1), ("ArrowRight", 1), ("ArrowLeft", -1)):
        before = shown_round(tab)
        tab.press(key)
        assert shown_round(tab) == (before - 1 + by) % n + 1
    tab("at('keys').click()")
    before = shown_round(tab)
    tab.press("n")
    assert shown_round(tab) == before
    tab("at(`round-${shown}`).querySelector('a[href^=\"#text\"]').click()")
    tab.wait("document.activeElement.id === `text-${shown}`")
    assert tab("document.querySelectorAll('#text a[tabindex=\"0\"]').length") == 1


@pytest.mark.parametrize("width", [1280, 400, 320])
def test_nothing_is_wider_than_the_screen_and_all_can_be_touched(browser, tmp_path, width):
    browser.look(width)
    for run in (example(prompt=HOSTILE + "x" * 300), raced()[1]):
        tab = opened(browser, tmp_path, run)
        tab("document.querySelectorAll('details').forEach(each => { each.open = true })")
        tab.wait("document.querySelectorAll('.what-if').length > 0")
        assert tab("document.documentElement.scrollWidth") <= width
        small = tab("""[...document.querySelectorAll('button, input, select, summary, #text a')]
            .filter(each => each.getClientRects().length && each.type !== 'checkbox'
                && each.getClientRects()[0].height < 24).map(each => each.outerHTML)""")
        assert small == []


def test_a_tree_is_drawn_as_one_and_has_no_dead_button(browser, tmp_path):
    encoder = bundled.encoder()
    draft, target = (TreeGPT2(*bundled.weights(f"tales-{size}")) for size in ("small", "large"))
    step = build("tree", Models(draft, target, dict(temperature=1)), {})
    x = encoder.encode("Once upon a time")
    _, seen = watched(step, 12, known=Rounds(), x=x, encoder=encoder)
    tab = opened(browser, tmp_path, page.trace("Once", seen, {"decoder": "tree"}), "#round-1")
    tab.wait("at('round-1').querySelector('.tree') !== null")
    got = tab("[...at('round-1').querySelectorAll('.tree li')].map(each => "
              "each.parentNode.closest('li')?.firstChild.textContent ?? null)")
    tokens = seen[0]["guesses"]
    above = [None if token["parent"] < 0 else json.dumps(tokens[token["parent"]]["text"])
             for token in tokens]
    assert sorted(got, key=str) == sorted(above, key=str)
    assert tab("at('rejection').hidden && document.querySelector('.legend .replacement').hidden")
    assert tab("document.querySelectorAll('#round-1 .led').length") == len(seen[0]["ids"]) - 1


def test_the_race_ends_with_both_texts_at_their_recorded_times(browser, tmp_path):
    _, run = raced()
    tab = opened(browser, tmp_path, run)
    assert tab("race.length") == 15
    tab("seek(11.999)")
    assert "29 tokens" not in tab("race.tracks[1].count.textContent")
    assert tab("race.tracks[0].done") == 23  # one each half second
    tab("seek(12)")
    assert tab("race.tracks[1].count.textContent") == "30 tokens, 12.00 s, done"
    assert tab("race.tracks[1].text.textContent") == "Hi" + "".join(
        token["text"].replace("\n", "\u23ce") for seen in run["rounds"] for token in seen["ids"])
    tab("seek(99)")
    assert tab("race.tracks[0].text.textContent") == "Hi" + "x" * 30
    tab("at('restart').click(); at('step').click()")
    assert tab("race.tracks[1].done") == 1


def test_the_numbers_shown_are_the_datas(browser, tmp_path):
    _, run = raced()
    tab = opened(browser, tmp_path, run, "#round-1")
    tab.wait("at('round-1').querySelector('.rows') !== null")
    assert "15.00 s for 30 tokens" in tab("at('result').textContent")
    assert tab("at('result').textContent").endswith("this run 12.00 s: a speed-up of 1.25.")
    cells = tab("""[...at('round-1').querySelectorAll('.positions section:first-child tbody tr')]
        .map(row => [...row.querySelectorAll('td')].slice(0, 2).map(cell => cell.textContent))""")
    row = run["rounds"][0]["rows"][0]
    want = [entry[2:4] for entry in row["top"]] + [row["others"][:2]]
    assert [[float(cell) for cell in each] for each in cells] == [
        pytest.approx(each, abs=5.1e-5) for each in want]
