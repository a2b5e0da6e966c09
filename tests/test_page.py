"""The page of a run in Chromium: what it shows and claims is what the run and `verify` say."""

import json
import sys
from copy import copy
from functools import partial
from itertools import product

import numpy as np
import pytest

from page import page
from speculative import guess, speculative_step, verify
from tests.distributions import Scripted
from tests.small import lenient_law
from tests.test_rounds import HOSTILE, decoded_page_run, example_run


def opened_page(tab, folder, run):
    page.save_page(folder / "run.html", run)
    tab.said.clear()
    tab.open((folder / "run.html").as_uri() + "#round-1")
    return tab


def example_race(**options):
    """Return the rounds of a run that raced plain decoding, and the run as its page gets it."""
    run, rounds = example_run(N=30, **options)
    for i, seen in enumerate(run["rounds"]):
        seen["end"] = 12.0 * (i + 1) / len(rounds)
    plain = {"seconds": 15.0, "pieces": ["x"] * 30, "speedup": 1.25,
             "target_passes": len(rounds)}
    return rounds, run | {"plain": plain}


@pytest.fixture
def race(browser, tmp_path):
    """Return the rounds of a run that raced plain decoding, the run, and its page."""
    rounds, run = example_race()
    return rounds, run, opened_page(browser, tmp_path, run)


# A round's numbers are `us`: us[t] tests guess t, if the test reaches it, and us[-1] draws the
# last token.

def own_numbers(seen):
    """Return the numbers of a round that was run; .5 for a guess that it did not reach."""
    return [*(entry.get("u_accept", 0.5) for entry in seen["guesses"]), seen["u_last"]]


def numbers_read(result, us):
    """Return those of a round's numbers that `verify` reads, in its order."""
    n_tested = 0
    for u, token, p_target, p_draft in zip(us, result.guesses, result.p_target, result.p_draft):
        n_tested += 1
        if u >= p_target[token] / p_draft[token]:
            break
    return [*us[:n_tested], us[-1]]


def test_what_a_dragged_marker_claims_is_what_verify_gives(race):
    rounds, run, tab = race
    chance = np.random.default_rng(0)
    cases = []  # (number of a round, its numbers)
    for i, seen in enumerate(run["rounds"]):
        own = own_numbers(seen)
        equal = [[u] * len(own) for u in (0.0, 0.5, 0.999)]
        cases += [(i, us) for us in [own, *equal, *chance.random((30, len(own))).tolist()]]
    claims = tab(f"{json.dumps(cases)}.map(([i, us]) => replay(run.rounds[i], us))"
                 ".map(got => [got.accepted, got.token?.id ?? null])")
    for (i, us), (n_accepted, token) in zip(cases, claims):
        result = rounds[i]
        *accepted, last = verify(result.guesses, result.p_draft, result.p_target,
                                 Scripted(numbers_read(result, us)))
        held = [entry[0] for entry in run["rounds"][i]["rows"][n_accepted]["top"]]
        assert n_accepted == len(accepted) and token == (last if last in held else None)
    assert sum(token is not None for _, token in claims) > len(cases) / 4


def test_a_marker_is_moved_by_the_arrow_keys_and_put_back(race):
    _, _, tab = race
    tab.wait("document.querySelector('.result') !== null")
    tab("document.querySelector('.uniform input').focus()")
    said = "document.querySelector('.result').textContent"
    before = tab(said)
    tab.press("ArrowLeft")
    assert before.startswith("The run: ") and tab("shown") == 1
    assert tab(said).startswith("With these numbers the round would be: ")
    tab("document.querySelector('.positions + button').click()")
    assert tab(said) == before


def test_the_distribution_under_lenience_is_the_exact_one_of_the_tokens_held(race):
    _, run, tab = race
    top = run["rounds"][0]["rows"][0]["top"]
    draft, target = np.array([entry[2:4] for entry in top]).T
    for temperature, lenience in product((0.5, 1, 2), (0.1, 0.5, 1)):
        warped = [row ** (1 / temperature) for row in (draft, target)]
        wanted = lenient_law(*(row / row.sum() for row in warped), lenience)
        got = tab(f"oneToken(run.rounds[0].rows[0], {temperature}, {lenience})")
        assert np.allclose(got["law"], wanted, rtol=0, atol=1e-12)


