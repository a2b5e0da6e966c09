"""The same seeds give the same texts: a table for every decoder, in float64.

A change that is meant to draw different texts renews the table.
"""

import json

import pytest

from main import decode, decoder_step
from run.flags import parse_args
from run.task import load_task
from tests.pages import file_text
from variants import DECODERS

TEXTS = json.loads(file_text("tests/data/texts.json"))
PROMPT = "There was once an old fisherman who was afraid of the dark, and so"
FLAGS = ("--top_k 40 --repetition_penalty 1.1 --seed 2 --dtype float64 "
         "--n_tokens_to_generate 32 --temperature").split()


@pytest.mark.parametrize("flags", TEXTS)
def test_a_seed_gives_the_recorded_text(flags):
    _, decoder, *_ = words = flags.split()
    temperature = "0" if DECODERS[decoder].greedy else "1"
    task = load_task(parse_args([*words, *FLAGS, temperature, "--prompt", PROMPT]))
    assert decode(task, decoder_step).ids[:20] == TEXTS[flags]
