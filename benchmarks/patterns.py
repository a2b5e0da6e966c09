"""Measure texts that fit a pattern: tokens per pass, speed-up, and what the mask costs.

    python -m benchmarks patterns --json benchmarks/results/patterns.json

Two JSON schemas on the bundled pair: one with many fixed keys, and one whose only value is free
text between quotes. All decoders take turns on each prompt (measure/race.py), and all write
under the mask; those with forced runs write forced tokens without a pass (wrappers/forced.py).

    tokens per pass    new tokens / target passes
    forced             new tokens that forced runs wrote / new tokens
    speed-up           over plain decoding without forced runs: the median of the repeats, the
                       slowest and the fastest
    look               the search for tokens that the pattern forces, before each round
    masks of a round   (seconds of the look + seconds to mask all rows of the round, the draft's
                       and the target's) / seconds of the round's target pass

The rounds of a text are run again to measure masks, with a look, a pass and masks in turns.
"""

import json
import time
from functools import partial
from itertools import chain

import numpy as np

from lib.markdown import markdown_table, shown
from lib.pattern import Pattern, grammar_of
from measure import command
from measure.clock import machine, spread
from measure.command import gain, ranged
from measure.models import OPENINGS, load_benchmark_pair
from measure.race import race, race_figures
from sampling import adjusted_logits
from variants import Models, build, build_plain
from wrappers.forced import ForcedRound, forced_run, with_forced_runs

N_PROMPTS = 3
N_GUESSES = 4
NAME = {"type": "string", "pattern": "^[A-Z][a-z]{2,9}$"}
NUMBER = {"type": "integer", "minimum": 1, "maximum": 99}
KEYS = {"name_of_the_hero": NAME, "age_in_years": NUMBER, "is_a_king": {"type": "boolean"},
        "number_of_daughters": NUMBER,
        "lives_in": {"enum": ["a forest", "a castle", "a village"]},
        "has_a_magic_ring": {"type": "boolean"}}
PROPERTIES = {  # of the JSON object of each case
    "many fixed keys": KEYS,
    "free text": {"tale": {"type": "string", "minLength": 200, "maxLength": 300}}}
RACED = {  # name -> whether it speculates, whether it has forced runs
    "plain": (False, False), "plain, forced runs": (False, True),
    "speculative": (True, False), "speculative, forced runs": (True, True)}


def new_step(draft, target, new_pattern, temperature, stop, speculates, forces):
    """Return the step of one of RACED, with a pattern that has read nothing."""
    allowed = new_pattern()
    models = Models(draft, target, {"temperature": temperature, "allowed": allowed})
    if speculates:
        step = build("speculative", models, {"K": N_GUESSES})
    else:
        step = build_plain("speculative", models)
    return with_forced_runs(step, allowed, stop) if forces else step


def grammar_of_properties(properties):
    """Return the grammar of a JSON object with exactly these properties, in their order."""
    schema = {"type": "object", "properties": properties, "required": [*properties],
              "additionalProperties": False}
    return grammar_of("json_schema", json.dumps(schema))


# ---- measuring

def figures_of_texts(encoder, texts, grammar, temperature, pair, args):
    """Return the figures of all decoders over all prompts, and of the mask."""
    runs = {name: [[] for _ in range(args.repeats)] for name in RACED}  # [repeat][prompt]
    shares = []  # the masks of a round of each text
    stop = {encoder.end_of_text}  # ends the pattern
    # Each prompt has its own race, because its pattern begins after it.
    for ids in texts:
        new_pattern = partial(Pattern, grammar, encoder, len(ids))
        builders = {name: partial(new_step, new_pattern=new_pattern, temperature=temperature,
                                  stop=stop, speculates=speculates, forces=forces)
                    for name, (speculates, forces) in RACED.items()}
        results = race(*pair, builders, [ids], args.N, args.repeats, stop)
        for name, texts_of_repeats in results.items():
            for repeat, written in enumerate(texts_of_repeats):
                runs[name][repeat] += written
        # Each repeat of this race is a list with one text, because the race has one prompt.
        _, target = pair
        shares += [mask_share(new_pattern(), ids, text.rounds, target.fresh(), stop)
                   for [text] in results["speculative, forced runs"]]
    rows = {name: race_figures(texts, runs["plain"]) | {"forced": forced_share(texts)}
            for name, texts in runs.items()}
    return {"decoders": rows, "masks of a round": spread(shares)}