def test_rounds_are_reached_by_button_key_and_link(race):
    rounds, _, tab = race
    n = len(rounds)
    tab("at('next').focus()")
    for key, by in (("p", -1), ("n", 1), ("Enter", 1), ("ArrowRight", 1), ("ArrowLeft", -1)):
        before = tab("shown")
        tab.press(key)
        assert tab("shown") == (before - 1 + by) % n + 1  # of 1 .. n; 1 follows n
        assert tab("document.activeElement.id") == "next" and tab("at(`round-${shown}`).open")
    before = tab("shown")
    tab("at('keys').click()")
    tab.press("n")
    assert tab("shown") == before
    tab("at(`round-${shown}`).querySelector('a[href^=\"#text\"]').click()")
    tab.wait("document.activeElement.id === `text-${shown}`")
    assert tab("document.querySelectorAll('#text a[tabindex=\"0\"]').length") == 1


@pytest.mark.parametrize("width, height", [(1280, 900), (390, 844)])
def test_the_first_screen_has_a_marker_of_one_round_and_code_is_shown_whole(
        browser, tmp_path, width, height):
    browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=height,
                deviceScaleFactor=1, mobile=False)
    page.save_page(tmp_path / "run.html", example_race()[1])
    browser.open((tmp_path / "run.html").as_uri())
    browser.wait("!!document.querySelector('.listing')")
    assert browser("[...document.querySelectorAll('details.round')].filter("
                   "each => each.getClientRects().length).length") == 1
    assert browser("document.querySelector('.uniform input').getBoundingClientRect().bottom"
                   ) < height
    tops = browser("['.uniform', '.positions table', '.listing', '#text', '#result', '#race'].map("
                   "each => document.querySelector(each).getBoundingClientRect().top)")
    assert tops == sorted(tops)
    hidden = browser("(box => [box.scrollWidth - box.clientWidth, box.scrollHeight - "
                     "box.clientHeight])(document.querySelector('.listing'))")
    assert hidden[1] <= 0 and (hidden[0] <= 0 or width < 1280)  # a telephone shows half a line


@pytest.mark.parametrize("width", [1280, 320])
def test_nothing_is_wider_than_the_screen_and_all_can_be_touched(browser, tmp_path, width):
    browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=900,
                deviceScaleFactor=1, mobile=False)
    rounds, run = example_race(prompt=HOSTILE + "x" * 300)
    tab = opened_page(browser, tmp_path, run)
    tab("at('open').click()")
    tab.wait("document.querySelectorAll('.what-if').length > 0")
    tab("document.querySelectorAll('details').forEach(each => { each.open = true })")
    assert tab("[...document.querySelectorAll('details.round')].filter("
               "each => each.getClientRects().length).length") == len(rounds)
    assert tab("document.querySelectorAll('script').length") == 2 and tab.said == []
    assert tab("document.documentElement.scrollWidth") <= width
    assert tab("[...document.querySelectorAll('.sums .scroll')].filter(each => "
               "each.clientWidth && each.scrollWidth > each.clientWidth).length") == 0
    assert tab("at('about').textContent.length") < 300 < len(run["prompt"])  # it is in the text
    assert tab("""[...document.querySelectorAll('button, input, select, summary, #text a')]
        .filter(each => each.getClientRects().length && each.type !== 'checkbox'
            && each.getClientRects()[0].height < 24).map(each => each.outerHTML)""") == []


def test_a_run_without_rounds_is_a_page_too(browser, tmp_path):
    run = page.run_as_data("Hi", [], {"decoder": "lookup"})
    assert opened_page(browser, tmp_path, run).said == []


