"""The pages: links lead somewhere, quoted code is the source, outputs are those of the commands."""

import contextlib
import doctest
import importlib
import io
import json
import re
import shlex
import subprocess
import sys
import tomllib
from functools import partial

import numpy as np
import pytest

import speculative
from docs import fifty_lines, tour
from docs.readme import BLOCK, STATIC, fill, shell_output
from docs.tables import K_by_hand
from tests.pages import ROOT, code, file_text, on_one_line, section
from variants import DECODERS
from variants.registry import FAMILIES

PAGES = ["README.md", ".github/CONTRIBUTING.md", ".github/SECURITY.md", "models/README.md",
         "models/smollm2/README.md", "benchmarks/RESULTS.md"]
PAGES += sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))
TEXTS = {page: file_text(page) for page in PAGES}
README = TEXTS["README.md"]
LEARN_WORDS = on_one_line(TEXTS["docs/learn.md"])
TOUR = file_text("docs/tour.ipynb")
CELLS = json.loads(TOUR)["cells"]
LINKED = TEXTS | {"docs/tour.ipynb": "\n".join("".join(cell["source"]) for cell in CELLS)}
RUN, REQUIREMENTS = ([line.split("  #")[0] for line in file_text(name).splitlines()
                      if not line.startswith(("#", "-r "))]
                     for name in ("requirements/run.txt", "requirements.txt"))
PROJECT = tomllib.loads(file_text("pyproject.toml"))["project"]

