"""Write the answer of tools/will_it_pay.py as a page: pay.html with its words and pictures.

The page has no script. Every text in it that is not ours (names of models, prompts, names of
files) is escaped.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from demo.answer import (
    FEWEST_RUNS,
    FEWEST_TOKENS,
    WRONG_AT_MOST,
    acceptance_in_words,
    answer_of,
    conditions,
    disturbance,
)
from demo.page import STYLE
from demo.pay_plots import (
    acceptance_plot,
    decoders_plot,
    interval_in_words,
    speedup_plot,
    time_plot,
)
from demo.trace import printable
from variants.registry import Costs

PAY_TEMPLATE = Path(__file__).parent / "pay.html"
MOST_LISTED = 20  # prompts
CUT = 200  # letters of a prompt that are listed


def pay_page_text(figures: Mapping) -> str:
    """Return the page of will_it_pay's figures; ValueError if they hold no race."""
    # Each temperature has a case and its costs. The predictions of --random have costs, but no
    # case, so zip leaves nothing.
    costs_of_cases = [Costs(**costs) for costs in figures["costs"].values()]
    cases = list(zip(figures["cases"], costs_of_cases))
    if not cases:
        raise ValueError("--out needs figures of a race; these are predictions of --random")
    parts = {"style": STYLE.read_text(encoding="utf-8"), "pair": pair_in_words(figures),
             "answers": "\n".join(answer_card(case, costs) for case, costs in cases),
             "cases": "\n".join(case_section(case, costs) for case, costs in cases),
             "conditions": conditions_section(figures)}
    template = PAY_TEMPLATE.read_text(encoding="utf-8")
    # All {{names}} are replaced at once, so a {{ in the name of a model stays as it is.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


# ---- words

def page_words(words: str) -> str:
    """Return words as text of a page, with control characters and changes of direction visible.

    >>> page_words("<b>\\x00")
    '&lt;b&gt;\\\\x00'
    """
    return escape(printable(words))


def pair_in_words(figures: Mapping) -> str:
    """Return which models these are."""
    return (f"Target <b>{page_words(figures['target'])}</b>, draft "
            f"<b>{page_words(figures['draft'])}</b>, {page_words(figures['texts'])}.")


def as_html(words: str) -> str:
    """Return escaped words in which no flag is broken after its dashes.

    >>> as_html("more (--prompts FILE) & longer")
    'more (<span class="flag">--prompts</span> FILE) &amp; longer'
    """
    return re.sub(r"--\w+", r'<span class="flag">\g<0></span>', page_words(words))


def answer_card(case: Mapping, costs: Costs) -> str:
    """Return the answer for one temperature: in large letters, then its reasons."""
    answer = answer_of(case, costs)
    # The first sentence is shown in large letters. It is the second half of "Temperature 0:
    # ..", so its first letter is small.
    large, _, reasons = answer.words.partition(". ")
    kind = answer.answer.replace(" ", "-")  # a class of the style sheet
    paragraphs = [f'<p class="soft">{page_words(case["name"])}</p>',
                  f'<p class="big">{as_html(large[0].upper() + large[1:])}</p>']
    if reasons:
        paragraphs.append(f"<p>{as_html(reasons)}</p>")
    # Nothing is advised from costs or an acceptance that mean nothing.
    if case["N"] >= FEWEST_TOKENS and not disturbance(costs):
        advice = conditions(costs, case["acceptance"])
        paragraphs.append(f'<p class="soft small">{page_words(advice)}</p>')
    return f'<section class="answer {kind}">{"".join(paragraphs)}</section>'


def case_section(case: Mapping, costs: Costs) -> str:
    """Return the pictures and the figures of one temperature."""
    head = f"<h2>{page_words(case['name'])}</h2>"
    if "plain" not in case:
        return head + "<p>These figures were stored before intervals were measured.</p>"
    # The keys of `swatches` are classes of the style sheet, which have the pictures' colours.
    pictures = [
        figure("Speed-up against K", speedup_plot(case), swatches(
            {"curve": "predicted", "band": "its 90 % interval",
             "point": "measured, with interval", "one": "plain decoding"})),
        figure("Every decoder of the race", decoders_plot(case), caption(
            "Tokens per second over plain decoding's, the median of "
            f"{case['repeats']} runs, with the interval that decides.")),
        figure("Acceptance by position", acceptance_plot(case), caption(
            f"{acceptance_in_words(case)} A guess is tested if those before it were accepted. "
            "Intervals of 90 %.")),
        figure("Where the time goes, per token", time_plot(case), swatches(
            {"draft": "draft", "target": "target", "rest": "the rest: sampling, the test, "
             "Python"}))]
    return f'{head}<div class="figures">{"".join(pictures)}</div>{tables_of_case(case, costs)}'


def figure(title: str, picture: str, below: str) -> str:
    """Return a picture with its title and what is said below it."""
    return f"<figure><h3>{page_words(title)}</h3>{picture}{below}</figure>"


def caption(words: str) -> str:
    """Return a sentence below a picture."""
    return f'<figcaption class="small soft">{page_words(words)}</figcaption>'


def swatches(words_of: Mapping[str, str]) -> str:
    """Return a list of what is drawn; the keys are classes of the style sheet."""
    items = [f'<li><i class="swatch {name}"></i>{page_words(words)}</li>'
             for name, words in words_of.items()]
    return f'<figcaption><ul class="legend small soft">{"".join(items)}</ul></figcaption>'


# ---- figures

def tables_of_case(case: Mapping, costs: Costs) -> str:
    """Return all figures of one temperature as tables, which are closed at first."""
    every = [decoders_html(case), positions_html(case), costs_html(costs)]
    return f"<details><summary>All figures</summary>{''.join(every)}</details>"


