"""Patterns: what is allowed after a text depends on the text alone, and every text fits."""

import json
import re

import numpy as np
import pytest

from lib.pattern import Pattern, grammar_of
from tests.bundled import encoder

pytest.importorskip("llguidance")
REGEX = r" lived in the (forest|castle|deep blue sea) with (her|his) [a-z]{1,3}\."
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5},
                                           "age": {"type": "integer"}},
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
