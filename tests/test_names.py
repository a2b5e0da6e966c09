"""Test that each name of the product is defined in one file.

A reader who searches for a function finds one place. Two checks:
    functions and classes    defined at the top of one file only
    constants                of one file, if a different file of the product uses them; a constant
                             that its own file alone uses (K, WIDTH) may have a common name
"""

import ast
from collections import defaultdict
from pathlib import Path

from tests.pages import ROOT

PROTOCOL = {  # a function of every file of a kind, called through the file
    "main",  # of every command
    "build",  # of a decoder in variants/
    "draw",  # of a picture; batched.draw draws tokens for arrays, as a fault's lines name it
    "all_figures", "paragraphs",  # of a table in benchmarks/
    "read_hparams", "load_all_weights",  # of a layout of checkpoints: huggingface, openai
}
TWINS = {  # tests of a round in exact/rules/verifiers.py, and of batches of rounds in batched.py
    "chain", "no_bonus", "traversal",
}
STANDALONE = {  # docs/sixty_lines.py and exact/oracle.py import nothing of the product
    "guess", "sample", "verify", "TOYS",
}
OTHERS = {
    "softmax",  # gpt2.py's keeps the dtype of the weights; sampling.py's returns float64
}
ALLOWED = PROTOCOL | TWINS | STANDALONE | OTHERS


def syntax_trees(root=ROOT):
    """Return {path: syntax tree} of the Python files outside tests/."""
    paths = [path for path in sorted(root.rglob("*.py"))
             if "tests" not in path.relative_to(root).parts]
    return {path.relative_to(root).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
            for path in paths}


def defined_names(tree):
    """Return the functions and classes that a file defines at its top, and its constants."""
    functions = set()
    constants = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            functions.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            constants |= {part.id for target in targets for part in ast.walk(target)
                          if isinstance(part, ast.Name)}
    # `ratio = lambda ..` is a function, whose name is in small letters.
    functions |= {name for name in constants if not name.isupper()}
    return functions, constants - functions


def used_names(trees):
    """Return the names that a file imports from a different one, or reads as module.NAME."""
    modules = {Path(path).stem for path in trees}
    used = set()
    for node in (node for tree in trees.values() for node in ast.walk(tree)):
        if isinstance(node, ast.ImportFrom):
            used |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in modules:
                used.add(node.attr)
    return used


def repeated_names(trees):
    """Return {name: its files} of the names that must be unique and are defined in several."""
    used = used_names(trees)
    files_of = defaultdict(list)
    for path, tree in trees.items():
        functions, constants = defined_names(tree)
        for name in functions | constants & used:
            files_of[name].append(path)
    return {name: files for name, files in sorted(files_of.items()) if len(files) > 1}


def test_exactly_the_allowed_names_are_defined_in_several_files():
    repeated = repeated_names(syntax_trees())
    assert {name: files for name, files in repeated.items() if name not in ALLOWED} == {}
    assert ALLOWED <= repeated.keys()


def test_repeated_names_are_found():
    sources = {"a.py": "K = N = 1\nMOST = 2\nratio = lambda: 1\ndef first(): pass",
               "b.py": "K = N = 1\nMOST = 3\nratio: int = 2\nclass first: pass",
               "c.py": "from a import MOST\nprint(a.K)\ndef other(): first = 1"}
    trees = {path: ast.parse(source) for path, source in sources.items()}
    files = ["a.py", "b.py"]
    assert repeated_names(trees) == dict.fromkeys(["K", "MOST", "first", "ratio"], files)
