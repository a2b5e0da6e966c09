"""Fill the quoted code, tables and outputs of README.md and docs/ from the project itself.

A block begins with one of these comments. It ends with the fence that follows the comment, or
at <!-- end -->:

    <!-- run: COMMAND -->          the output of that command
    <!-- table: COMMAND -->        likewise, if the output is Markdown
    <!-- code: FILE NAME .. -->    the source of these functions, without their docstrings
    <!-- methods: FAMILY -->       the decoders of this family: needs, costs, measured speed
    <!-- which -->                 the decoders that were faster than plain decoding
    <!-- rules: LINK -->           a sentence that counts the wrong rules of exact/, with a link

Figures in the text are renewed from the tables that markers name (docs/figures.py).
"""

import importlib
import re
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

from benchmarks.variants import read_row
from docs import figures
from docs.tables import stored
from exact.rules import register, settings
from page.listing import code_lines
from variants import DECODERS

ROOT = Path(__file__).parent.parent
BLOCK_KINDS = "run|table|code|methods|which|rules"
# re.VERBOSE ignores the spaces of a pattern, so each space of the comments is written [ ].
BLOCK = re.compile(rf"""
    (?P<head>
        <!--[ ](?P<kind>{BLOCK_KINDS})
        (:[ ](?P<argument>.*?))?[ ]-->\n      # "which" has no argument, "methods" may have none
        (?P<fence>```\w*\n)?                  # in front of code and outputs, not of tables
    )
    (?P<text>(.|\n)*?)\n?                     # what is replaced
    ^(?P<end>(?(fence)```|<!--[ ]end[ ]-->))  # ``` if there is a fence, otherwise the comment
    """, re.MULTILINE | re.VERBOSE)


def source(argument):
    """Return the source of some functions of one file, without their docstrings."""
    file, *names = argument.split()
    module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    codes = []
    for name in names:
        # attrgetter, not getattr, because a name may be CLASS.METHOD.
        lines = code_lines(attrgetter(name)(module))
        codes.append("\n".join(text for _, text in lines))
    return "\n\n".join(codes)


def raced_rows(temperature):
    """Return {row of benchmarks/variants.py: its figures}."""
    return {row["decoder"]: row for row in stored("variants")["tables"][str(temperature)]}


def bar(name, temperature):
    """Return a decoder's measured speed-up with a bar; "-" if it was not measured."""
    if name not in raced_rows(temperature):
        return "-"
    speed = raced_rows(temperature)[name]["speedup"]
    return f"{'▬' * int(5 * speed + 0.5)} {speed:.2f}"  # five marks are plain decoding's speed


def methods_table(family=None):
    """Return the table of a family: what a decoder needs and costs, and its measured speed."""
    rows = ["| method | paper | needs | exact | positions per pass | speed-up at temperature 0 "
            "| at 1 |", "|---|---|---|---|---|---|---|"]
    for name, entry in DECODERS.items():
        if entry.family != (family or ""):  # the papers' own method has no family
            continue
        defaults = entry.settings({})
        all_needs = entry.needs(defaults)
        needs = ["a draft"] * ("draft" in all_needs) + ["training"] * ("heads" in all_needs)
        for flag, value in (entry.without_draft or {}).items():
            needs = [f"a draft (none with `--{flag} {value:g}`)"]
        positions = "-"
        if name in raced_rows(0):
            positions = f"{raced_rows(0)[name]['positions/pass']:.1f}"
        # A decoder may have several papers: "A; B" with the addresses "URL_A URL_B".
        papers = "; ".join(f"[{paper}]({url})" for paper, url
                           in zip(entry.source.split("; "), entry.url.split()))
        cells = [name, papers, ", ".join(needs) or "the target", how_exact(entry, defaults),
                 positions, bar(name, 0), bar(name, 1)]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def which_table(argument=None):
    """Return up to six decoders whose slowest run beat plain decoding, fastest first."""
    rows = ["| you have | temperature 0 | temperature 1 |", "|---|---|---|"]
    for title, need, is_exact in [("the target alone", set(), "yes"),
                                  ("a draft", {"draft"}, "yes"),
                                  ("heads, trained on the target", {"heads"}, "yes"),
                                  ("any of these, with a changed distribution", None, "no")]:
        cells = []
        for temperature in (0, 1):
            fast = {}  # {decoder: (speed-up, row)} of its fastest row
            for text, row in raced_rows(temperature).items():
                fits = text != "plain" and need in (None, needed(text))
                if fits and row["exact"] == is_exact and row["low"] > 1:
                    name = text.split()[0]
                    fast[name] = max(fast.get(name, (0, "")), (row["speedup"], text))
            best = sorted(fast.values(), reverse=True)[:6]
            cells.append(", ".join(f"`{text}` {speed:.2f}" for speed, text in best) or "-")
        rows.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(rows)


