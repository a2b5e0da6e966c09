"""exact/engines/, and what docs/wild_tables.md says of engines."""

import importlib.metadata
import re
import subprocess
import sys
from functools import partial
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from exact.engines import __main__ as engines
from exact.engines import programs, triton
from exact.engines.boxes import boxes, widths
from exact.engines.triton import Kernel, round_by_kernel
from exact.law import law, total_variation
from exact.rules.register import BY_ID, rule_step
from exact.rules.verifiers import chain, ratio_with_epsilon
from exact.toys import TOYS, X, distance_cell
from speculative import complete, make_step
from tests.distributions import Scripted
from tests.pages import ROOT, file_text, on_one_line

PAGE = file_text("docs/wild_tables.md")


# ---- the page

@pytest.mark.parametrize("package", ["transformers", "mlx-lm"])
def test_the_page_has_what_an_installed_engine_does(package):
    """With three guesses on toy C alone, whose zeros leave few outcomes."""
    engine = engines.ENGINES[package]
    if reason := engines.reason_to_leave_out(engine.load):
        pytest.skip(reason)
    for words, one_round in engine.settings.items():
        [row] = re.findall(rf"^\| {package} [\d.]+ \| {words} \| \S+ \| (.*) \|$", PAGE, re.M)
        for toy, cell in zip(TOYS, row.split(" | "), strict=True):
            for K, known in zip((1, 2, 3) if toy == "C" else (1, 2), cell.split()):
                distance = engines.enumerated_distance(one_round, toy, K)
                assert distance_cell(distance, engine.rounding) == known


def test_one_wrong_distance_is_no_and_settings_with_equal_cells_share_a_line(monkeypatch):
    engine = engines.Engine(None, {"a": 0, "b": 0, "c": 1}, rounding=1e-6)
    monkeypatch.setattr(engines, "ENGINES", {"numpy": engine})
    monkeypatch.setattr(engines, "enumerated_distance", lambda fault, toy, K:
                        fault * (toy == "C") * (K == 3) / 4 + 1e-9)
    (_, *right), (_, *wrong) = engines.engine_lines("numpy")
    assert right == ["a; b", "exact", *3 * ["0 0 0"]]
    assert wrong == ["c", "**no**", "0 0 0", "0 0 0", "0 0 0.2500"]


def lines(text):
    """Return the lines of engines without versions and without distances that were sampled."""
    found = re.findall(r"^(\| \S+) [\d.]+ (\|.*)$", text, re.MULTILINE)
    # distances in the last cell are left out, because two engines are sampled
    last_cell = re.compile(r"\| 0\.\d{4}( 0\.\d{4})* \|$")
    return {package + last_cell.sub("", cells) for package, cells in found}


@pytest.mark.engines
def test_the_page_has_what_the_command_finds():
    command = [sys.executable, "-m", "exact.engines"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert lines(done.stdout) and lines(done.stdout) <= lines(PAGE)


def test_the_page_says_what_sampling_would_have_shown():
    assert programs.explanation() in on_one_line(PAGE)


def test_a_package_that_is_missing_is_named(monkeypatch, capsys):
    missing = engines.Engine(partial(engines.load_modules, "no.such.module"), {})
    monkeypatch.setattr(engines, "ENGINES", {"nobodys": missing})
    engines.main(["--only", "nobodys"])
    assert capsys.readouterr().out.endswith("Left out: nobodys (No module named 'no')\n")


# ---- boxes and kernels: plain functions of uniforms instead of compiled ones

def ratio_test(guesses, p_draft, p_target, **settings):
    """Return a right kernel, or with settings of `chain` a wrong one."""
    def ids_at(uniforms, last=0.5):
        rng = Scripted([*uniforms, last])
        return tuple(chain([*guesses], np.array(p_draft), np.array(p_target), rng, **settings))

    def row_at(uniforms):
        share = widths(lambda last: ids_at(uniforms, last)[-1])
        return np.array([share.get(token, 0.0) for token in range(3)])

    return Kernel(ids_at, row_at)


@pytest.mark.parametrize("toy", "ABC")
def test_a_kernel_is_enumerated_exactly(toy):
    assert engines.enumerated_distance(round_by_kernel(ratio_test), toy, 2) < 1e-6


@pytest.mark.parametrize("fault, least", [
    ({"p_accept": partial(ratio_with_epsilon, n=1000)}, 0.0004), ({"numbers": "twice"}, 0.01)])
def test_faults_of_a_kernel_are_seen(fault, least):
    assert engines.enumerated_distance(round_by_kernel(ratio_test, **fault), "A", 1) > least


def test_boxes_are_found_at_the_same_points_whatever_was_found_before():
    def points_asked():
        points = []
        list(boxes(lambda point: points.append(point) or point[0] < 0.3, 2))
        return points

    assert points_asked() == points_asked()


def test_what_is_not_constant_on_boxes_is_refused():
    with pytest.raises(ValueError, match="constant on boxes"):
        list(boxes(lambda point: np.prod(point) < 0.3, 2))


@pytest.fixture
def fake_package(tmp_path, monkeypatch):
    """Install a package whose file imports from the package, and a triton that is imported."""
    (tmp_path / "file.py").write_text("from fake.deep.inside import one\ntwo = one + 1\n", "utf-8")
    for name in ("triton", "triton.language"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["triton"].language = sys.modules["triton.language"]
    installed = {"fake": SimpleNamespace(locate_file=tmp_path.joinpath)}
    monkeypatch.setattr(importlib.metadata, "distribution", installed.__getitem__)


def test_a_file_is_run_with_names_instead_of_its_package(fake_package, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert triton.names_of_file("fake", "file.py", one=1)["two"] == 2


def test_the_interpreter_is_asked_for_before_triton_is_imported(fake_package, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ImportError, match="need TRITON_INTERPRET=1"):
        triton.names_of_file("fake", "file.py", one=1)


# ---- sampling

def texts_of(rule):
    """Return a rule as an engine that is sampled."""
    rule = BY_ID[rule]
    guess = partial(rule.guess, draft=programs.model("draft"))
    step = make_step(programs.model("target"), programs.N_GUESSES, guess, rule.verify)
    return lambda seed: complete(X, step, programs.N_TOKENS, np.random.default_rng(seed))[1:]


def test_an_exact_engine_stays_within_the_limit_and_a_wrong_one_does_not():
    """A false alarm has probability 1e-6 at most, by the limit's definition; so has a miss."""
    right, wrong = "ratio", "argmax-softmax-rows"
    largest = programs.limit(2000, 27)
    assert programs.sampled_distance(texts_of(right), 2000) < largest
    step = rule_step(BY_ID[wrong], programs.model("draft"), programs.model("target"), 2)
    texts = law(partial(complete, X, step, programs.N_TOKENS))
    assert total_variation(texts, programs.wanted()) > 2 * largest
    assert programs.sampled_distance(texts_of(wrong), 2000) > largest
