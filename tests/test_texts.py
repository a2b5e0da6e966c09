"""The same seeds give the same texts: a table for every decoder, in float64.

A change that is meant to draw different texts renews the table.
"""

import json
import shlex
from pathlib import Path

import pytest

from tests.test_main import json_of_run
from variants import DECODERS

TEXTS = json.loads((Path(__file__).parent / "data" / "texts.json").read_text(encoding="utf-8"))
PROMPT = "There was once an old fisherman who was afraid of the dark, and so"


@pytest.mark.parametrize("flags", TEXTS)
def test_a_seed_gives_the_recorded_text(flags):
    decoder = flags.split()[1]
    temperature = 0 if DECODERS[decoder].greedy else 1
    got = json_of_run(*shlex.split(flags), "--prompt", PROMPT, "--temperature", temperature,
                  "--top_k", 40, "--repetition_penalty", 1.1, "--seed", 2, "--dtype", "float64",
                  "--n_tokens_to_generate", 32)
    assert got[decoder]["ids"][:20] == TEXTS[flags]
