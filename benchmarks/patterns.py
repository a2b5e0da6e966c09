"""Measure texts that fit a pattern: tokens per pass and speed-up.

    python -m benchmarks patterns --json benchmarks/results/patterns.json

Two JSON schemas on the bundled pair: one with many fixed keys, and one whose only value is free
text between quotes. All decoders take turns on each prompt (measure/race.py), and all write
under the mask; those with forced runs write forced tokens without a pass (wrappers/forced.py).

    tokens per pass    new tokens / target passes
    forced             new tokens that forced runs wrote / new tokens
    speed-up           over plain decoding without forced runs: the median of the repeats, the
                       slowest and the fastest
"""

import json
from functools import partial
from itertools import chain

from lib.markdown import markdown_table, shown
from lib.pattern import Pattern, grammar_of
from measure import command
from measure.clock import machine
from measure.command import ranged
from measure.models import OPENINGS, load_benchmark_pair
from measure.race import race, race_figures
from variants import Models, build, build_plain
from wrappers.forced import ForcedRound, with_forced_runs

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


# ---- measuring

def figures_of_texts(encoder, texts, grammar, temperature, pair, args):
    """Return the figures of all decoders over all prompts."""
    runs = {name: [[] for _ in range(args.repeats)] for name in RACED}  # [repeat][prompt]
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
    rows = {name: race_figures(texts, runs["plain"]) | {"forced": forced_share(texts)}
            for name, texts in runs.items()}
    return {"decoders": rows}


def forced_share(texts_of_repeats):
    """Return the part of all new tokens that forced runs wrote."""
    rounds = [result for text in chain(*texts_of_repeats) for result in text.rounds]
    n_forced = sum(len(result.ids) for result in rounds if isinstance(result, ForcedRound))
    return n_forced / sum(len(result.ids) for result in rounds)


def all_figures(args):
    """Return the figures of all cases at temperatures 0 and 1."""
    encoder, *pair = load_benchmark_pair("pair")
    cases = {}
    for name, properties in PROPERTIES.items():
        # An object with exactly these properties, in their order.
        schema = {"type": "object", "properties": properties, "required": [*properties],
                  "additionalProperties": False}
        grammar = grammar_of("json_schema", json.dumps(schema))
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
                  ranged(row["tokens_per_s"], "{:.0f}"), ranged(row, figure="speedup")]
                 for decoder, row in case["decoders"].items()]
        yield markdown_table(["decoder", "tokens per pass", "forced",
                              "tokens per second (quartiles)", "speed-up (slowest - fastest)"],
                             lines)


# The patterns end most texts before N tokens.
BENCHMARK = command.Benchmark(__doc__, all_figures, paragraphs, repeats=5, N=150,
                              requirements="requirements/pattern.txt")
