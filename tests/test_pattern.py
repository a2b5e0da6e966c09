"""Patterns: what is allowed after a text depends on the text alone, and every text fits."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import main
from demo.compare import decoded_run, with_costs
from demo.flags import parse_args
from demo.task import load_task, with_pattern
from exact.law import law
from lib.pattern import Pattern, grammar_of
from sampling import with_sampling
from speculative import autoregressive_sampling
from tests.bundled import encoder
from tests.commands import refusal, run_main
from variants import DECODERS

ROOT = Path(__file__).parent.parent
pytest.importorskip("llguidance", reason="needs requirements/pattern.txt")
jsonschema = pytest.importorskip("jsonschema", reason="needs requirements/pattern.txt")
REGEX = r" lived in the (forest|castle|deep blue sea) with (her|his) [a-z]{1,3}\."
AGE = {"type": "integer", "minimum": 0, "maximum": 120}
SCHEMA = {"type": "object",
          "properties": {"name": {"type": "string", "maxLength": 5}, "age": AGE},
          "required": ["name", "age"], "additionalProperties": False}
LARK = 'start: " and"+ "."'
GRAMMARS = {"regex": REGEX, "json_schema": json.dumps(SCHEMA), "lark": LARK}
PROMPT = [1, 2]


def random_text(pattern, rng, n, p_wrong=0.0):
    """Return the prompt and n tokens, each an allowed one, or any one with this probability."""
    ids = list(PROMPT)
    for _ in range(n):
        allowed = np.flatnonzero(pattern(ids))
        is_wrong = rng.random() < p_wrong
        ids.append(int(rng.integers(pattern.n_vocab) if is_wrong else rng.choice(allowed)))
    return ids


@pytest.mark.parametrize("kind", GRAMMARS)
def test_what_is_allowed_does_not_depend_on_earlier_texts(kind):
    grammar = grammar_of(kind, GRAMMARS[kind])
    used = Pattern(grammar, encoder(), len(PROMPT))
    rng = np.random.default_rng(0)
    for i in range(12):
        text = random_text(used, rng, 20, p_wrong=0.1 * (i % 2))
        for n in rng.integers(len(PROMPT), len(text) + 1, size=4):
            fresh = Pattern(grammar, encoder(), len(PROMPT))
            assert (used(text[:n]) == fresh(text[:n])).all()
            assert used.may_end(text[:n]) == fresh.may_end(text[:n])


def test_every_text_of_allowed_tokens_fits_and_ends_where_it_may():
    end = encoder().end_of_text
    pattern = Pattern(grammar_of("regex", REGEX), encoder(), len(PROMPT))
    rng = np.random.default_rng(1)
    for _ in range(20):
        ids = random_text(pattern, rng, 60)
        new = ids[len(PROMPT) :]
        text = encoder().decode(new[: new.index(end)])
        assert re.fullmatch(REGEX, text)
        assert pattern.may_end([*PROMPT, *new[: new.index(end)]])
        assert not pattern.may_end(PROMPT)
    assert (np.flatnonzero(pattern([*PROMPT, end])) == [end]).all()


def test_a_text_may_end_or_go_on_where_the_pattern_says_so():
    pattern = Pattern(grammar_of("regex", "( and)+"), encoder(), 0)
    [word] = encoder().encode(" and")
    assert not pattern([])[encoder().end_of_text]
    allowed = pattern([word])
    assert allowed[encoder().end_of_text] and allowed[word]


@pytest.mark.parametrize("kind, text, why", [
    ("regex", "(", "unclosed group"), ("regex", "(?=a)b", "look-around"),
    ("json_schema", "{", "Expecting property name"), ("json_schema", '{"not": {}}', "not"),
    ("json_schema", '{"type": "integer", "minimum": 5, "maximum": 3}', "nsatisfiable"),
    ("lark", "start: word", "unknown name")])
def test_a_bad_pattern_is_refused_in_a_sentence(kind, text, why):
    with pytest.raises(ValueError, match=f"--{kind} is not valid: .*{why}") as error:
        grammar_of(kind, text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", [r"[^\x00-\x{10FFFF}]", r"a[^\x00-\x{10FFFF}]"])
def test_a_pattern_that_no_text_fits_is_refused(text):
    with pytest.raises(ValueError, match="^--regex fits no text$"):
        grammar_of("regex", text)
    assert grammar_of("regex", f"{text}|b") and grammar_of("regex", "")


@pytest.mark.parametrize("flag", ["--lark", "--json_schema"])
def test_a_file_that_is_not_utf8_is_named_with_its_flag(tmp_path, flag):
    file = tmp_path / "pattern"
    file.write_bytes(b"start: \xff")
    assert f"{flag} {file} is not text in UTF-8" in refusal(main.main, flag, file)


# ---- in main.py

BEGINNING = "There was once an old woman who"
SEVEN = r" lived in the (forest|castle) with her (two|three|seven) (sons|daughters)\."


def written_text(*flags):
    """Return what a run of the bundled pair writes, and the run."""
    task, _ = with_costs(load_task(parse_args(["--prompt", BEGINNING, *flags])))
    run = decoded_run(task, task.decoder)
    ids = run.ids[:-1] if run.ids[-1] == task.encoder.end_of_text else run.ids
    return task.encoder.decode(ids), run


@pytest.mark.parametrize("seed", range(20))
def test_every_seed_writes_a_text_that_the_expression_matches(seed):
    text, _ = written_text("--regex", SEVEN, "--temperature", "1", "--seed", str(seed))
    assert re.fullmatch(SEVEN, text)


@pytest.mark.parametrize("temperature", ["0", "1"])
def test_a_schema_gives_a_document_that_its_validator_accepts(tmp_path, temperature):
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
    text, _ = written_text("--json_schema", str(tmp_path / "schema.json"),
                           "--temperature", temperature)
    jsonschema.validate(json.loads(text), SCHEMA)


def test_every_decoder_writes_texts_that_fit():
    for name, entry in DECODERS.items():
        for temperature in ("0", "1")[: 1 if entry.greedy else 2]:
            text, _ = written_text("--decoder", name, "--regex", SEVEN,
                                   "--temperature", temperature)
            assert re.fullmatch(SEVEN, text), name


def test_forced_tokens_need_no_pass_and_are_counted_apart():
    status, out, _ = run_main("--prompt", BEGINNING, "--regex", SEVEN, "--json")
    numbers = json.loads(out)
    assert status == 0 and numbers["fits_pattern"] and numbers["identical"]
    n_chosen = len(numbers["speculative"]["ids"]) - numbers["forced"]
    assert numbers["forced"] >= 4 and numbers["target_passes"] <= n_chosen
    assert sum(numbers["rounds_by_accepted"]) == numbers["target_passes"]
    assert numbers["settings"]["regex"] == SEVEN and "lark" not in numbers["settings"]


def test_a_text_that_is_cut_off_does_not_fit_yet():
    _, out, _ = run_main("--prompt", BEGINNING, "--regex", SEVEN, "--n_tokens_to_generate", 3)
    assert "does not fit the pattern yet" in out
    _, out, _ = run_main("--prompt", BEGINNING, "--regex", SEVEN)
    assert "The text fits the pattern." in out


@pytest.mark.parametrize("flags, why", [
    (["--regex", "("], "--regex is not valid"),
    (["--regex", "a", "--lark", "none"], "--regex and --lark are both given: choose one"),
    (["--json_schema", "none.json"], "cannot read --json_schema none.json"),
    (["--regex", "a", "--window"], "--window does not apply to --regex"),
    (["--regex", "(", "--prompts", "-", "--out", "-"], "--regex is not valid")])
def test_a_pattern_that_cannot_be_written_is_refused_before_anything_is_loaded(flags, why):
    status, out, err = run_main("--target_model_size", "nowhere", *flags)
    assert status == 2 and out == "" and why in err and err.count("\n") == 1


def test_without_the_library_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    status, _, err = run_main("--regex", "a")
    assert status == 2 and "pip install -r requirements/pattern.txt" in err


# ---- in --prompts

LINES = [{"prompt": BEGINNING, "regex": SEVEN}, {"prompt": BEGINNING, "json_schema": SCHEMA},
         {"prompt": BEGINNING, "lark": 'start: " and" " then."', "id": 1}, {"prompt": BEGINNING}]
BAD_LINES = [({"regex": "("}, '"regex" is not valid: '),
             ({"regex": 3}, 'need a "regex" that is text'),
             ({"json_schema": "{"}, '"json_schema" is not valid: '),
             ({"regex": "a", "lark": "b"}, '"regex" and "lark" are both given: choose one')]


def records_of(folder, lines, *flags):
    """Return exit status and the records of --prompts."""
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (folder / "prompts").write_text(text, encoding="utf-8")
    status, _, err = run_main("--prompts", folder / "prompts", "--out", folder / "out",
                              "--n_tokens_to_generate", 40, *flags)
    records = (folder / "out").read_text(encoding="utf-8").splitlines()
    return status, [json.loads(record) for record in records], err


@pytest.mark.parametrize("temperature", ["0", "1"])
def test_a_line_has_its_own_pattern_and_the_text_that_it_has_alone(tmp_path, temperature):
    status, records, _ = records_of(tmp_path, LINES, "--temperature", temperature)
    assert status == 0
    for record, line in zip(records, LINES):
        kinds = {*line} & {*GRAMMARS}
        assert [record.get(kind) for kind in GRAMMARS] == [line.get(kind) for kind in GRAMMARS]
        assert record.get("fits_pattern") is (True if kinds else None)
        task = load_task(parse_args(["--prompt", BEGINNING, "--temperature", temperature,
                                     "--n_tokens_to_generate", "40"]))
        if kinds:
            [kind] = kinds
            text = json.dumps(SCHEMA) if kind == "json_schema" else line[kind]
            task = with_pattern(task, grammar_of(kind, text))
        alone = decoded_run(task._replace(seed=record["seed"]), task.decoder)
        assert record["ids"] == alone.ids
    texts = [record["text"].removeprefix(BEGINNING).removesuffix("<|endoftext|>")
             for record in records]
    assert re.fullmatch(SEVEN, texts[0]) and texts[2] == " and then."
    jsonschema.validate(json.loads(texts[1]), SCHEMA)


def test_a_lines_bad_pattern_is_its_error_and_the_other_lines_are_written(tmp_path):
    lines = [*({"prompt": "A", **bad} for bad, _ in BAD_LINES), {"prompt": "A", "regex": " man"}]
    status, records, _ = records_of(tmp_path, lines)
    assert status == 3
    for record, (_, why) in zip(records, BAD_LINES):
        assert record["error"].startswith(why) and "\n" not in record["error"]
    assert records[-1]["text"] == "A man<|endoftext|>" and records[-1]["forced"] == 2


def test_the_flags_pattern_holds_for_each_line_without_its_own(tmp_path):
    lines = [{"prompt": "A"}, {"prompt": "A", "regex": " bird"}]
    assert records_of(tmp_path, lines[:1], "--regex", " man")[0] == 0
    status, records, _ = records_of(tmp_path, lines, "--regex", " man")  # resumes
    assert status == 0
    assert [record["text"] for record in records] == [f"A {noun}<|endoftext|>"
                                                      for noun in ("man", "bird")]
    # a different pattern, or none, is a different run
    for flags, others in [(["--regex", " king"], lines), ([], lines),
                          (["--regex", " man"], lines[:1] * 2)]:
        status, same, err = records_of(tmp_path, others, *flags)
        assert status == 2 and "was written with regex" in err and same == records


@pytest.mark.parametrize("temperature", ["0", "1"])
def test_the_pages_schema_gives_a_valid_document_and_the_text_it_quotes(tmp_path, temperature):
    page = (ROOT / "docs" / "patterns.md").read_text(encoding="utf-8")
    [schema] = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    (tmp_path / "schema.json").write_text(schema, encoding="utf-8")
    _, out, _ = run_main("--prompt", "Once there was a man. ", "--temperature", temperature,
                         "--json_schema", tmp_path / "schema.json", "--seed", 1, "--json")
    text = json.loads(out)["speculative"]["text"]
    assert f"{text}\n" in page
    document = text.removeprefix("Once there was a man. ").removesuffix("<|endoftext|>")
    jsonschema.validate(json.loads(document), json.loads(schema))


def test_the_mask_is_not_the_condition_that_the_whole_text_fits():
    """Tokens a, b, then x, y: after a only x is allowed, after b both are."""
    rows = {(): [0.5, 0.5, 0, 0], (0,): [0, 0, 0.5, 0.5], (1,): [0, 0, 0.5, 0.5]}
    model = lambda ids, n_last: np.array([rows[tuple(ids[1:])]])
    allowed = lambda ids: np.array([True, True, True, list(ids[1:]) != [0]])
    logits = lambda ids, n_last: np.log(np.maximum(model(ids, n_last), 1e-300))
    masked = with_sampling(logits, allowed=allowed)
    got = law(lambda rng: tuple(autoregressive_sampling([9], masked, 2, rng)[1:]))
    assert got[0, 2] == pytest.approx(1 / 2) and got[1, 2] == got[1, 3] == pytest.approx(1 / 4)
    fits = {(a, b): rows[()][a] * rows[a,][b] for a in (0, 1) for b in (2, 3) if (a, b) != (0, 3)}
    assert fits[0, 2] / sum(fits.values()) == pytest.approx(1 / 3)
