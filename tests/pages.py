"""Read the pages of the repository, and what they quote: code and outputs."""

import re
from pathlib import Path

from docs.readme import BLOCK

ROOT = Path(__file__).parents[1]


def file_text(name):
    """Return the text of a file of the repository, such as docs/learn.md."""
    return (ROOT / name).read_text(encoding="utf-8")


def on_one_line(text):
    """Return a text without line ends, to search it for a sentence."""
    return " ".join(text.split())


def section(text, heading):
    """Return what a page has below this heading of the second level, up to the next one."""
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def code(text, kind, words=""):
    """Return the code between fences, ```kind and ```, that has these words in it."""
    blocks = re.findall(rf"^```{kind}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    [block] = [block for block in blocks if words in block]
    return block


def output(text, words):
    """Return what a page quotes as the output of the command with these words."""
    [quoted] = [block["text"] for block in BLOCK.finditer(text)
                if words in (block["argument"] or "")]  # a table of decoders has no command
    return quoted
