"""The pages: links that lead somewhere, quoted code and stored figures as they are, no coinage."""

import doctest
import importlib
import json
import re
import shlex
from pathlib import Path

import pytest

from tools.readme import BLOCK, TABLE, fill, source

ROOT = Path(__file__).parent.parent
PAGES = [*(ROOT / page for page in ("README.md", ".github/CONTRIBUTING.md", ".github/SECURITY.md")),
         ROOT / "models" / "README.md", ROOT / "benchmarks" / "RESULTS.md",
         *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
FENCE, SPAN = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE), re.compile(r"`[^`\n]+`")
LINK = re.compile(r"\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)|\b(?:src|srcset|href)=\"([^\"]+)\"",
                  re.MULTILINE)
MACHINE = re.compile(r"/(?:work|home|root|tmp|var|opt|mnt|Users)/\w|[A-Z]:\\\\?Users")


def name(page):
    return page.relative_to(ROOT).as_posix()


def prose(text):
    """A page without its fenced code."""
    return FENCE.sub("", text)


def links(page):
    return ["".join(groups) for groups in LINK.findall(prose(TEXTS[page]))]


def anchors(text):
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


def fault(page, link):
    """What is wrong with a link of a page, or nothing."""
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists() or ROOT not in [target, *target.parents]:
        return f"no {path}"
    if not anchor:
        return ""
    text = target.read_text(encoding="utf-8")
    if target.suffix == ".md":
        return "" if anchor in anchors(text) else f"no heading #{anchor} in {target.name}"
    lines = [int(number) for number in re.findall(r"L(\d+)", anchor)]
    return "" if lines and max(lines) <= len(text.splitlines()) else f"no {anchor} in {path}"


@pytest.mark.parametrize("page", TEXTS, ids=name)
def test_every_relative_link_leads_to_a_file_and_a_place_in_it(page):
    relative = [link for link in links(page) if not re.match(r"\w+:", link)]
    assert not list(filter(None, (fault(page, link) for link in relative)))


@pytest.mark.parametrize("page", TEXTS, ids=name)
def test_every_label_of_a_link_is_defined(page):
    text = SPAN.sub("", prose(TEXTS[page]))
    defined = {label.lower() for label in re.findall(r"^\[([^\]]+)\]: ", text, re.MULTILINE)}
    assert {label.lower() for label in re.findall(r"\]\[([^\]]+)\]", text)} <= defined
    assert all(text.lower().count(f"[{label}]") > 1 for label in defined)


def test_a_link_that_leads_nowhere_is_seen():
    page = ROOT / "docs" / "theorem1.md"
    assert not fault(page, "../speculative.py#L1") and not fault(page, "#one-guess")
    for link in ("nowhere.md", "#nowhere", "errata.md#nowhere", "../speculative.py#L99999",
                 "../../elsewhere"):
        assert fault(page, link)


@pytest.mark.parametrize("page", TEXTS, ids=name)
def test_no_path_of_somebodys_machine_is_on_a_page(page):
    assert not MACHINE.search(TEXTS[page])


@pytest.mark.parametrize("page", TEXTS, ids=name)
def test_quoted_code_is_the_source(page):
    assert fill(TEXTS[page], {"code": source}) == TEXTS[page]


@pytest.mark.parametrize("page, command, quoted", [
    pytest.param(page, match[3], match[4], id=match[3]) for page in TEXTS
    for match in TABLE.finditer(TEXTS[page]) if " --show " in (match[3] or "")])
def test_a_table_of_stored_figures_has_them(page, command, quoted, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    _, _, module, *words = shlex.split(command)  # python -m MODULE ..
    importlib.import_module(module).main(words)
    assert capsys.readouterr().out.rstrip("\n") == quoted


@pytest.mark.parametrize("page", [page for page in TEXTS if ">>> " in TEXTS[page]], ids=name)
def test_examples_do_what_they_show(page):
    failed, tried = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert tried and not failed


def test_the_round_that_is_explained_is_the_recorded_one():
    """docs/how-it-works.md beside the data of its picture."""
    page = TEXTS[ROOT / "docs" / "how-it-works.md"]
    data = json.loads((ROOT / "benchmarks/results/round.json").read_text(encoding="utf-8"))
    *kept, last = data["ids"]
    for guess in data["guesses"][: len(kept) + 1]:
        end = "accepted" if guess["accepted"] else f"rejected, replaced by: {last['text'].strip()}"
        assert (f"| {guess['text'].strip()} | {guess['p_draft']:.3f} | {guess['p_target']:.3f} | "
                f"{guess['threshold']:.2f} | {guess['u_accept']:.2f} | {end} |") in page
    assert data["command"] in page


def test_the_front_page_says_distribution():
    """"Law" is a word of the proofs, and the name of the function that enumerates."""
    page = BLOCK.sub("", TEXTS[ROOT / "README.md"])
    assert not re.search(r"\blaws?\b", SPAN.sub("", prose(page)), re.IGNORECASE)