def needed(text):
    """Return which of a draft and heads a row such as "suffix --sure 0" needs."""
    _, name, settings = read_row(text)
    decoder = DECODERS[name]
    return decoder.needs(decoder.settings(settings)) & {"draft", "heads"}


def how_exact(entry, defaults):
    """Return whether a decoder is exact, by default or only with some flags."""
    # A flag with its value, such as "--lenience 1", becomes code. It ends before " above",
    # before " below", or at the end.
    words = re.sub("--.*?(?= above| below|$)", r"`\g<0>`", entry.exact_words)
    if words == "exact":
        words = "yes"
    elif words.startswith("with "):
        words = f"by default ({words})" if entry.exact(defaults) else f"no; yes {words}"
    return f"{words}; greedy only" if entry.greedy else words


def rules_sentence(link):
    """Return a sentence that counts the wrong rules: from public places, fixed, and our own."""
    wrong = [rule for rule in [*register.RULES, *settings.SETTINGS] if not rule.exact]
    public = [rule for rule in wrong if rule.seen]  # `seen` has links to the places
    n_fixed = sum(rule.status == "fixed" for rule in public)
    return (f"We found [{len(public)} wrong rules]({link}) in public code, papers and "
            f"discussions ({n_fixed} have since been fixed),\n"
            f"and made up {len(wrong) - len(public)} more to test our own tools.")


def shell_output(line):
    """Return what a command line prints in a shell; `python` is this Python."""
    # Only the first word is replaced; there are quotes, because its path may have spaces.
    line = line.replace("python", f'"{sys.executable}"', 1)
    return subprocess.run(line, shell=True, cwd=ROOT, stdout=subprocess.PIPE, text=True,
                          check=True).stdout.rstrip("\n")


def fill(text, kinds):
    """Return a page whose blocks are filled; `kinds` is {kind: function of an argument}.

    Blocks of other kinds stay as they are.
    """
    def filled_block(block):
        """Return the text of a matched block with its new content."""
        if block["kind"] not in kinds:
            return block[0]  # the whole block, as it is
        content = kinds[block["kind"]](block["argument"])
        return f"{block['head']}{content}\n{block['end']}"

    return BLOCK.sub(filled_block, text)


STATIC = {"code": source, "methods": methods_table, "which": which_table,
          "rules": rules_sentence}  # kinds that need no run


def update(files, only_code=False):
    """Fill the blocks of some pages and renew their figures; run no command if `only_code`."""
    kinds = STATIC if only_code else STATIC | {"run": shell_output, "table": shell_output}
    for path in (ROOT / name for name in files):
        page = fill(path.read_text(encoding="utf-8"), kinds)
        # Pages without a marker have figures that are not bound.
        if figures.MARKER.search(page):
            try:
                page = figures.renewed_page(page)
            except figures.Unbound as error:
                raise figures.Unbound(f"{path.relative_to(ROOT)}: {error}") from None
        path.write_text(page, encoding="utf-8")
