"""The pages: links lead somewhere, quoted code is the source, outputs are those of the commands."""

import ast
import doctest
import importlib
import json
import re
import shlex
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import speculative
from docs import readme, sixty_lines, tour
from docs.readme import BLOCK, STATIC, exactness, families, fill, shell_output, source
from docs.tables import K_by_hand, stored
from theory import speedup
from theory.hardware import crossover_batch, pass_latency
from variants import DECODERS
from variants.registry import FAMILIES

ROOT = Path(__file__).parent.parent
PAGES = [*(ROOT / page for page in ("README.md", ".github/CONTRIBUTING.md", ".github/SECURITY.md",
                                    "models/README.md", "benchmarks/RESULTS.md")),
         *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
README, LEARN, PAPERS = (TEXTS[ROOT / name] for name in ("README.md", "docs/learn.md",
                                                         "docs/papers.md"))
TOUR = tour.TOUR.read_text(encoding="utf-8")
REQUIREMENTS = [line.split("  #")[0] for line in
                (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()]
LEARN_WORDS = " ".join(LEARN.split())  # without line ends
SPEED_WORDS = " ".join(TEXTS[ROOT / "docs/speed.md"].split())
FENCE, SPAN = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE), re.compile(r"`[^`\n]+`")
LINK = re.compile(r"\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)|\b(?:src|srcset|href)=\"([^\"]+)\"",
                  re.MULTILINE)
MACHINE = re.compile(r"/(?:work|home|root|tmp|var|opt|mnt|Users)/\w|[A-Z]:\\\\?Users")
QUOTES = re.findall(r"^\|.*\| \[([\w/]+\.py)\] `([\w.]+)` \| `(.+)` \|$", PAPERS, re.MULTILINE)
NOTES = re.findall(r'^\|.*\| \[([\w/]+\.\w+)\]: "(.+)" \|$', PAPERS, re.MULTILINE)
EACH_PAGE = pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.name)


# ---- links

def prose(text):
    """Return a page without its fenced code."""
    return FENCE.sub("", text)


