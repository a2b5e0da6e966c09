"""The page of an answer in Chromium: it shows the figures of the JSON, on any screen."""

import re

import numpy as np
import pytest
from pytest import approx

from demo.answer import answer_of, raced_speedup
from demo.hazards import PositionCounts, position_figures, speedups_of_counts
from demo.pay_page import pay_page_text
from demo.pay_plots import LOWER, Axis, speedups_shown
from demo.trace import printable
from tests.chromium import PICTURES, TELEPHONE, assert_apart
from tests.test_trace import HOSTILE
from variants.registry import Costs

N_PROMPTS, REPEATS = 6, 3
COSTS = Costs(0.00023, [0.0015, 0.0017, 0.0017, 0.0019, 0.002, 0.0022, 0.0023, 0.0024, 0.0028])
OWN = f"--decoder folder/{HOSTILE}{{{{cases}}}}.py"


def example_case(rng, name, logs):
    """Return the case of a race with these log speed-ups: real intervals of planted times."""
    tested = np.full((N_PROMPTS, 8), 40) // np.arange(1, 9)
    accepted = rng.binomial(tested, 0.7)
    counts = PositionCounts(tested, accepted)
    positions = position_figures(counts)
    for place, gains in zip(positions, speedups_of_counts(counts, COSTS).values()):
        place["predicted"] = gains
    plain = texts_of_seconds(rng, 0.0)
    rows = {}
    for decoder, log in logs.items():
        texts = texts_of_seconds(rng, log)
        rows[decoder] = raced_speedup(texts, plain, 11) | {
            "tokens_per_pass": 2.5, "time": parts_of(texts), "texts": texts}
    rows["--K 3"]["predicted"] = 1.43
    case = {"name": name, "N": 100, "repeats": REPEATS, "n_prompts": N_PROMPTS, "candidates": 11,
            "acceptance": 0.7, "positions": positions, "rows": rows,
            "plain": {"texts": plain, "time": parts_of(plain) | {"draft": 0.0}}}
    return case | {"answer": answer_of(case, COSTS)._asdict()}


def texts_of_seconds(rng, log):
    """Return the times of texts of 100 tokens."""
    seconds = 0.2 * np.exp(0.08 * rng.standard_normal((REPEATS, N_PROMPTS)) - log)
    return {"tokens": np.full(seconds.shape, 100).tolist(), "seconds": seconds.tolist()}


def parts_of(texts):
    """Return seconds per token in three parts."""
    one = np.sum(texts["seconds"]) / np.sum(texts["tokens"])
    return {"draft": 0.2 * one, "target": 0.7 * one, "rest": 0.1 * one}


def example_figures():
    """Return the figures of three temperatures, one for each answer, with hostile names."""
    rng = np.random.default_rng(0)
    logs = {"--K 2": 0.4, "--K 3": 0.5, "--K 8": 0.1, "--decoder tree --widths auto": 0.3, OWN: 0}
    slow = {name: log - 1 for name, log in logs.items()}
    unclear = dict.fromkeys(logs, 0.02)
    cases = [example_case(rng, f"Temperature {T}", each)
             for T, each in enumerate((logs, slow, unclear))]
    return {"target": HOSTILE + "x" * 300, "draft": "a/{{style}}", "measured": "On 2 cores.",
            "texts": "6 prompts of 100 new tokens each", "vocabularies": HOSTILE,
            "prompts": [HOSTILE, "y" * 500, *map(str, range(30))], "given": {},
            "costs": {f"temperature {T}": COSTS._asdict() for T in range(3)}, "cases": cases}


FIGURES = example_figures()
CASE = FIGURES["cases"][0]