def test_a_tree_is_drawn_as_one_and_has_no_dead_button(browser, tmp_path):
    run = decoded_page_run("tree")
    tab = opened_page(browser, tmp_path, run)
    tab.wait("at('round-1').querySelector('.tree') !== null")
    got = tab("[...at('round-1').querySelectorAll('.tree li')].map(each => "
              "each.parentNode.closest('li')?.firstChild.textContent ?? null)")
    nodes = run["rounds"][0]["guesses"]
    parents = [json.dumps(nodes[node["parent"]]["text"])
               for node in nodes if node["parent"] >= 0]
    assert sorted(text for text in got if text) == sorted(parents)
    assert got.count(None) == len(nodes) - len(parents) > 0  # below the text itself
    assert tab("at('rejection').hidden && document.querySelector('.legend .replacement').hidden")
    assert tab("document.querySelectorAll('#round-1 .led').length") == len(
        run["rounds"][0]["ids"]) - 1


@pytest.mark.parametrize("name, is_chain, is_exact, has_draft", [
    ("speculative", True, True, True), ("cascade", True, False, True),
    ("tree", False, True, True), ("lookup", False, True, False),
    ("block", False, True, True), ("lenient", False, False, True)])
def test_a_chain_exactness_and_a_draft_are_shown_only_where_they_are(
        browser, tmp_path, name, is_chain, is_exact, has_draft):
    tab = opened_page(browser, tmp_path, decoded_page_run(name))
    shown = tab("document.body.innerText")
    assert ("is below p_target / p_draft. The first" in shown) == is_chain
    assert shown.count("distributed exactly as") == is_exact
    assert shown.count("not exact") == (not is_exact)
    assert ("tales-small" in shown) == has_draft and "tales-large" in shown


def test_the_race_ends_with_both_texts_at_their_recorded_times(race):
    rounds, run, tab = race
    assert tab("race.length") == 15
    tab("seek(11.999)")
    assert tab("race.tracks.map(track => track.done)") == [23, len(rounds) - 1]
    tab("seek(12)")
    assert tab("race.tracks[1].count.textContent") == "30 tokens, 12.00 s, done"
    assert tab("race.tracks[1].text.textContent") == "Hi" + "".join(
        token["text"].replace("\n", "\u23ce") for seen in run["rounds"] for token in seen["ids"])
    tab("seek(99)")
    assert tab("race.tracks[0].text.textContent") == "Hi" + "x" * 30
    tab("at('restart').click(); at('step').click()")
    assert tab("race.tracks[1].done") == 1


def test_the_numbers_shown_are_the_datas(race):
    _, run, tab = race
    tab("show(1)")
    tab.wait("at('round-1').querySelector('.rows') !== null")
    assert tab("at('result').textContent").endswith(
        "Plain decoding gave 30 tokens in 15.00 s, this run 30 in 12.00 s: a speed-up of 1.25 "
        "(tokens per second after the first round).")
    cells = tab("""[...at('round-1').querySelectorAll('.positions section:first-child tbody tr')]
        .map(row => [...row.querySelectorAll('td')].slice(0, 2).map(cell => cell.textContent))""")
    row = run["rounds"][0]["rows"][0]
    want = np.array([entry[2:4] for entry in row["top"]] + [row["others"][:2]])
    assert np.allclose(np.array(cells, dtype=float), want, rtol=0, atol=5.1e-5)


# ---- the code of a round, line by line

def lines_run(result, seen, us):
    """Return the line numbers that Python runs in a round, and the variables before each.

    A function's first line stands for its call; the line that called it is repeated when it
    returns.
    """
    codes = {function.__code__ for function in (guess, verify, speculative_step)}
    events = []

    def trace(frame, event, argument):
        if frame.f_code not in codes:
            return None
        if event in ("call", "line"):
            variables = {name: copy(value) for name, value in frame.f_locals.items()}
            events.append((frame.f_lineno, variables))  # copies, because lists grow
        elif event == "return" and frame.f_back.f_code in codes:
            events.append((frame.f_back.f_lineno, {}))
        return trace

    k = len(result.guesses)
    rows = iter(result.p_draft)
    draft = lambda ids, n_last: [next(rows)]
    target = lambda ids, n_last: result.p_target
    drawn = [entry["u_draw"] for entry in seen["guesses"]]
    rng = Scripted(drawn + numbers_read(result, us))
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        done = speculative_step([0], k + 1, rng, target, k, partial(guess, draft=draft))
    finally:
        sys.settrace(before)
    assert done.guesses == result.guesses
    return events


