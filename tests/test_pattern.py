"""Patterns: what is allowed after a text depends on the text alone, and every text fits."""

import json
import re
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import main
from lib.pattern import Pattern, grammar_of, llguidance, tokenizer_of
from main import decode, decoder_step
from run.flags import parse_args
from run.task import load_task, with_costs
from sampling import warp
from tests.bundled import encoder
from tests.commands import json_of_run, records_of, refusal, run_main
from tests.pages import code, file_text
from variants import DECODERS

pytest.importorskip("llguidance", reason="needs requirements/pattern.txt")
REGEX = r" lived in the (forest|castle|deep blue sea) with (her|his) [a-z]{1,3}\."
AGE = {"type": "integer", "minimum": 0, "maximum": 120}
SCHEMA = {"type": "object",
          "properties": {"name": {"type": "string", "maxLength": 5}, "age": AGE},
          "required": ["name", "age"], "additionalProperties": False}
LARK = 'start: " and"+ "."'
GRAMMARS = {"regex": REGEX, "json_schema": json.dumps(SCHEMA), "lark": LARK}
PROMPT = [1, 2]


def allowed_anew(kind, new):
    """Return what may follow the new tokens, by a matcher that reads them one by one."""
    matcher = llguidance().LLMatcher(tokenizer_of(encoder()), grammar_of(kind, GRAMMARS[kind]))
    n_vocab = encoder().n_vocab
    for token in new:
        if token == encoder().end_of_text:
            return np.arange(n_vocab) == token
        if not matcher.consume_token(token):
            return np.ones(n_vocab, dtype=bool)
    bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
    return np.unpackbits(bits, bitorder="little")[:n_vocab] == 1


@cache
def used_pattern(kind):
    """Return a pattern that all examples share."""
    return Pattern(grammar_of(kind, GRAMMARS[kind]), encoder(), len(PROMPT))


# How many tokens to go back, how many to add, the rows to ask for, and chance for the tokens.
STEPS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(1, 6),
                           st.integers(0, 2**32)), min_size=1, max_size=4)


@pytest.mark.parametrize("kind", GRAMMARS)
@settings(max_examples=20, deadline=None)
@given(steps=STEPS, p_wrong=st.sampled_from([0.0, 0.1]))
def test_every_row_has_the_mask_of_a_matcher_that_has_read_its_own_prefix_alone(
        kind, steps, p_wrong):
    pattern = used_pattern(kind)
    ids = list(PROMPT)
    for n_back, n_more, n_last, seed in steps:
        rng = np.random.default_rng(seed)
        ids = ids[: max(len(PROMPT), len(ids) - n_back)]
        for _ in range(n_more):
            is_wrong = rng.random() < p_wrong
            may_follow = np.arange(pattern.n_vocab) if is_wrong else np.flatnonzero(pattern(ids))
            ids.append(int(rng.choice(may_follow)))
        n_last = min(n_last, len(ids) - len(PROMPT) + 1)
        logits = rng.normal(size=(n_last, pattern.n_vocab))
        rows = warp(logits, ids=ids, allowed=pattern)
        for i, row in enumerate(logits):
            new = ids[len(PROMPT) : len(ids) - (n_last - 1 - i)]
            weights = np.exp(row) * allowed_anew(kind, new)
            assert np.allclose(rows[i], weights / weights.sum(), rtol=1e-12, atol=0)


def test_a_text_fits_if_it_may_end_there_whatever_was_asked_before():
    """The three texts are the prompt alone, a beginning, and a whole text."""
    pattern = used_pattern("lark")
    texts = [[*PROMPT, *encoder().encode(text)] for text in ("", " and and", " and and.")]
    for i in (2, 0, 1, 2, 1, 0):
        assert pattern.may_end(texts[i]) == (i == 2)


class Letters:
    """Have a token for each of these letters, and an end of text: no other byte can be written."""

    def __init__(self, letters):
        self.letters = letters
        self.end_of_text = len(letters)
        self.n_vocab = len(letters) + 1

    def decode_bytes(self, ids):
        return "".join(self.letters[i] for i in ids if i != self.end_of_text).encode()

    def encode_bytes(self, data):
        return [self.letters.index(letter) for letter in data.decode() if letter in self.letters]


def test_a_vocabulary_without_the_bytes_of_a_pattern_is_refused_where_it_needs_them():
    with pytest.raises(ValueError, match="tokenizer cannot write the pattern: none of its tokens"):
        Pattern(grammar_of("regex", "c|dab"), Letters("ab"), 0)
    pattern = Pattern(grammar_of("regex", "a(b|c)d|aab"), Letters("ab"), 0)
    for _ in range(2):  # a failed matcher is replaced, so the other texts have their masks
        assert pattern([0]).tolist() == [True, True, False]
        assert pattern([0, 0]).tolist() == [False, True, False]
        with pytest.raises(ValueError, match="beyond 2 new tokens: none of its tokens may follow"):
            pattern([0, 1])


