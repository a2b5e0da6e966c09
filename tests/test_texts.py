"""The same seeds give the same texts: a table of them, in float64, of every decoder.

A change that means to keep what is drawn keeps these; another one fills the table again.
"""

import json
import shlex
from pathlib import Path

import pytest

from tests.test_main import json_of_run

TEXTS = json.loads((Path(__file__).parent / "data" / "texts.json").read_text(encoding="utf-8"))
PROMPT = "There was once an old fisherman who was afraid of the dark, and so"


@pytest.mark.parametrize("flags", TEXTS)
def test_a_seed_gives_the_text_that_it_gave(flags):
    _, decoder, *_ = flags.split()
    temperature = 0 if decoder in ("big_little", "blockwise") else 1
    got = json_of_run(*shlex.split(flags), "--prompt", PROMPT, "--temperature", temperature,
                      "--top_k", 40, "--repetition_penalty", 1.1, "--seed", 2, "--dtype", "float64",
                      "--n_tokens_to_generate", 32)
    assert got[decoder]["ids"][:20] == TEXTS[flags]