def steps_shown(tab, i, us):
    """Return the line number and the values, as text, of each step that the page shows."""
    return tab(f"""(() => {{
        const number = new Map(run.listing.flatMap(each => each.lines.map(
            line => [line.place, line.number])));
        const text = value => value.textContent ?? value;
        return codeSteps(run.rounds[{i}], {json.dumps(us)}).map(({{place, values}}) =>
            [number.get(place), Object.fromEntries(values.map(
                ([name, value]) => [name, text(value)]))]);
    }})()""")


def test_the_page_steps_through_the_lines_that_python_runs_and_shows_the_variables(race):
    rounds, run, tab = race
    chance = np.random.default_rng(0)
    n_tests = 0
    for i, (result, seen) in enumerate(zip(rounds, run["rounds"])):
        text_of = {entry["id"]: entry["text"] for entry in seen["guesses"]}
        own = own_numbers(seen)
        for us in (own, [0.0] * len(own), [0.999] * len(own), chance.random(len(own)).tolist()):
            steps = steps_shown(tab, i, us)
            events = lines_run(result, seen, us)
            assert [line for line, _ in steps] == [line for line, _ in events]
            for (_, shown), (_, after) in zip(steps, events[1:]):
                if "t" in shown:
                    assert shown["t"] == str(after["t"])
                    assert json.loads(shown["token"]) == text_of[after["token"]]
                if "guesses" in shown and shown["guesses"].startswith("[") and "guesses" in after:
                    assert json.loads(shown["guesses"]) == [text_of[g] for g in after["guesses"]]
                if "accept" in shown:
                    t, token = after["t"], after["token"]
                    ratio = result.p_target[t][token] / result.p_draft[t][token]
                    assert float(shown["u"]) == pytest.approx(us[t], abs=6e-5)
                    assert shown["accept"].endswith("True" if us[t] < ratio else "False")
                    n_tests += us is own
    assert n_tests == sum(result.n_tested for result in rounds)


def test_the_code_is_stepped_by_button_and_key_and_leads_to_the_next_round(race):
    _, run, tab = race
    tab("show(1)")
    where = "at(`round-${shown}`).querySelector('.code .soft').textContent"
    line = "at(`round-${shown}`).querySelector('.listing .runs .n').textContent"
    count = len(steps_shown(tab, 0, own_numbers(run["rounds"][0])))
    assert tab(where) == f"line 1 of {count}"
    first = tab(line)
    tab.press("j")
    assert tab(where) == f"line 2 of {count}" and tab(line) != first
    tab.press("k")
    assert tab(where) == f"line 1 of {count}" and tab(line) == first
    for _ in range(count - 1):
        tab("at('round-1').querySelectorAll('.code button')[1].click()")
    assert tab(where) == f"line {count} of {count}" and tab("shown") == 1
    tab.press("j")
    assert tab("shown") == 2 and tab(where).startswith("line 1 of")
    tab.press("k")
    assert tab("shown") == 1 and tab(where) == f"line {count} of {count}"


def test_a_dragged_marker_changes_the_values_beside_the_code(race):
    _, run, tab = race
    tab("show(1)")
    tab("at('round-1').querySelector('.code').walk(Infinity)")
    shown = "at('round-1').querySelector('.values dd').textContent"
    before = tab(shown)
    tab("""document.querySelectorAll('#round-1 .positions input').forEach(each => {
        each.value = 0.999; each.dispatchEvent(new Event('input')) })""")
    after = tab(shown)  # the first guess is rejected: one token, which the row may not hold
    assert after != before and ("other tokens" in after or len(json.loads(after)) == 1)


def test_other_decoders_list_their_own_guess_or_say_that_there_is_no_listing(browser, tmp_path):
    tab = opened_page(browser, tmp_path, decoded_page_run("lookup"))
    tab.wait("document.querySelector('.listing') !== null")
    assert tab("document.querySelector('.listing .file').textContent").startswith(
        "variants/lookup.py")
    tab = opened_page(browser, tmp_path, decoded_page_run("block"))
    tab.wait("document.querySelector('.positions') !== null")
    assert tab("document.querySelector('.listing') === null")
    assert "the page shows its rounds only" in tab("document.body.innerText")