def opened_page(tab, folder, width=1280, scheme="light"):
    """Open the example's page with all of its details, in the widest font that systems have."""
    tab.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1,
            mobile=False)
    tab.ask("Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}])
    (folder / "pay.html").write_text(pay_page_text(FIGURES), encoding="utf-8")
    tab.said.clear()
    tab.open((folder / "pay.html").as_uri())
    tab("""document.querySelectorAll('details').forEach(each => { each.open = true });
        document.head.append(Object.assign(document.createElement('style'),
            {textContent: 'svg text { font-family: "DejaVu Sans" }'}))""")
    return tab


# ---- words and names

def test_each_of_the_three_answers_is_at_the_top_in_words(browser, tmp_path):
    tab = opened_page(browser, tmp_path)
    cards = tab("[...document.querySelectorAll('.answer')].map(each => each.innerText)")
    large = tab("[...document.querySelectorAll('.answer .big')].map(each => each.innerText)")
    assert large == ["It pays", "It does not pay", "It is not known from these 6 prompts"]
    for case, card in zip(FIGURES["cases"], cards):
        _, _, reasons = case["answer"]["words"].partition(". ")
        assert reasons and printable(reasons) in card and case["name"] in card
    assert [case["answer"]["answer"] for case in FIGURES["cases"]] == [
        "pays", "does not pay", "not known"]


def test_names_and_prompts_are_text_and_nothing_else(browser, tmp_path):
    tab = opened_page(browser, tmp_path)
    assert tab.said == [] and tab("document.title") == "Does speculation pay?"
    assert tab("document.querySelectorAll('script, img, iframe, object, svg svg').length") == 0
    assert tab("document.querySelectorAll('style').length") == 2  # the page's, and this test's
    assert tab("document.querySelectorAll('figure').length") == 4 * 3
    text = tab("document.querySelector('main').textContent")
    for name in (FIGURES["target"], FIGURES["draft"], FIGURES["vocabularies"], OWN):
        assert printable(name) in text
    prompts = tab("[...document.querySelectorAll('ol li')].map(each => each.textContent)")
    assert prompts[:3] == [printable(HOSTILE), "y" * 200 + "…", "0"] and len(prompts) == 20
    assert "and 12 more" in text


def cells(tab, caption):
    """Return the rows of the first table with this caption."""
    return tab(f"""[...[...document.querySelectorAll('table')].find(each =>
        each.caption.textContent.startsWith({caption!r})).rows].slice(1).map(row =>
        [...row.cells].map(cell => cell.textContent))""")


def with_ends(figure, row):
    """Return a figure with its interval, as the page prints it."""
    return f"{figure:.2f} ({row['low']:.2f} - {row['high']:.2f})"


def test_the_tables_are_the_json(browser, tmp_path):
    tab = opened_page(browser, tmp_path)
    plain, *decoders = cells(tab, "Speed-up of each decoder")
    assert plain[0] == "plain decoding" and plain[4:] == [
        f"{1e3 * part:.2f}" for part in CASE["plain"]["time"].values()]
    assert [cell[0] for cell in decoders] == [printable(name) for name in CASE["rows"]]
    for shown, row in zip(decoders, CASE["rows"].values()):
        times = [f"{1e3 * row['time'][part]:.2f}" for part in ("draft", "target", "rest")]
        assert shown[2:] == [with_ends(row["speedup"], row), "2.50", *times]
        assert shown[1] == (f"{row['predicted']:.2f}" if "predicted" in row else "-")
    for shown, place in zip(cells(tab, "Acceptance by position"), CASE["positions"]):
        gains = place["predicted"]
        assert shown[1:] == [str(place["tested"]), with_ends(place["acceptance"], place),
                             with_ends(gains["speedup"], gains)]
    assert cells(tab, "Times of passes")[0] == ["a draft step", "0.23", "0.15"]


MARKS = """(() => {
    const svg = document.querySelectorAll('svg')[%d];
    const numbers = (name, keys) => [...svg.querySelectorAll(name)].map(each =>
        keys.map(key => parseFloat(each.getAttribute(key))));
    return {texts: [...svg.querySelectorAll('text')].map(each =>
                [each.textContent, +each.getAttribute('x'), +each.getAttribute('y')]),
            points: numbers('circle', ['cx', 'cy']),
            whiskers: numbers('.whisker', ['x1', 'y1', 'x2', 'y2']),
            bars: numbers('rect', ['x', 'y', 'width']),
            curve: [...svg.querySelectorAll('polyline, polygon')].map(each =>
                each.getAttribute('points'))}})()"""


SIDEWAYS, UPWARDS = 0, 1  # axes: the indices of x and y


def scale_of(marks, axis):
    """Return the function from a position to a value, read from the numbers at an axis."""
    below = LOWER if axis == UPWARDS else 0
    ticks = [(float(words), place[axis] - below) for words, *place in marks["texts"]
             if re.fullmatch(r"\d+\.\d\d", words)]
    (low, first), *_, (high, last) = sorted(ticks)
    return lambda position: low + (position - first) * (high - low) / (last - first)


def assert_intervals_are_drawn(marks, axis, rows, figure):
    """Assert that a point is at this figure of each row, with a whisker from low to high."""
    value = scale_of(marks, axis)
    points = [value(point[axis]) for point in marks["points"]]
    assert points == approx([row[figure] for row in rows], abs=0.01)
    # A whisker is x1, y1, x2, y2.
    ends = [value(line[place]) for line in marks["whiskers"] for place in (axis, axis + 2)]
    assert ends == approx([row[end] for row in rows for end in ("low", "high")], abs=0.01)


def test_the_speed_ups_are_drawn_where_their_values_are(browser, tmp_path):
    marks = opened_page(browser, tmp_path)(MARKS % 0)
    raced = [CASE["rows"][f"--K {K}"] for K in (2, 3, 8)]
    assert_intervals_are_drawn(marks, UPWARDS, raced, "speedup")
    band, curve = ([tuple(map(float, point.split(","))) for point in points.split()]
                   for points in marks["curve"])
    assert [x for x, _ in marks["points"]] == [curve[K - 1][0] for K in (2, 3, 8)]
    value = scale_of(marks, UPWARDS)
    gains = [place["predicted"] for place in CASE["positions"]]
    speedups, lows, highs = ([gain[name] for gain in gains]
                             for name in ("speedup", "low", "high"))
    assert [value(y) for _, y in curve] == approx(speedups, abs=0.01)
    assert [value(y) for _, y in band] == approx(highs + lows[::-1], abs=0.01)  # there and back


def test_the_decoders_are_drawn_where_their_values_are_in_the_colour_of_their_answer(
        browser, tmp_path):
    tab = opened_page(browser, tmp_path)
    rows = CASE["rows"].values()
    assert_intervals_are_drawn(tab(MARKS % 1), SIDEWAYS, rows, "speedup")
    answers = tab("[...document.querySelectorAll('svg')[1].querySelectorAll('g')].map(each => "
                  "each.getAttribute('class'))")
    for answer, row in zip(answers, rows, strict=True):
        assert (answer == "pays") == (row["low"] > 1)
        assert (answer == "does-not-pay") == (row["high"] < 1)
    assert {*answers} <= {"pays", "does-not-pay", "not-known"}


def test_the_acceptance_is_drawn_where_its_values_are(browser, tmp_path):
    marks = opened_page(browser, tmp_path)(MARKS % 2)
    assert_intervals_are_drawn(marks, UPWARDS, CASE["positions"], "acceptance")


def test_the_bars_are_as_long_as_their_times(browser, tmp_path):
    marks = opened_page(browser, tmp_path)(MARKS % 3)
    times = [CASE["plain"]["time"], *(row["time"] for row in CASE["rows"].values())]
    seconds = np.array([[each[part] for part in ("draft", "target", "rest")] for each in times])
    starts, _, widths = np.array(marks["bars"]).reshape(-1, 3, 3).transpose(2, 0, 1)
    assert np.allclose(widths / widths.sum(axis=1).max(), seconds / seconds.sum(axis=1).max(),
                       atol=1e-4)
    assert np.allclose(starts[:, 1:], np.cumsum(widths, axis=1)[:, :2], atol=0.02)
    shown = [words for words, *_ in marks["texts"] if words.endswith(" ms")]
    assert shown == [f"{1e3 * total:.2f} ms" for total in seconds.sum(axis=1)]


# ---- screens

@pytest.mark.parametrize("width, scheme", [
    (1280, "light"), (700, "dark"), (TELEPHONE, "light"), (320, "dark")])
def test_nothing_is_wider_than_the_screen_and_no_text_overlaps(browser, tmp_path, width, scheme):
    tab = opened_page(browser, tmp_path, width, scheme)
    assert tab("document.documentElement.scrollWidth") <= width
    for picture in tab(PICTURES):
        assert_apart(picture, slack=1)
        pixels = [text["size"] * picture["width"] / picture["units"] for text in picture["texts"]]
        assert min(pixels) >= 11 or width < TELEPHONE


CONTRASTS = """(() => {
    const channel = c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const light = colour => { const [r, g, b] = colour.match(/[\\d.]+/g).map(n => channel(n / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const behind = each => { const own = getComputedStyle(each).backgroundColor;
        return own === 'rgba(0, 0, 0, 0)' ? behind(each.parentNode) : own; };
    return [...document.querySelectorAll('p, h1, h2, h3, li, td, th, dd, dt, text')].map(each => {
        const style = getComputedStyle(each);
        const ink = light(each.tagName === 'text' ? style.fill : style.color);
        const paper = light(behind(each));
        return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05); })})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_letter_has_the_contrast_that_the_web_guidelines_ask_for(browser, tmp_path, scheme):
    """WCAG 2.2, 1.4.3: 4.5 to 1."""
    tab = opened_page(browser, tmp_path, scheme=scheme)
    assert min(tab(CONTRASTS)) >= 4.5
    paper = tab("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}[scheme]


# ---- pieces

def test_an_axis_keeps_its_values_and_shows_few_round_numbers():
    axis = Axis(0.68, 2.11, 180, 12)
    assert axis.at(0.68) == 180 and axis.at(2.11) == 12 and axis.at(99) == 12
    assert axis.ticks() == [1.0, 1.5, 2.0]
    assert Axis(0, 1, 0, 9).ticks() == [0, 0.25, 0.5, 0.75, 1]


def test_one_prompt_and_a_race_without_intervals_are_drawn_too(tmp_path):
    figures = example_figures()
    for row in figures["cases"][0]["rows"].values():
        row.update(error=None, low=None, high=None)
    figures["cases"][0]["n_prompts"] = 1
    page = pay_page_text(figures)
    assert "one prompt does not show how much prompts differ" in page and "None" not in page


def test_an_axis_ends_at_twice_the_largest_speed_up_however_wide_an_interval_is():
    rows = [{"speedup": 0.9, "low": 0.5, "high": 99.0}, {"speedup": 1.5, "low": 1.0, "high": 2.0}]
    assert [*speedups_shown(rows)] == [0.9, 0.5, 3.0, 1.5, 1.0, 2.0]
    assert [*speedups_shown([{"speedup": 0.9, "low": None, "high": None}])] == [0.9]