def test_a_pattern_that_becomes_too_complex_is_an_error_and_not_an_end(capfd):
    pattern = Pattern(grammar_of("regex", "((a|b){1,1000}){1,1000}"), Letters("ab"), 0)
    ids = np.random.default_rng(0).integers(2, size=500).tolist()
    assert pattern(ids[:9])[:2].all()
    with pytest.raises(ValueError, match="new tokens: lexer error: too many expressions") as error:
        pattern(ids)
    assert "\n" not in str(error.value) and capfd.readouterr().err == ""


def assert_valid(text, schema):
    """Refuse a text that is no document of a schema."""
    jsonschema = pytest.importorskip("jsonschema", reason="needs requirements/pattern.txt")  # slow
    jsonschema.validate(json.loads(text), schema)


# ---- in main.py

BEGINNING = "There was once an old woman who"
END = "<|endoftext|>"
SEVEN = r" lived in the (forest|castle) with her (two|three|seven) (sons|daughters)\."


def written_after(prompt, text):
    """Return the part of a text after the prompt, without the token that ends it."""
    return text.removeprefix(prompt).removesuffix(END)


def written_text(*flags):
    """Return what a run of the bundled pair writes."""
    task, _ = with_costs(load_task(parse_args(["--prompt", BEGINNING, *flags])))
    run = decode(task, decoder_step)
    ids = run.ids[:-1] if run.ids[-1] == task.encoder.end_of_text else run.ids
    return task.encoder.decode(ids)


def test_no_window_is_advised_that_a_pattern_refuses():
    why = refusal(main.main, "--regex", "a+", "--prompt", "word " * 600)
    assert "shorten it" in why and "--window" not in why


def test_every_decoder_writes_texts_that_fit():
    for name, entry in DECODERS.items():
        temperature = "0" if entry.greedy else "1"
        text = written_text("--decoder", name, "--regex", SEVEN, "--temperature", temperature)
        assert re.fullmatch(SEVEN, text), name


def test_forced_tokens_need_no_pass_and_are_counted_apart():
    numbers = json_of_run("--prompt", BEGINNING, "--regex", SEVEN)
    assert numbers["fits_pattern"] and numbers["identical"]
    n_chosen = len(numbers["speculative"]["ids"]) - numbers["forced"]
    assert numbers["forced"] >= 4 and numbers["target_passes"] <= n_chosen
    assert sum(numbers["rounds_by_accepted"]) == numbers["target_passes"]
    assert numbers["settings"]["regex"] == SEVEN and "lark" not in numbers["settings"]


@pytest.mark.parametrize("flags, words", [
    ((), "The text fits the pattern."), (("--n_tokens_to_generate", 3), "not fit the pattern yet"),
    (("--stop", " with"), "The text does not fit the pattern: --stop ended it.")])
def test_a_run_says_whether_its_text_fits_and_what_ended_one_that_does_not(flags, words):
    assert words in run_main("--prompt", BEGINNING, "--regex", SEVEN, *flags)[1]


def test_a_text_that_a_stop_cuts_inside_a_token_is_judged_as_it_is_returned():
    for regex, fits in ((" was", False), (" wa|" + " was", True)):
        got = json_of_run("--prompt", BEGINNING, "--regex", regex, "--stop", "wa")
        assert (got["speculative"]["text"], got["fits_pattern"]) == (BEGINNING + " wa", fits)


@pytest.mark.parametrize("flags", [
    "--top_k 2 --top_p 0.5 --temperature 1", "--repetition_penalty 0.1 --temperature 1", "--stop .",
    "--decoder traversal --widths 2,2 --temperature 1", "--decoder eagle --widths dynamic",
    "--decoder FOLDER/own.py --temperature 1", "--show --trace FOLDER/run.html"])
def test_a_pattern_goes_together_with_other_flags(flags, tmp_path):
    (tmp_path / "own.py").write_text("from variants.match import match_verify as verify", "utf-8")
    words = flags.replace("FOLDER", str(tmp_path)).split()
    numbers = json.loads(run_main("--prompt", BEGINNING, "--regex", SEVEN, "--json", *words)[1])
    decoder = numbers["settings"]["decoder"]
    assert numbers["fits_pattern"]
    assert re.fullmatch(SEVEN, written_after(BEGINNING, numbers[decoder]["text"]))


