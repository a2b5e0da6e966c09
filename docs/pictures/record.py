"""Record what pictures show: a race, a round with a rejected guess, and acceptance by token.

    race    both decoders on one prompt, several times; the repeat with the median speed-up
    round   the first round of one text at temperature 1, as run/rounds.py sees it
    easy    the acceptance at each token of the race's text, at temperature 1

Draws are fixed by the seed; seconds are those of the machine that records.
"""

import shlex

import numpy as np

from docs.tables import stored
from main import both_decoders, decode, decoder_step, plain_step
from run.flags import parse_args
from run.task import load_task
from sampling import softmax

RACE = ('--prompt "The owl said to the mouse," --repetition_penalty 1.2 --temperature 0 --K 4 '
        "--n_tokens_to_generate 44")
ROUND = '--prompt "There was once an old woman who" --temperature 1 --K 4 --seed 16'


def task_and_command(flags):
    """Return the task of a command line, and the command and the prompt for readers."""
    task = load_task(parse_args(shlex.split(flags)))
    return task, {"command": f"python main.py {flags}", "prompt": task.encoder.decode(task.x)}


def timed_rounds(task, new_step):
    """Return the seconds of one run, and every round with the second at which it ended."""
    rounds = []
    run = decode(task, new_step, rounds.append)
    return {"seconds": run.seconds, "rounds": [
        {"end": seen["end"], "draft_s": seen["seconds"].get("draft", 0.0),
         "guesses": [[guess["text"], guess.get("accepted")] for guess in seen["guesses"]],
         "ids": [[token["text"], token["origin"]] for token in seen["ids"]]}
        for seen in rounds]}


def record_race(repeats=21):
    """Return the repeat with the median speed-up, and the speed-ups of all."""
    task, about = task_and_command(RACE)
    both_decoders(task)  # a warm-up
    steps = {"autoregressive": plain_step, "speculative": decoder_step}
    runs = [{name: timed_rounds(task, new_step) for name, new_step in steps.items()}
            for _ in range(repeats)]
    speedups = [run["autoregressive"]["seconds"] / run["speculative"]["seconds"]
                for run in runs]  # both write the same text
    # The middle one of the sorted speed-ups is the median.
    middle = int(np.argsort(speedups)[repeats // 2])
    return about | {"speedups": sorted(speedups)} | runs[middle]


def record_round():
    """Return the first round, with every number that decided it."""
    task, about = task_and_command(ROUND)
    rounds = []
    decode(task, decoder_step, rounds.append)
    return about | rounds[0]  # the first round rejects a guess


def record_easy():
    """Return each token of the stored race with the sum of min(p_draft, p_target) before it."""
    race = stored("race")
    story = race["prompt"] + "".join(token for result in race["speculative"]["rounds"]
                                     for token, _ in result["ids"])
    flags = f'--prompt "{race["prompt"]}" --temperature 1'
    task, about = task_and_command(flags)
    ids = task.encoder.encode(story)
    n_new = len(ids) - len(task.x)
    # The last token predicts nothing, so it is not read. Row i is for new token i.
    read = ids[:-1]
    p_draft = softmax(task.models.draft(read, n_new))
    p_target = softmax(task.models.target(read, n_new))
    acceptance = np.minimum(p_draft, p_target).sum(axis=-1)
    return about | {"tokens": [[task.encoder.decode([token]), float(share)]
                               for token, share in zip(ids[-n_new:], acceptance)]}


RECORDERS = {"race": record_race, "round": record_round, "easy": record_easy}