def anchors(text):
    """Return the anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


def leads(page, link):
    """Return whether a link of a page leads to a file of the repository, and to a place in it."""
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    found = target.is_relative_to(ROOT) and target.exists()
    if not found or not anchor:
        return found
    text = target.read_text(encoding="utf-8")
    if target.suffix == ".md":
        return anchor in anchors(text)
    return max(map(int, re.findall(r"\d+", anchor))) <= text.count("\n")


@EACH_PAGE
def test_every_link_leads_somewhere_and_no_path_is_of_one_machine(page):
    assert not MACHINE.search(TEXTS[page])
    links = ["".join(groups) for groups in LINK.findall(prose(TEXTS[page]))]
    assert all(leads(page, link) for link in links if not re.match(r"\w+:", link))
    text = SPAN.sub("", prose(TEXTS[page]))
    defined = {label.lower() for label in re.findall(r"^\[([^\]]+)\]: ", text, re.MULTILINE)}
    assert {label.lower() for label in re.findall(r"\]\[([^\]]+)\]", text)} <= defined
    assert all(text.lower().count(f"[{label}]") > 1 for label in defined)


def test_every_core_file_and_every_family_is_on_the_front_page():
    assert all(f"]({path.name})" in README for path in ROOT.glob("*.py"))
    assert families() in README


def test_every_decoder_has_a_family_and_a_paragraph_in_its_section():
    sections = {}  # {heading: its text}; guesses.md has the families that differ in the guess
    for page in ("docs/decoders.md", "docs/guesses.md"):
        for section in TEXTS[ROOT / page].split("\n## "):
            sections[section.partition("\n")[0]] = section
    for name, entry in DECODERS.items():
        if name != "speculative":  # the root of the family
            assert entry.family in FAMILIES, name
            assert f"**[{name}](" in sections[entry.family[0].upper() + entry.family[1:]]


# ---- quoted code and outputs

def test_only_flags_and_their_values_are_shown_as_code():
    for entry in DECODERS.values():
        for shown in SPAN.findall(exactness(entry.exact)):
            assert re.fullmatch(r"`(--\w+( [\w.]+)?)( --\w+( [\w.]+)?)*`", shown), shown
    assert exactness("with --fallback above 1") == "with `--fallback` above 1"
    assert exactness("with --selection 1 --minimum 1") == "with `--selection 1 --minimum 1`"


def test_a_page_that_is_not_there_is_refused_in_a_sentence(capsys):
    assert readme.main(["nosuch.md", "--code"]) == 2
    assert capsys.readouterr().err.startswith("docs.readme: ")


@EACH_PAGE
def test_quoted_code_and_tables_are_the_sources(page):
    assert fill(TEXTS[page], STATIC) == TEXTS[page]


def words(output):
    """Return what is the same in every run: all but the lines that a clock or the machine fills."""
    timed = ("Time", "speed-up", "time", "tokens per second", "ms per", "Matrix", "Try")
    return [line for line in output.split("\n") if not line.startswith(timed)]


def blocks(kind, flag=""):
    """Return what a test needs to compare each block with the output of its command."""
    found = [block for text in TEXTS.values() for block in BLOCK.finditer(text)]
    return pytest.mark.parametrize("command, quoted", [
        pytest.param(block["argument"], block["text"], id=block["argument"])
        for block in found if block["kind"] == kind and flag in block["argument"]])


@blocks("run")
def test_a_quoted_output_is_what_the_command_prints(command, quoted):
    assert words(shell_output(command)) == words(quoted)


@blocks("table", " --show ")
def test_a_table_of_stored_figures_has_them(command, quoted, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    _, _, module, *flags = shlex.split(command)  # python -m MODULE ..
    importlib.import_module(module).main(flags)
    assert capsys.readouterr().out.rstrip("\n") == quoted


@EACH_PAGE
def test_examples_do_what_they_show(page):
    assert not doctest.testfile(str(page), module_relative=False, encoding="utf-8").failed


def example(text, word):
    """Return the Python block of a page that has this word in it."""
    return next(block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
                if word in block)


def test_the_short_list_of_packages_is_all_that_the_main_job_needs():
    short = set(re.search(r"^pip install ([^-#\n]*)", README, re.MULTILINE)[1].split())
    whole = {re.match(r"[\w-]+", line)[0] for line in REQUIREMENTS}
    hidden = {"cupy", "threadpoolctl", "torch"}
    hidden |= {name.replace("-", "_") for name in whole - short}
    code = ("import sys; sys.modules |= dict.fromkeys(sys.argv[1:]); sys.argv[1:] = []; "
            "import main; sys.exit(main.main(['--n_tokens_to_generate', '4']))")
    done = subprocess.run([sys.executable, "-c", code, *hidden], cwd=ROOT, capture_output=True,
                          text=True, timeout=120)
    assert short < whole and (done.returncode, done.stderr) == (0, "")


def test_pyproject_names_packages_of_requirements_txt_with_its_bounds():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {line.replace("'", '"') for line in project["dependencies"]} <= {*REQUIREMENTS}
    assert f"Python {project['requires-python'].removeprefix('>=')} or newer" in README


def test_the_citation_has_the_version_and_the_licence_of_pyproject():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    fields = dict(re.findall(r'^([\w-]+): "?([^"\n]+)"?$', citation, re.MULTILINE))
    assert (fields["version"], fields["license"]) == (project["version"], project["license"])
    assert fields["title"] == project["description"]


# ---- the programs

def test_the_loop_of_learn_md_draws_the_tokens_of_speculative_py():
    for seed in range(100):
        target, draft = (sixty_lines.make_model(sharpness, seed) for sharpness in (1.5, 0.7))
        N, K, rng = 1 + seed % 20, 1 + seed % 5, partial(np.random.default_rng, seed)
        wanted = speculative.speculative_sampling([0, 1], draft, target, N, K, rng())
        ids, n_passes = sixty_lines.speculative([0, 1], draft, target, N, K, rng())
        assert wanted == ids and N / (K + 1) <= n_passes <= N
        assert sixty_lines.autoregressive([0, 1], target, N, rng()) == \
            speculative.autoregressive_sampling([0, 1], target, N, rng())


def test_the_round_of_the_front_page_draws_the_tokens_of_speculative_py():
    one_round = compile(example(README, "x = x + verify"), "README.md", "exec")
    for seed in range(100):
        target, draft = (sixty_lines.make_model(sharpness, seed) for sharpness in (1.5, 0.7))
        K, rng = 1 + seed % 5, partial(np.random.default_rng, seed)
        names = vars(sixty_lines) | {"x": [0, 1], "K": K, "draft": draft, "target": target,
                                     "rng": rng()}
        for _ in range(5):
            exec(one_round, names)
        n_new = len(names["x"]) - 2
        # With K + 1 more tokens to write, no round of the loop is shorter than those above.
        longer = speculative.speculative_sampling([0, 1], draft, target, n_new + K + 1, K, rng())
        assert longer[: 2 + n_new] == names["x"] and 5 <= n_new <= 5 * (K + 1)


# ---- figures of docs/learn.md

def table(text, first):
    """Return the cells of the table whose head begins with these words, a list for each row."""
    lines = text[text.index(f"\n| {first}") + 1 :].split("\n\n")[0].split("\n")
    return [[cell.strip() for cell in line.split("|")[1:-1]]
            for line in lines if line.startswith("|")]


def test_the_words_of_the_worked_round_are_the_recorded_ones():
    recorded = stored("round")
    assert f"`{recorded['command']}`" in LEARN
    _, _, *rows = table(LEARN, "guess x |")
    for (word, *_, verdict), guess in zip(rows, recorded["guesses"], strict=True):
        assert word == guess["text"].strip()
        assert verdict == ("accepted" if guess["accepted"] else "rejected")
    *written, replacement = (token["text"].strip() for token in recorded["ids"])
    assert f'"{" ".join([*written, replacement])}"' in LEARN_WORDS
    assert f'The token "{replacement}" has' in LEARN_WORDS


def test_the_command_with_the_pairs_costs_prints_the_speed_ups_of_the_page(capsys):
    (command,) = re.findall(r"`python -m theory.speedup ([^`]*)`", LEARN)
    costs = [row["m"] for row in K_by_hand().values()]
    assert command == (f"--alpha 0.721 --c 0.108 --m {' '.join(f'{cost:.3f}' for cost in costs)}")
    speedup.main(command.split())
    printed = capsys.readouterr().out
    assert "The best K is 3: 1.77 times" in printed and "| 8 | 3.40 | 1.30 |" in printed
    assert "For K = 3 the formula gives a speed-up of 1.77" in LEARN_WORDS
    assert "For K = 8 the formula gives 1.30" in LEARN_WORDS
    assert "2.886 / 1.666 = 1.73" in LEARN and "| 4 | 2.89 | 1.73 |" in printed


def test_the_example_of_learn_md_is_the_prediction_of_speed_md():
    """Both round the same speed-up; figures of two places would give 1.72 instead of 1.73."""
    predicted = stored("speed-pair")["own"]["races"]["0"]["4"]["predicted"]
    assert f"{K_by_hand()['K = 4']['speed-up']:.2f}" == f"{predicted:.2f}"


def test_the_tokens_that_the_page_calls_easy_and_hard_are_so():
    (of,) = [share for token, share in stored("easy")["tokens"] if token == " of"]
    (mouse,) = [share for token, share in stored("easy")["tokens"] if token == " mouse"]
    shares = [share for _, share in stored("easy")["tokens"]]
    assert mouse < 0.5 < 0.9 < of and np.median(shares) > 0.6  # "most tokens are easy"
    (share_of_and,) = [share for token, share in stored("easy")["tokens"] if token == " and"]
    assert share_of_and > 0.8  # after "bread", which opens the page


def test_the_roofline_is_theorys():
    memory, compute = pass_latency(7e9, 2, bandwidth=2e12, flop_rate=312e12)
    rows = f"{crossover_batch(2, bandwidth=2e12, flop_rate=312e12):.0f} rows"
    assert f"2 TB/s = {1e3 * memory:.0f} ms" in LEARN_WORDS
    assert f"even {rows} take no longer" in LEARN_WORDS
    assert f"= {1e3 * compute:.3f} ms" in LEARN
    for path in (ROOT / "docs/img").glob("roofline*.svg"):
        picture = path.read_text(encoding="utf-8")
        assert f">{rows.removesuffix(' rows')}: equal<" in picture
        assert f">weights: {1e3 * memory:.0f} ms<" in picture
        assert f">{1e3 * compute:.3f} ms per row<" in picture


def test_the_formula_and_the_measurement_prefer_the_Ks_that_the_page_names():
    rows = K_by_hand()
    by_formula = max(rows, key=lambda K: rows[K]["speed-up"])
    measured = max((K for K in rows if "measured" in rows[K]), key=lambda K: rows[K]["measured"])
    assert (by_formula, measured) == ("K = 3", "K = 4")
    assert "not precise enough to choose between 3 and 4" in LEARN_WORDS


def test_the_acceptance_is_lowest_at_the_temperature_that_the_page_names():
    measured = {float(T): row for T, row in stored("acceptance")["temperatures"].items()}
    own, same = ([row[texts]["mean"] for row in measured.values()] for texts in ("own", "same"))
    lowest = min(measured, key=lambda T: measured[T]["own"]["mean"])
    assert re.search(rf"falls from \S+ at temperature {min(measured)} to \S+ at {lowest}, and "
                     rf"rises to \S+ at {max(measured)}", SPEED_WORDS)
    assert own[0] == max(own) and own[-1] > min(own) and same == sorted(same)


# ---- docs/papers.md

@pytest.mark.parametrize("file, function, code", QUOTES)
def test_a_quoted_line_stands_once_in_the_function_named(file, function, code):
    assert sum(code in line for line in source(f"{file} {function}").split("\n")) == 1


def test_every_row_is_checked_and_every_numbered_line_is_quoted():
    rows = re.findall(r"^\| .*\|$", PAPERS.split("\n## The algorithms\n")[1], re.MULTILINE)
    heads = re.findall(r"^\| (?:step|printed|source) .*\|$", PAPERS, re.MULTILINE)
    silent = [row for row in rows if row.endswith("| - |")]
    assert len(rows) == len(heads) + len(QUOTES) + len(NOTES) + len(silent) and len(NOTES) >= 8
    numbered = {line.strip() for line in (ROOT / "speculative.py").read_text("utf-8").split("\n")
                if re.search(r"# \[\d\]", line)}
    section = PAPERS.split("\n## The algorithms\n")[1].split("\n## ")[0]
    assert len(numbered) == 6
    for line in numbered:
        (row,) = [row for row in section.split("\n") if f"`{line}`" in row]
        _, _, chen, leviathan, *_ = map(str.strip, row.split("|"))
        assert chen and leviathan


def test_an_erratum_is_noted_where_it_is_said_to_be_and_no_other_is_marked():
    for file, noted in NOTES:
        text = (ROOT / file).read_text(encoding="utf-8").replace("# ", "")
        assert noted in " ".join(text.split())
    marked = {path.relative_to(ROOT).as_posix() for folder in (".", "theory", "variants")
              for path in (ROOT / folder).glob("*.py")
              if re.search(r"\bErrat(um|a):", path.read_text(encoding="utf-8"))}
    assert marked <= {file for file, _ in NOTES}


# ---- docs/tour.ipynb

CELLS = json.loads(TOUR)["cells"]


def test_every_link_of_the_tour_leads_somewhere():
    found = [link for cell in CELLS for match in LINK.findall("".join(cell["source"]))
             if not re.match(r"\w+:", link := "".join(match))]
    assert len(found) > 8 and all(leads(tour.TOUR, link) for link in found)


def test_every_name_that_a_cell_of_the_tour_imports_from_the_project_exists():
    for cell in CELLS:
        code = "".join(cell["source"]) if cell["cell_type"] == "code" else ""
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and node.module not in ("pathlib", "matplotlib"):
                module = importlib.import_module(node.module)
                assert all(hasattr(module, name.name) for name in node.names), node.module


def test_the_tour_holds_nothing_of_a_run_but_its_outputs():
    assert len(TOUR) < 500_000 and not MACHINE.search(re.sub(r'"image/png": ".*"', "", TOUR))
    for cell in CELLS:
        assert cell.get("execution_count") is None
        for output in cell.get("outputs", ()):
            assert output["output_type"] != "error" and output.get("name") != "stderr"


@pytest.mark.filterwarnings("ignore")  # those of the packages that run a notebook
def test_the_tour_says_the_same_when_it_is_run_again(monkeypatch, tmp_path):
    for package in ("nbclient", "ipykernel", "matplotlib"):
        pytest.importorskip(package, reason="needs requirements/tour.txt")
    import nbformat

    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    stored, fresh = nbformat.read(tour.TOUR, as_version=4), tour.execute()
    for old, new in zip(stored.cells, fresh.cells, strict=True):
        if old.cell_type == "code" and "measured" not in old.metadata.get("tags", []):
            for output in (*new.outputs, *old.outputs):
                output.get("data", {}).pop("image/png", None)
            assert new.outputs == old.outputs