REFUSED = [  # flags, the text of the FILE that they name, why
    ("--regex (", "", "--regex is not valid: .*unclosed group"),
    ("--regex ( --prompts - --out -", "", "--regex is not valid: "),
    ("--json_schema FILE", "{", "--json_schema is not valid: Expecting property name"),
    ("--json_schema FILE", '{"a":' * 20_000, "--json_schema is not valid: it is nested too deeply"),
    ("--json_schema FILE", '{"not": {}}', "--json_schema is not valid: .*not"),
    ("--lark FILE", 'start: "a', "--lark is not valid: "),
    ("--lark FILE", 'start: "a" <[9999]>', "this tokenizer cannot write the pattern: ")]


@pytest.mark.parametrize("flags, text, why", REFUSED)
def test_a_pattern_that_cannot_be_written_is_refused(flags, text, why, tmp_path):
    (tmp_path / "pattern").write_text(text, encoding="utf-8")
    words = flags.replace("FILE", str(tmp_path / "pattern")).split()
    assert re.search(why, refusal(main.main, *words).strip())


# ---- in --prompts

LINES = [{"prompt": BEGINNING, "regex": SEVEN}, {"prompt": BEGINNING, "json_schema": SCHEMA},
         {"prompt": BEGINNING, "lark": 'start: " and" " then."', "id": 1}, {"prompt": BEGINNING}]
BAD_LINES = [({"regex": "("}, '"regex" is not valid: '),
             ({"regex": 3}, 'need a "regex" that is text'),
             ({"json_schema": "{"}, '"json_schema" is not valid: '),
             ({"regex": "a", "lark": "b"}, '"regex" and "lark" are both given: choose one')]


def test_a_line_has_its_own_pattern(tmp_path):
    status, records, _ = records_of(tmp_path, LINES, "--temperature", 1,
                                    "--n_tokens_to_generate", 40)
    assert status == 0
    for record, line in zip(records, LINES):
        kinds = {*line} & {*GRAMMARS}
        assert [record.get(kind) for kind in GRAMMARS] == [line.get(kind) for kind in GRAMMARS]
        assert record.get("fits_pattern") is (True if kinds else None)
    texts = [written_after(BEGINNING, record["text"]) for record in records]
    assert re.fullmatch(SEVEN, texts[0]) and texts[2] == " and then."
    assert_valid(texts[1], SCHEMA)


def test_a_lines_bad_pattern_is_its_error_and_the_other_lines_are_written(tmp_path):
    lines = [*({"prompt": "A", **bad} for bad, _ in BAD_LINES), {"prompt": "A", "regex": " man"}]
    status, records, _ = records_of(tmp_path, lines)
    assert status == 3
    for record, (_, why) in zip(records, BAD_LINES):
        assert why in record["error"] and "\n" not in record["error"]
    assert records[-1]["text"] == f"A man{END}" and records[-1]["forced"] == 2


def test_a_pattern_that_becomes_too_complex_while_it_is_written_is_its_lines_error(tmp_path):
    lines = [{"prompt": "A", "regex": "((a|b){1,1000}){1,1000}"}, {"prompt": "A", "regex": " man"}]
    status, records, _ = records_of(tmp_path, lines, "--n_tokens_to_generate", 200)
    assert status == 3
    assert records[0]["error"].startswith("this tokenizer cannot write the pattern beyond ")
    assert "ids" not in records[0] and records[1]["text"] == f"A man{END}"


def test_the_flags_pattern_holds_for_each_line_without_its_own(tmp_path):
    lines = [{"prompt": "A"}, {"prompt": "A", "regex": " bird"}]
    assert records_of(tmp_path, lines[:1], "--regex", " man")[0] == 0
    status, records, _ = records_of(tmp_path, lines, "--regex", " man")  # resumes
    assert status == 0
    assert [record["text"] for record in records] == [f"A man{END}", f"A bird{END}"]
    # a different pattern, or none, is a different run
    for flags, others in [(["--regex", " king"], lines), ([], lines),
                          (["--regex", " man"], lines[:1] * 2)]:
        status, same, err = records_of(tmp_path, others, *flags)
        assert status == 2 and "was written with regex" in err and same == records


@pytest.mark.parametrize("temperature", ["0", "1"])
def test_the_pages_schema_gives_a_valid_document_and_the_text_it_quotes(tmp_path, temperature):
    page = file_text("docs/patterns.md")
    schema = code(page, "json")
    (tmp_path / "schema.json").write_text(schema, encoding="utf-8-sig")  # as some editors do
    got = json_of_run("--prompt", "Once there was a man. ", "--temperature", temperature,
                      "--json_schema", tmp_path / "schema.json", "--seed", 1)
    text = got["speculative"]["text"]
    assert f"{text}\n" in page
    assert_valid(written_after("Once there was a man. ", text), json.loads(schema))
