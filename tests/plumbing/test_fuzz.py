"""Every case that fuzzing kept, through the same functions, without the fuzzer."""

import pytest

from tests.fuzz import targets


@pytest.mark.parametrize("target", targets.TARGETS)
def test_no_case_of_the_corpus_is_a_crash(target, monkeypatch):
    monkeypatch.setenv("GPT2_BASE_URL", "http://127.0.0.1:9")
    cases = targets.corpus(target)
    assert len(cases) > 10
    for name, data in cases.items():
        try:
            targets.TARGETS[target](data)
        except Exception as error:
            raise AssertionError(f"{target}: {name}") from error