FENCED = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`[^`\n]+`")  # code in a sentence
LINK = re.compile(r"\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)|\b(?:src|srcset|href)=\"([^\"]+)\"",
                  re.MULTILINE)
# A path or a folder of somebody's machine.
MACHINE = re.compile(r"/(?:work|home|root|tmp|var|opt|mnt|Users)/\w|[A-Z]:\\\\?Users")
EACH_PAGE = pytest.mark.parametrize("page", TEXTS)


# ---- links

def links_into_the_repository(text):
    """Return the links of a page outside its fenced code, without those to other sites."""
    links = ["".join(groups) for groups in LINK.findall(FENCED.sub("", text))]
    return [link for link in links if not re.match(r"\w+:", link)]


def anchors(text):
    """Return the anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", text), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


def leads_somewhere(page, link):
    """Return whether a link of a page leads to a file of the repository, and to a place in it."""
    path, _, anchor = link.partition("#")
    target = ((ROOT / page).parent / path).resolve() if path else ROOT / page
    is_here = target.is_relative_to(ROOT) and target.exists()
    if not is_here or not anchor:
        return is_here
    return anchor in anchors(target.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", LINKED)
def test_every_link_leads_somewhere_and_no_path_is_of_one_machine(page):
    links = links_into_the_repository(LINKED[page])
    assert [link for link in links if not leads_somewhere(page, link)] == []
    assert not MACHINE.search(LINKED[page])


@EACH_PAGE
def test_every_label_of_a_link_is_defined_and_used(page):
    text = SPAN.sub("", FENCED.sub("", TEXTS[page])).lower()
    defined = set(re.findall(r"^\[([^\]]+)\]: ", text, re.MULTILINE))
    assert set(re.findall(r"\]\[([^\]]+)\]", text)) <= defined
    assert all(text.count(f"[{label}]") > 1 for label in defined)


def test_every_decoder_has_a_family_and_a_paragraph_in_its_section():
    page = TEXTS["docs/methods.md"]
    for name, entry in DECODERS.items():
        if name != "speculative":  # the root of the family
            heading = entry.family[0].upper() + entry.family[1:]
            assert entry.family in FAMILIES and f"**[{name}](" in section(page, heading), name


def test_the_tests_that_the_pages_name_exist():
    defined = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    named = [name for text in TEXTS.values() for name in re.findall(r"`(test_\w+)`", text)]
    assert named and [name for name in named if f"def {name}(" not in defined] == []


# ---- quoted code and outputs

@EACH_PAGE
def test_quoted_code_and_tables_are_the_sources(page):
    assert fill(TEXTS[page], STATIC) == TEXTS[page]


def each_output(kind, words=""):
    """Parametrize a test by the commands with these words, and what the pages quote of each."""
    blocks = [block for text in TEXTS.values() for block in BLOCK.finditer(text)]
    return pytest.mark.parametrize("command, quoted", [
        pytest.param(block["argument"], block["text"], id=block["argument"])
        for block in blocks if block["kind"] == kind and re.search(words, block["argument"])])


def untimed_lines(output):
    """Return the lines of an output that neither a clock nor the machine fills."""
    timed = ("Time", "speed-up", "time", "tokens/s after it", "ms per", "Matrix", "Try")
    return [line for line in output.split("\n") if not line.startswith(timed)]


@each_output("run")
def test_a_quoted_output_is_what_the_command_prints(command, quoted):
    assert untimed_lines(shell_output(command)) == untimed_lines(quoted)


@each_output("table", " --show |exact.expected")
def test_a_table_is_what_its_command_prints(command, quoted, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    _, _, module, *flags = shlex.split(command)  # python -m MODULE ..
    if module == "benchmarks":  # a package, which Python runs by its __main__.py
        module = "benchmarks.__main__"
    importlib.import_module(module).main(flags)
    assert capsys.readouterr().out.rstrip("\n") == quoted


@EACH_PAGE
def test_examples_do_what_they_show(page):
    results = doctest.testfile(str(ROOT / page), module_relative=False, encoding="utf-8")
    assert not results.failed


# ---- what is installed

def test_the_short_list_of_packages_is_all_that_the_main_job_needs():
    hidden = {"cupy", "torch"} | {re.match(r"[\w-]+", line)[0].replace("-", "_")
                                  for line in REQUIREMENTS}
    program = ("import sys; sys.modules |= dict.fromkeys(sys.argv[1:]); sys.argv[1:] = []; "
               "import main; sys.exit(main.main(['--n_tokens_to_generate', '4']))")
    done = subprocess.run([sys.executable, "-c", program, *hidden], cwd=ROOT, text=True,
                          capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_pyproject_names_the_packages_of_the_short_list():
    assert {line.replace("'", '"') for line in PROJECT["dependencies"]} == {*RUN}
    assert f"Python {PROJECT['requires-python'].removeprefix('>=')} or newer" in README


# ---- the programs

def random_pair(seed):
    """Return a target and a flatter draft, which is often rejected."""
    return fifty_lines.make_model(1.5, seed), fifty_lines.make_model(0.7, seed)


def test_the_loop_of_learn_md_draws_the_tokens_of_speculative_py():
    for seed in range(100):
        target, draft = random_pair(seed)
        N, K = 1 + seed % 20, 1 + seed % 5
        rng = partial(np.random.default_rng, seed)
        ids, n_passes = fifty_lines.speculative([0, 1], draft, target, N, K, rng())
        assert ids == speculative.speculative_sampling([0, 1], draft, target, N, K, rng())
        assert N / (K + 1) <= n_passes <= N
        assert fifty_lines.autoregressive([0, 1], target, N, rng()) == \
            speculative.autoregressive_sampling([0, 1], target, N, rng())


def test_the_round_of_the_front_page_draws_the_tokens_of_speculative_py():
    one_round = compile(code(README, "python", "x = x + verify"), "README.md", "exec")
    for seed in range(100):
        target, draft = random_pair(seed)
        K = 1 + seed % 5
        names = vars(fifty_lines) | {"x": [0, 1], "K": K, "draft": draft, "target": target,
                                     "rng": np.random.default_rng(seed)}
        for _ in range(5):
            exec(one_round, names)
        n_new = len(names["x"]) - 2
        assert 5 <= n_new <= 5 * (K + 1)
        # With K + 1 more tokens to write, no round of the loop is shorter than those above.
        longer = speculative.speculative_sampling([0, 1], draft, target, n_new + K + 1, K,
                                                  np.random.default_rng(seed))
        assert longer[: 2 + n_new] == names["x"]


# ---- figures of docs/learn.md, beyond those that markers bind

def test_the_command_of_the_page_has_the_pairs_costs():
    [command] = re.findall(r"`python -m theory.speedup ([^`]*)`", LEARN_WORDS)
    rows = [*K_by_hand().values()]
    costs = " ".join(f"{row['m']:.3f}" for row in rows)
    assert command == f"--alpha {rows[0]['acceptance']} --c {rows[0]['c']} --m {costs}"


# ---- docs/tour.ipynb

def test_the_tour_holds_nothing_of_a_run_but_its_outputs():
    assert len(TOUR) < 500_000 and not MACHINE.search(re.sub(r'"image/png": ".*"', "", TOUR))
    for cell in CELLS:
        assert cell.get("execution_count") is None
        for output in cell.get("outputs", ()):
            assert output["output_type"] != "error" and output.get("name") != "stderr"


def test_the_cells_of_the_tour_print_what_it_shows(monkeypatch, own_path):
    """In this process, which starts faster than Jupyter."""
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="needs requirements/plots.txt")
    monkeypatch.setattr(pyplot, "show", pyplot.close)
    monkeypatch.chdir(ROOT)
    names = {}
    for cell in (cell for cell in CELLS if cell["cell_type"] == "code"):
        with contextlib.redirect_stdout(io.StringIO()) as out, pyplot.rc_context():
            exec("".join(cell["source"]), names)
        if "measured" not in cell["metadata"].get("tags", ()):
            shown = [line for output in cell["outputs"] for line in output.get("text", ())]
            assert out.getvalue() == "".join(shown)


@pytest.mark.weekly
def test_the_tour_says_the_same_when_it_is_run_again(monkeypatch, tmp_path):
    for package in ("nbclient", "ipykernel", "matplotlib"):
        pytest.importorskip(package, reason="needs requirements/tour.txt")
    import nbformat

    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    recorded, fresh = nbformat.read(tour.TOUR, as_version=4), tour.execute()
    for old, new in zip(recorded.cells, fresh.cells, strict=True):
        if old.cell_type == "code" and "measured" not in old.metadata.get("tags", []):
            for output in (*new.outputs, *old.outputs):
                output.get("data", {}).pop("image/png", None)
            assert new.outputs == old.outputs
