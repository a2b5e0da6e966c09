"""Fill the README's quoted code, line counts and outputs from the project itself.

    python -m tools.readme            # all blocks; the outputs are those of real runs
    python -m tools.readme --code     # only what needs no run

A block is a comment that says what belongs there, and the fence behind it:

    <!-- run: COMMAND -->      the output of that command line
    <!-- code: FILE NAME -->   the source of that function
    <!-- lines -->             the reading order: a file a line, with its number of lines
    <!-- decoders -->          the decoders of variants/, as their registry describes them
    <!-- table: COMMAND -->    no fence: the Markdown that the command prints, up to <!-- end -->
"""

import argparse
import ast
import re
import subprocess
import sys
from pathlib import Path

from variants import DECODERS, settings

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"(<!-- (run|code|lines|decoders)(?:: ([^\n]*))? -->\n```\w*\n)(.*?)(\n```)",
                   re.DOTALL)
TABLE = re.compile(r"(<!-- table: ([^\n]*) -->\n)(.*?)(\n<!-- end -->)", re.DOTALL)
READING_ORDER = {
    "speculative.py": "the algorithm: guess, verify, step, generate",
    "sampling.py": "from logits to chance: temperature, top-k, top-p, sample, accept, residual",
    "gpt2.py": "GPT-2's forward pass as formulas, and its memory",
    "encoder.py": "text to ids and back",
    "utils.py": "checkpoints: find, check, convert, load",
    "download.py": "files that arrive whole or not at all",
    "tf_checkpoint.py": "OpenAI's checkpoints, through TensorFlow",
    "huggingface.py": "the same weights as Hugging Face keeps them",
    "window.py": "texts longer than the models' context",
    "main.py": "the command line",
    "report.py": "two decoders by the clock, and what is said of them",
    "watch.py": "a run that can be watched: every round as data, as a line, as a page",
    "theory.py": "the papers' closed forms, and why decoding waits for memory",
}


def source(argument):
    """The source of a top-level function, without its docstring: it stands in the file."""
    file, name = argument.split()
    text = (ROOT / file).read_text(encoding="utf-8")
    node = next(node for node in ast.parse(text).body if getattr(node, "name", None) == name)
    lines = text.split("\n")
    body = node.body[1:] if ast.get_docstring(node) else node.body
    head = lines[node.lineno - 1 : node.body[0].lineno - 1]
    return "\n".join(head + lines[body[0].lineno - 1 : node.end_lineno])


def lines(argument=""):
    """The files in reading order, with their numbers of lines."""
    count = lambda file: len((ROOT / file).read_text(encoding="utf-8").splitlines())
    return "\n".join(f"{i}. {file:<15} {count(file):>4} lines   {what}"
                     for i, (file, what) in enumerate(READING_ORDER.items(), 1))


def decoders(argument=""):
    """The decoders: name, whether its defaults keep the target's law, source."""
    def kept(name):
        return "exact" if DECODERS[name].exact(settings(name, {})) else "NOT exact"

    return "\n".join(f"--decoder {name:<12} {kept(name):<10} {entry.source}"
                     for name, entry in DECODERS.items())


def run(command):
    """What a command prints; `python` is the interpreter that runs this."""
    words = [sys.executable if word == "python" else word for word in command.split()]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.rstrip("\n")


def fill(text, kinds):
    """The text with its blocks of these kinds (name: function) made anew."""
    def block(match):
        head, kind, argument, old, tail = match.groups()
        return head + (kinds[kind](argument) if kind in kinds else old) + tail

    text = BLOCK.sub(block, text)
    if "table" in kinds:
        text = TABLE.sub(lambda match: match[1] + kinds["table"](match[2]) + match[4], text)
    return text


STATIC = {"code": source, "lines": lines, "decoders": decoders}  # kinds that need no run


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--code", action="store_true", help="only code and line counts, no runs")
    parser.add_argument("files", nargs="*", default=["README.md"])
    args = parser.parse_args()
    kinds = STATIC | ({} if args.code else {"run": run, "table": run})
    for name in args.files:
        path = ROOT / name
        path.write_text(fill(path.read_text(encoding="utf-8"), kinds), encoding="utf-8")


if __name__ == "__main__":
    main()
