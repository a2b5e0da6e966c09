"""Fill the README's and the docs' quoted code, tables and outputs from the project itself.

    python -m tools.readme                            # all blocks of README.md; runs its commands
    python -m tools.readme README.md docs/*.md --code # only what needs no run, in these files

A block begins with a comment that says what belongs in it:

    <!-- run: COMMAND -->          a fence with the output of that command (its end: | tail -n)
    <!-- code: FILE NAME .. -->    a fence with the source of these functions
    <!-- decoders -->              the table of variants/, up to <!-- end -->
    <!-- table: COMMAND -->        the Markdown that a command prints, up to <!-- end -->
"""

import argparse
import ast
import re
import subprocess
import sys
from pathlib import Path

from variants import DECODERS

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"(<!-- (run|code)(?:: ([^\n]*))? -->\n```\w*\n)(.*?)\n?^```",
                   re.DOTALL | re.MULTILINE)
TABLE = re.compile(r"(<!-- (table|decoders)(?:: ([^\n]*))? -->\n)(.*?)\n<!-- end -->", re.DOTALL)


def source(argument):
    """Return the source of some functions of one file, without their docstrings."""
    file, *names = argument.split()
    text = (ROOT / file).read_text(encoding="utf-8")
    nodes = {getattr(node, "name", None): node for node in ast.parse(text).body}
    return "\n\n".join(without_docstring(text.split("\n"), nodes[name]) for name in names)


def without_docstring(lines, node):
    """Return the lines of one function."""
    body = node.body[1:] if ast.get_docstring(node) else node.body
    head = lines[node.lineno - 1 : node.body[0].lineno - 1]
    return "\n".join(head + lines[body[0].lineno - 1 : node.end_lineno])


def decoders(argument=None):
    """Return docs/decoders.md's table: file, paper, whether it is exact, and its idea."""
    rows = []
    for name, entry in DECODERS.items():
        file = entry.build.__module__.replace(".", "/") + ".py"
        paper = f"[{entry.source}]({entry.url})" if entry.url else entry.source
        rows.append(f"| [{name}](../{file}) | {paper} | {exactness(entry)} | {entry.idea} |")
    return "\n".join(["| `--decoder` | paper | exact | what it adds |", "|---|---|---|---|", *rows])


def exactness(entry):
    """Return "exact", "no", or the flag that makes a decoder exact."""
    if isinstance(entry.exact, str):
        return re.sub("--.*", r"`\g<0>`", entry.exact)
    return "exact" if entry.exact else "no"


def run(command):
    """Return what a command prints, its last n lines after `| tail -n`; `python` is this one."""
    command, _, n_lines = command.partition(" | tail -")
    words = [sys.executable if word == "python" else word for word in command.split()]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    return "\n".join(done.stdout.rstrip("\n").split("\n")[-int(n_lines or 0):])


def fill(text, kinds):
    """Return the text with its blocks of these kinds (name: function) renewed."""
    def block(match, end):
        head, kind, argument = match.group(1, 2, 3)
        return f"{head}{kinds[kind](argument)}\n{end}" if kind in kinds else match[0]

    text = BLOCK.sub(lambda match: block(match, "```"), text)
    return TABLE.sub(lambda match: block(match, "<!-- end -->"), text)


STATIC = {"code": source, "decoders": decoders}  # kinds that need no run


def main():
    parser = argparse.ArgumentParser("python -m tools.readme", description=__doc__.split("\n")[0])
    parser.add_argument("--code", action="store_true", help="only code and decoders, no runs")
    parser.add_argument("files", nargs="*", default=["README.md"])
    args = parser.parse_args()
    kinds = STATIC | ({} if args.code else {"run": run, "table": run})
    for name in args.files:
        path = ROOT / name
        path.write_text(fill(path.read_text(encoding="utf-8"), kinds), encoding="utf-8")


if __name__ == "__main__":
    main()
