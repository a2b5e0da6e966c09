"""A rule in a file runs with the bundled pair, and what it does wrong is one sentence."""

import pickle
import re
from pathlib import Path

import pytest

import main
from lib.backend import products
from lib.pattern import DeadEnd
from measure import race
from measure.passes import Timed
from run.flags import entry_of_flag, parse_args
from run.own import in_a_sentence
from run.task import load_task
from tests.commands import json_of_run, outcome, records_of, refusal, run_main, written
from tests.test_judge import GUESS, RIGHT, STEP
from tests.test_rounds import stored_run
from tools import survey, will_it_pay

SHORT = ("--n_tokens_to_generate", 12)
BEST = GUESS.format(rows="np.eye(draft(x, 1).shape[-1])[guesses]")
LOSSY = RIGHT.replace("residual(p_target[t], p_draft[t])", "p_target[t]")
ROUND_STEP = """
from functools import partial
from speculative import guess, speculative_step

def step(x, n_left, rng, draft, target, K):
    return speculative_step(x, n_left, rng, target, K, partial(guess, draft=draft))
"""
ALWAYS = """
from sampling import sample

def verify(guesses, p_draft, p_target, rng):
    return guesses + [sample(p_target[-1], rng)]
"""
FOUR_PASSES = """
from speculative import Round

def step(x, n_left, rng, draft, target, K):
    ids = []
    for _ in range(min(n_left, 4)):
        ids.append(int(target(x + ids, 1)[-1].argmax()))
    return Round(ids, [], [], [], 0)
"""
BARE_STEP = """
from speculative import Round

def step(x, n_left, rng, draft, target, K):
    guesses = [int(draft(x, 1)[-1].argmax())][: n_left - 1]
    rows = target(x + guesses, len(guesses) + 1)
    return Round([int(rows[0].argmax())], guesses, [], rows, 0)
"""
PARTIAL = """
from functools import partial
from variants.lenient import lenient_verify
verify = partial(lenient_verify, lenience=1.0)
"""
CALLED = """
import speculative

class Verify:
    def __call__(self, guesses, p_draft, p_target, rng):
        return speculative.verify(guesses, p_draft, p_target, rng)

verify = Verify()
"""
WITH_FLAG = """
from typing import Annotated
from speculative import draft_and_verify
from variants.registry import Flag, whole
from variants.speculative import DECODER

def build(models, NAME: Annotated[int, Flag(whole, "guesses")] = 4):
    return draft_and_verify(models.draft_rows, models.target_rows, NAME)

DECODER = DECODER._replace(build=build)
"""
VERIFY = "def verify(guesses, p_draft, p_target, rng): "


@pytest.fixture
def file(tmp_path):
    """Return a function that writes mine.py with this text, and returns its path."""
    return lambda text: str(written(tmp_path, text))


def ids_of(decoder, *flags):
    """Return the new tokens that a decoder writes at temperature 1."""
    return json_of_run("--decoder", decoder, "--temperature", 1, *SHORT, *flags)[decoder]["ids"]


@pytest.mark.parametrize("text", [RIGHT, ROUND_STEP, "from variants.speculative import DECODER"])
def test_the_papers_rule_in_a_file_writes_the_papers_text(file, text):
    path = file(text)
    assert ids_of(path, "--K", 3) == ids_of("speculative", "--K", 3) != ids_of(path, "--K", 1)


def test_the_wrong_rule_of_a_file_is_the_one_that_runs(file):
    assert ids_of(file(LOSSY)) != ids_of("speculative")


def test_a_file_that_says_that_it_is_not_exact_is_believed(file):
    text = """from variants.block import DECODER
from variants.registry import never
DECODER = DECODER._replace(exact=never)"""
    _, out, _ = run_main("--decoder", file(text), *SHORT)
    assert "This method is not exact" in out and "exact.judge" not in out


def test_a_registered_decoder_in_a_file_has_its_notes_and_its_prediction(file):
    path = file("from variants.quantized import DECODER")
    _, out, _ = run_main("--decoder", path, "--backend", "numpy", *SHORT)
    products.set_backend("numba")
    assert "The int8 copy is stored as floats" in out and "(theory, " in out
    assert f"\n{path} decoding\n" in out


@pytest.mark.parametrize("text", [RIGHT, BEST, STEP, BARE_STEP, PARTIAL, CALLED])
def test_the_greedy_rounds_of_a_file_are_shown_and_kept_and_it_is_said_who_judges_it(
        file, tmp_path, text):
    path = file(text)
    page = tmp_path / "run.html"
    status, out, _ = run_main("--decoder", path, *SHORT, "--show", "--trace", page)
    assert status == 0 and "{+" in out.split("\n\n")[1]
    assert f"python -m exact.judge {path}\n" in out
    run = stored_run(page)
    shown = [token["id"] for result in run["rounds"] for token in result["ids"]]
    got = json_of_run("--decoder", path, *SHORT)
    assert got["identical"] and shown == got[path]["ids"]
    assert run["exact"] is got["exact"] is None and got["settings"]["decoder"] == path


def test_a_token_that_the_target_never_draws_has_no_log_probability(file, tmp_path):
    got = json_of_run("--decoder", file(ALWAYS), *SHORT, "--logprobs")[file(ALWAYS)]["logprobs"]
    assert {*got} == {0.0, None}
    flags = ("--decoder", file(ALWAYS), "--temperature", 1, "--top_k", 3, *SHORT)
    status, _, err = run_main(*flags, "--trace", tmp_path / "run.html")
    assert status == 0, err
    shown = [token["logprob"] for result in stored_run(tmp_path / "run.html")["rounds"]
             for token in result["ids"]]
    status, [record], err = records_of(tmp_path, ["One day a merchant who"], *flags, "--logprobs")
    assert status == 0 and None in shown and None in record["logprobs"], err


