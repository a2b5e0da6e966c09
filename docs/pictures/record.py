"""Record what the pictures show as JSON: one race, and one round that rejects a guess.

    race    both decoders on one prompt, several times; the repeat with the median speed-up
    round   the first round of one text at temperature 1, with every number that decided it

Draws are fixed by the seed; seconds are those of the machine that records.
"""

import time

import numpy as np

from lib.demo.compare import decode, warm_up
from lib.demo.task import load_task
from lib.demo.trace import Recorded, watcher
from main import parse_args
from speculative import generate
from variants import Models, build

RACE = ["--prompt", "The owl said to the mouse,", "--repetition_penalty", "1.2",
        "--temperature", "0", "--K", "4", "--n_tokens_to_generate", "44"]
ROUND = ["--prompt", "There was once an old woman who", "--temperature", "1",
         "--K", "4", "--seed", "16"]
N_TOP = 5  # tokens shown by name


def command(flags):
    """Return the command line that shows a reader the same."""
    quoted = [f'"{flag}"' if " " in flag else flag for flag in flags]
    return " ".join(["python main.py", *quoted])


def timed_rounds(task, decoder):
    """Return the seconds of one run, and every round with the second at which it ended."""
    rounds = []
    run = decode(task, decoder, lambda seen: rounds.append((time.perf_counter(), seen)))
    start = time.perf_counter() - run.seconds
    return {"seconds": run.seconds, "rounds": [
        {"end": end - start, "draft_s": seen["seconds"].get("draft", 0.0),
         "guesses": [[guess["text"], guess.get("accepted")] for guess in seen["guesses"]],
         "ids": [[token["text"], token["origin"]] for token in seen["ids"]]}
        for end, seen in rounds]}


def record_race(repeats=21):
    """Return the repeat with the median speed-up, and the speed-ups of all."""
    task = load_task(parse_args(RACE))
    warm_up(task)
    runs = [{name: timed_rounds(task, name) for name in ("autoregressive", "speculative")}
            for _ in range(repeats)]
    speedups = [run["autoregressive"]["seconds"] / run["speculative"]["seconds"] for run in runs]
    middle = int(np.argsort(speedups)[repeats // 2])
    return {"command": command(RACE), "prompt": task.encoder.decode(task.x),
            "speedups": sorted(speedups)} | runs[middle]


def record_round():
    """Return the first round as lib/demo/trace.py sees it, and both rows of the rejected guess."""
    task = load_task(parse_args(ROUND))
    rng = Recorded(np.random.default_rng(task.seed))
    step = build(task.decoder, Models(task.new_draft(), task.new_target(), task.sampling),
                 task.settings)
    round = next(generate(task.x, step, task.N, rng))
    seen = watcher(task.encoder, rng, n_top=N_TOP)(round)
    n, name = round.n_accepted, lambda token: task.encoder.decode([token])
    if n == len(round.guesses):
        raise ValueError("need a round that rejects a guess, got one that accepts all")
    return {"command": command(ROUND), "prompt": task.encoder.decode(task.x)} | seen | {
        "position": position(round.p_draft[n], round.p_target[n], round.guesses[n], name)}


def position(p_draft, p_target, rejected, name):
    """Return two rows: the most probable tokens by name, all others as three sums."""
    shown = np.argsort(-np.maximum(p_draft, p_target))[:N_TOP].tolist()
    shown += [rejected] * (rejected not in shown)
    shared = np.minimum(p_draft, p_target)
    others = np.delete(np.array([shared, p_target - shared, p_draft - shared]), shown, axis=1)
    return {"tokens": [[name(token), float(p_draft[token]), float(p_target[token])]
                       for token in shown],
            "others": dict(zip(("accepted", "resampled", "rejected"), others.sum(1).tolist()))}
