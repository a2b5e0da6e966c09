"""Fill the quoted code, tables and outputs of README.md and docs/ from the project itself.

A block begins with one of these comments. It ends with the fence that follows the comment, or
at <!-- end -->:

    <!-- run: COMMAND -->          the output of that command
    <!-- table: COMMAND -->        likewise, if the output is Markdown
    <!-- code: FILE NAME .. -->    the source of these functions, without their docstrings
    <!-- decoders -->              the table of variants/
    <!-- families -->              the decoders of variants/ by what they change
    <!-- rules: LINK -->           a sentence that counts the rules of exact/, with a link

Figures in the text are renewed from the tables that markers name (docs/figures.py).
"""

import importlib
import inspect
import re
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

from docs import figures
from exact.rules import register, settings
from variants import DECODERS
from variants.registry import FAMILIES

ROOT = Path(__file__).parent.parent
BLOCK_KINDS = "run|table|code|decoders|families|rules"
# re.VERBOSE ignores the spaces of a pattern, so each space of the comments is written [ ].
BLOCK = re.compile(rf"""
    (?P<head>
        <!--[ ](?P<kind>{BLOCK_KINDS})
        (:[ ](?P<argument>.*?))?[ ]-->\n      # "decoders" and "families" have no argument
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
        code = inspect.getsource(attrgetter(name)(module))
        without_docstring = re.sub(r'\n +"""(.|\n)*?"""', "", code, count=1)
        codes.append(without_docstring.rstrip())
    return "\n\n".join(codes)


def decoders_table(argument=None):
    """Return docs/decoders.md's table: file, paper, whether it is exact, and its idea."""
    rows = ["| `--decoder` | paper | exact | what it adds |", "|---|---|---|---|"]
    for name, entry in DECODERS.items():
        # The file that defines `build`.
        file = entry.build.__module__.replace(".", "/") + ".py"
        sources = entry.source
        # A decoder may have several papers: "A; B" with the addresses "URL_A URL_B".
        if entry.url:
            papers = zip(entry.source.split("; "), entry.url.split())
            sources = "; ".join(f"[{paper}]({url})" for paper, url in papers)
        rows.append(f"| [{name}](../{file}) | {sources} | {exactness(entry.exact)} | "
                    f"{entry.idea} |")
    return "\n".join(rows)


def exactness(exact):
    """Return whether a decoder is exact, or with which flags; only the flags are code."""
    if isinstance(exact, bool):
        return "exact" if exact else "no"
    # A flag with its value, such as "--lenience 1", becomes code. It ends before " above",
    # before " below", or at the end.
    return re.sub("--.*?(?= above| below|$)", r"`\g<0>`", exact)


def families(argument=None):
    """Return the README's table: the idea of one decoder per family, and the other decoders."""
    rows = ["| what a decoder changes | for example | more of this kind |", "|---|---|---|"]
    for family in FAMILIES:
        # The papers' own decoder has no family, so it is in no row.
        example, *others = [name for name, entry in DECODERS.items() if entry.family == family]
        names = ", ".join(f"`{name}`" for name in others)
        rows.append(f"| {family} | `{example}` {DECODERS[example].idea} | {names} |")
    return "\n".join(rows)


def rules_sentence(link):
    """Return a sentence that counts all rules, the wrong ones, and these in public places."""
    every = [*register.RULES, *settings.SETTINGS]
    wrong = [rule for rule in every if not rule.exact]
    met_in_public = [rule for rule in wrong if rule.seen]  # `seen` has links to the places
    return (f"Of [{len(every)} rules]({link}) for guessing and testing, {len(wrong)} change "
            "the distribution of the text.\n"
            f"We found {len(met_in_public)} of those {len(wrong)} in papers, public code and "
            "public discussions.")


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


STATIC = {"code": source, "decoders": decoders_table, "families": families,
          "rules": rules_sentence}  # kinds that need no run


def update(files, only_code=False):
    """Fill the blocks of some pages and renew their figures; run no command if `only_code`."""
    kinds = STATIC if only_code else STATIC | {"run": shell_output, "table": shell_output}
    for path in (ROOT / name for name in files):
        page = fill(path.read_text(encoding="utf-8"), kinds)
        # Pages without a marker have figures that are not bound.
        if figures.MARKER.search(page):
            # The error is raised again with the name of the page.
            try:
                page = figures.renewed_page(page)
            except figures.Unbound as error:
                raise figures.Unbound(f"{path.relative_to(ROOT)}: {error}") from None
        path.write_text(page, encoding="utf-8")