def html_table(caption_text: str, head: Sequence, rows: Iterable[Sequence]) -> str:
    """Return a table that scrolls by itself if it is wider than the page."""
    head_cells = "".join(f"<th scope=col>{page_words(str(cell))}</th>" for cell in head)
    lines = []
    # The first cell of a row is its name.
    for first, *rest in rows:
        name = f'<th scope=row class="left">{page_words(str(first))}</th>'
        cells = "".join(f"<td>{page_words(str(cell))}</td>" for cell in rest)
        lines.append(f"<tr>{name}{cells}</tr>")
    table = (f"<table><caption>{page_words(caption_text)}</caption>"
             f"<thead><tr>{head_cells}</tr></thead><tbody>{''.join(lines)}</tbody></table>")
    return f'<div class="scroll" tabindex="0">{table}</div>'


def decoders_html(case: Mapping) -> str:
    """Return the table of the race."""
    head = ["decoder", "predicted", "measured (interval)", "tokens per pass", "draft, ms",
            "target, ms", "rest, ms"]
    # Plain decoding is the unit of speed-ups, and has one token per pass.
    rows = [["plain decoding", "-", "1.00", "1.00", *milliseconds_of(case["plain"]["time"])]]
    for name, row in case["rows"].items():
        # The formula predicts rounds of K guesses only.
        predicted = f"{row['predicted']:.2f}" if "predicted" in row else "-"
        rows.append([name, predicted, f"{row['speedup']:.2f}{interval_in_words(row)}",
                     f"{row['tokens_per_pass']:.2f}", *milliseconds_of(row["time"])])
    return html_table("Speed-up of each decoder, and milliseconds per token", head, rows)


def milliseconds_of(seconds: Mapping[str, float]) -> list[str]:
    """Return the parts of the time per token."""
    return [f"{1e3 * part:.2f}" for part in seconds.values()]


def positions_html(case: Mapping) -> str:
    """Return the table of the acceptance by position, and of what follows from it."""
    rows = []
    # Line K has the acceptance of guess K, and the speed-up predicted for rounds of K guesses.
    for K, place in enumerate(case["positions"], start=1):
        predicted = place["predicted"]
        rows.append([K, place["tested"], f"{place['acceptance']:.2f}{interval_in_words(place)}",
                     f"{predicted['speedup']:.2f}{interval_in_words(predicted)}"])
    return html_table("Acceptance by position, and the predicted speed-up with so many guesses",
                      ["position", "tested", "accepted (90 %)", "predicted (90 %)"], rows)


def costs_html(costs: Costs) -> str:
    """Return the table of the times of passes."""
    # passes[i] is the time of i + 1 rows.
    n_rows = range(2, len(costs.passes) + 1)
    names = ["a draft step", "1 row", *(f"{n} rows" for n in n_rows)]
    one_row = costs.passes[0]
    rows = [[name, f"{1e3 * seconds:.2f}", f"{seconds / one_row:.2f}"]
            for name, seconds in zip(names, [costs.draft, *costs.passes])]
    return html_table("Times of passes", ["pass", "ms", "in target rows"], rows)


# ---- conditions

def conditions_section(figures: Mapping) -> str:
    """Return what was measured on what, how the answer is decided, and the prompts."""
    case = figures["cases"][0]  # the conditions are equal in all cases
    facts = {"Target": figures["target"], "Draft": figures["draft"],
             "Machine": figures["measured"], "Texts": f"{figures['texts']}, every decoder "
             f"{case['repeats']} times"}
    if figures.get("vocabularies"):
        facts["Vocabularies"] = f"They differ: {figures['vocabularies']}."
    items = [f"<dt>{name}</dt><dd>{page_words(fact)}</dd>" for name, fact in facts.items()]
    return f"<dl>{''.join(items)}</dl>{rule_in_words(case)}{listed_prompts(figures)}"


def rule_in_words(case: Mapping) -> str:
    """Return how the answer is decided."""
    # Files of older versions have no intervals, so there is no rule.
    if "candidates" not in case:
        return ""
    words = (
        "It pays if the interval of at least one decoder is above 1. It does not pay if the "
        "intervals of all decoders are below 1. Otherwise it is not known from these prompts. "
        "Each of the first two answers is wrong with a probability of at most "
        f"{WRONG_AT_MOST:.0%}, for prompts like these. The interval comes from the bootstrap "
        "over prompts and repeats, with Student's quantile. Its lower end is made for the best "
        f"of {case['candidates']} decoders, because the fastest of several is partly the "
        f"luckiest. Texts of fewer than {FEWEST_TOKENS} tokens, fewer than {FEWEST_RUNS} runs, "
        "a single prompt, and costs that contradict each other give no answer.")
    return f"<details><summary>How the answer is decided</summary><p>{words}</p></details>"


def listed_prompts(figures: Mapping) -> str:
    """Return the list of the prompts, the first ones if they are many."""
    prompts = figures.get("prompts", [])
    if not prompts:
        return ""
    items = []
    for prompt in prompts[:MOST_LISTED]:
        # A long prompt is cut before it is escaped, so that no escape sequence is cut.
        dots = "…" if len(prompt) > CUT else ""
        items.append(f"<li><code>{page_words(prompt[:CUT])}{dots}</code></li>")
    n_more = len(prompts) - MOST_LISTED
    more = f"<p>and {n_more} more</p>" if n_more > 0 else ""
    return (f"<details><summary>The prompts</summary><ol>{''.join(items)}</ol>{more}"
            "</details>")