def forced_share(texts_of_repeats):
    """Return the part of all new tokens that forced runs wrote."""
    rounds = [result for text in chain(*texts_of_repeats) for result in text.rounds]
    n_forced = sum(len(result.ids) for result in rounds if isinstance(result, ForcedRound))
    return n_forced / sum(len(result.ids) for result in rounds)


def mask_share(pattern, ids, rounds, target, stop):
    """Return the masks of a round in target passes: the ratio of their means over a text."""
    x = list(ids)
    # The prompt is read here, so that it is not a part of the first round's pass.
    target(x)
    pass_s: list[float] = []  # seconds of each pass
    masks_s: list[float] = []  # seconds of the look and the masks of each round with a pass
    for result in rounds:
        # The round is known already, so what the look returns is not used.
        most = len(result.ids) + 1  # the run ends before
        start = time.perf_counter()
        forced_run(x, most, pattern, stop)
        after_look = time.perf_counter()
        if not isinstance(result, ForcedRound):
            rows = target(x + result.guesses, len(result.guesses) + 1)
            after_pass = time.perf_counter()
            mask_round(rows, x, result.guesses, pattern)
            after_masks = time.perf_counter()
            pass_s.append(after_pass - after_look)
            # The look of this round wrote nothing, but took its time.
            masks_s.append((after_look - start) + (after_masks - after_pass))
        x += result.ids
    return np.mean(masks_s) / np.mean(pass_s)


def mask_round(rows, x, guesses, pattern):
    """Mask the rows of a round: a draft's row before each guess, then all of the target's."""
    # The draft's rows are as long as the target's, so the target's rows are used for both.
    for t in range(len(guesses)):
        adjusted_logits(rows[t : t + 1], x + guesses[:t], allowed=pattern)
    adjusted_logits(rows, x + guesses, allowed=pattern)


def all_figures(args):
    """Return the figures of all cases at temperatures 0 and 1."""
    encoder, *pair = load_benchmark_pair("pair")
    cases = {}
    for name, properties in PROPERTIES.items():
        grammar = grammar_of_properties(properties)
        for T in (0.0, 1.0):
            # The object begins on its own line, after the opening.
            texts = [encoder.encode(f"{opening}\n") for opening in OPENINGS[:N_PROMPTS]]
            cases[f"{name}, temperature {T:g}"] = figures_of_texts(
                encoder, texts, grammar, T, pair, args)
    return machine() | {"prompts": N_PROMPTS, "repeats": args.repeats, "cases": cases}


# ---- the tables

def paragraphs(figures, args):
    """Yield the sentences and tables of a file."""
    yield (f"The bundled pair, K = {N_GUESSES}, {figures['prompts']} prompts, "
           f"{figures['repeats']} repeats. {figures['measured']}")
    for name, case in figures["cases"].items():
        yield f"{name[0].upper()}{name[1:]}:"
        lines = [[decoder, shown(row["tokens_per_pass"]), shown(row["forced"]),
                  ranged(row["tokens_per_s"], "{:.0f}"), gain(row)]
                 for decoder, row in case["decoders"].items()]
        yield markdown_table(["decoder", "tokens per pass", "forced",
                              "tokens per second (quartiles)", "speed-up (slowest - fastest)"],
                             lines)
    yield "What masks cost, in target passes:"
    yield markdown_table(["text", "masks of a round (quartiles)"],
                         [[name, ranged(case["masks of a round"], "{:.3f}")]
                          for name, case in figures["cases"].items()])


# The patterns end most texts before N tokens.
BENCHMARK = command.Benchmark(__doc__, all_figures, paragraphs, repeats=5, N=150,
                              requirements="requirements/pattern.txt")