def test_a_record_counts_the_passes_of_a_step_and_not_its_rounds(file, tmp_path):
    path = file(FOUR_PASSES)
    _, [record], _ = records_of(tmp_path, ["One day a merchant who"], "--decoder", path, *SHORT)
    assert record["tokens_per_pass"] == json_of_run("--decoder", path, *SHORT)[
        "tokens_per_target_pass"] == 1


def test_a_file_continues_many_prompts(file, tmp_path):
    texts = []
    for decoder in (file(RIGHT), "speculative"):
        (tmp_path / "out").unlink(missing_ok=True)
        status, records, _ = records_of(tmp_path, ["One day", "A king"], "--decoder", decoder,
                                        "--temperature", 1, *SHORT)
        assert status == 0
        texts.append([record["ids"] for record in records])
    assert texts[0] == texts[1] and len(texts[0]) == 2


@pytest.mark.parametrize("text, sentence", [
    ("import nothing_of_this_name", r"mine\.py does not run: line 1: ModuleNotFoundError: "),
    (VERIFY + "return [-1]", r"need a list of 1 to 2 tokens of 0 \.\. \d+, got \[-1\]"),
    (VERIFY + "raise SystemExit(0)", "does not run: line 1: SystemExit"),
    ("def step(*args): return [0] * 99", "need a list of 1 to 2 tokens"),
    ("def guess(x, k, rng, draft): return [0] * k, [[1]] * k", "does not run: .*ValueError"),
])
def test_what_is_wrong_with_a_file_is_one_sentence(file, text, sentence):
    """When it is read, and when it runs. tests/test_judge.py has all sentences."""
    assert re.search(sentence, refusal(main.main, "--decoder", file(text), *SHORT).strip())


def test_a_pattern_that_cannot_go_on_is_no_fault_of_the_file():
    def step():
        raise DeadEnd("here")

    with pytest.raises(DeadEnd):
        in_a_sentence(Path("mine.py"), step)


def test_the_flags_of_a_file_are_those_of_its_build(file):
    path = file("from variants.tree import DECODER")
    assert "widths" in entry_of_flag(path).flags
    assert "--lenience does not apply" in refusal(main.main, "--decoder", path, "--lenience", 1)


@pytest.mark.parametrize("field", ["exact", "needs", "draft_maker"])
def test_an_error_in_a_field_of_a_decoder_is_one_sentence(file, field):
    path = file("from variants.lenient import DECODER\n"
                f"DECODER = DECODER._replace({field}=lambda s: s['lenienz'] == 1)")
    assert "does not run: line 2: KeyError: 'lenienz'" in refusal(main.main, "--decoder", path)


def test_a_draft_that_a_file_makes_is_no_int8_copy_and_is_made_for_a_race_too(file):
    path = file("""from variants.speculative import DECODER
from variants.registry import needing
DECODER = DECODER._replace(needs=needing(), draft_maker=lambda settings:
                           lambda target, notify: target.fresh())""")
    assert json_of_run("--decoder", path, *SHORT)["draft_in_int8"] is None
    target = load_task(parse_args([])).models.target
    race.builder(entry_of_flag(path), {}, 1.0)(Timed(target), Timed(target))


def test_a_registered_decoder_in_a_file_draws_what_a_pattern_forces_as_itself(file):
    flags = ("--regex", "(x[a-z]y lived in the forest){3}", "--K", 8, "--n_tokens_to_generate", 40)
    assert ids_of(file("from variants.coupled import DECODER"), *flags) == ids_of("coupled", *flags)


@pytest.mark.parametrize("name", ["batch", "temperature", "decoder", "draft", "help", "memory"])
def test_a_flag_of_a_file_that_main_has_too_is_refused(file, name):
    path = file(WITH_FLAG.replace("NAME", name))
    why = refusal(main.main, "--decoder", path, *SHORT)
    assert f"`build` has a parameter {name}, and --{name} is a flag of main.py: rename" in why


@pytest.mark.parametrize("name", ["given", "entry", "settings"])
def test_a_flag_of_a_file_may_have_a_name_that_only_the_parser_uses(file, name):
    path = file(WITH_FLAG.replace("NAME", name))
    assert json_of_run("--decoder", path, f"--{name}", 2, *SHORT)["settings"][name] == 2


def test_a_worker_of_the_survey_runs_a_file_and_sends_its_text_without_rows(file):
    """So it does with trees."""
    given = {"prompt": "A fox", "n_tokens_to_generate": 12}
    text, ours, of_trees = (
        survey.written_text(("--decoder", decoder, "--temperature", "1"), given, 0)
        for decoder in (file(RIGHT), "speculative", "tree"))
    sent = pickle.loads(pickle.dumps(text))
    assert [result.ids for result in sent.rounds] == [result.ids for result in ours.rounds]
    assert len(pickle.dumps(of_trees)) < 10_000  # a row of the bundled vocabulary has 32 kB


def test_will_it_pay_races_a_file(file, monkeypatch):
    monkeypatch.setattr(will_it_pay, "OPENINGS", ["A fox"])
    monkeypatch.setattr(will_it_pay, "CHAINS", 1)
    path = file(RIGHT)
    status, out, err = outcome(will_it_pay.main, "--decoder", path, "--N", 4, "--repeats", 1,
                               "--temperature", 1)
    assert status == 0, err
    assert f"| --decoder {path} |" in out
