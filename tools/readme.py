"""Fill the README's quoted code, tables and outputs from the project itself.

    python -m tools.readme                       # all blocks; the outputs are those of real runs
    python -m tools.readme --code                # only what needs no run
    python -m tools.readme README.md docs/*.md   # other files

A block is a comment that says what belongs there, and what stands behind it:

    <!-- run: COMMAND -->          a fence with the output of that command line
    <!-- code: FILE NAME .. -->    a fence with the source of these functions
    <!-- decoders -->              the table of variants/, as its registry describes it, ...
    <!-- table: COMMAND -->        ... and the Markdown that a command prints; both up to
    <!-- end -->
"""

import argparse
import ast
import re
import subprocess
import sys
from pathlib import Path

from variants import DECODERS, settings

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"(<!-- (run|code)(?:: ([^\n]*))? -->\n```\w*\n)(.*?)\n?^```",
                   re.DOTALL | re.MULTILINE)
TABLE = re.compile(r"(<!-- (table|decoders)(?:: ([^\n]*))? -->\n)(.*?)\n<!-- end -->", re.DOTALL)
IDEA = re.compile(r"What it adds to \S+(?: and \S+)?(?:: | is )(.*?)\.\s", re.DOTALL)


def source(argument):
    """The source of some functions of one file, without their docstrings: these stand there."""
    file, *names = argument.split()
    text = (ROOT / file).read_text(encoding="utf-8")
    nodes = {getattr(node, "name", None): node for node in ast.parse(text).body}
    return "\n\n".join(without_docstring(text.split("\n"), nodes[name]) for name in names)


def without_docstring(lines, node):
    """The lines of one function."""
    body = node.body[1:] if ast.get_docstring(node) else node.body
    head = lines[node.lineno - 1 : node.body[0].lineno - 1]
    return "\n".join(head + lines[body[0].lineno - 1 : node.end_lineno])


def decoders(argument=None):
    """The decoders as Markdown: file, paper, whether it is exact, and its first idea."""
    rows = [f"| [{name}](variants/{name}.py) | {paper(entry)} | {exactness(name)} | {idea(entry)} |"
            for name, entry in DECODERS.items()]
    return "\n".join(["| `--decoder` | paper | exact | what it adds |", "|---|---|---|---|", *rows])


def paper(entry):
    """Its source, linked."""
    return f"[{entry.source}]({entry.url})" if entry.url else entry.source


def exactness(name):
    """`exact` by its defaults, `with FLAG` if another value of one flag makes it so, or `no`."""
    entry = DECODERS[name]
    if entry.exact(settings(name, {})):
        return "exact"
    for flag, spec in entry.flags.items():
        for value in spec.choices or (1, 1.1, -2.0):
            if entry.exact(settings(name, {flag: value})):
                return f"with `--{flag} {value}`"
    return "no"


def idea(entry):
    """The first thing that its file says it adds, or nothing."""
    found = IDEA.search(sys.modules[f"variants.{entry.name}"].__doc__)
    return " ".join(found[1].split()) if found else ""


def run(command):
    """What a command prints; `python` is the interpreter that runs this."""
    words = [sys.executable if word == "python" else word for word in command.split()]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.rstrip("\n")


def fill(text, kinds):
    """The text with its blocks of these kinds (name: function) made anew."""
    def block(match, end):
        head, kind, argument = match.group(1, 2, 3)
        return f"{head}{kinds[kind](argument)}\n{end}" if kind in kinds else match[0]

    text = BLOCK.sub(lambda match: block(match, "```"), text)
    return TABLE.sub(lambda match: block(match, "<!-- end -->"), text)


STATIC = {"code": source, "decoders": decoders}  # kinds that need no run


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--code", action="store_true", help="only code and decoders, no runs")
    parser.add_argument("files", nargs="*", default=["README.md"])
    args = parser.parse_args()
    kinds = STATIC | ({} if args.code else {"run": run, "table": run})
    for name in args.files:
        path = ROOT / name
        path.write_text(fill(path.read_text(encoding="utf-8"), kinds), encoding="utf-8")


if __name__ == "__main__":
    main()
