"""Continue a prompt with plain decoding, then with speculative decoding, and compare them.

    python main.py --K 4 --temperature 0

Four steps are in sight below: parse the flags, load the models, build the decoder's step, and
generate round by round (`speculative.generate`). run/flags.py parses and run/task.py loads;
run/compare.py counts what both runs did, and run/describe.py puts the figures into words.

Modules that only some flags need are imported where they are used.

    numbers      the measurements of both runs, a dict that --json prints
"""

import io
import json
import sys
import time
from argparse import Namespace
from collections.abc import Callable

import numpy as np
from tqdm import tqdm

from lib.terminal import command, print_safely
from measure.passes import Run
from run.compare import compare
from run.describe import PLAIN_TITLE, comparison_in_words, text_printer
from run.flags import parse_args, settings_for_json
from run.task import Task, compile_products, load_task, with_costs
from sampling import HasRandom
from speculative import Step, generate
from variants import Models, build, build_plain
from wrappers.window import windowed


@command("main.py")
def main(argv=None):
    """Continue one prompt with both decoders, or each of --prompts with one decoder.

    Returns the exit status, where None stands for 0.
    """
    args = parse_args(argv)
    if args.prompts is not None:
        from run.prompts import write_records
        return write_records(args)
    return continue_prompt(args)


def continue_prompt(args: Namespace) -> None:
    """Load, run both decoders, print the comparison; save what --memory and --trace ask for."""
    # With --json standard output gets nothing but the JSON.
    stream = sys.stderr if args.json else sys.stdout
    rounds: list[dict] = []
    on_round = rounds.append if args.trace else None
    if args.show:
        from run.rounds import round_printer
        on_round = round_printer(stream, rounds)  # which appends to `rounds` too
    # On a terminal the texts appear as they are written, unless --show or --json prints.
    streams = stream.isatty() and not (args.json or args.show)
    task = load_task(args)
    numbers = both_decoders(task, on_round, streams) | {"settings": settings_for_json(args)}
    if args.show:
        print_safely("", stream)  # an empty line after the rounds
    text = json.dumps(numbers) if args.json else comparison_in_words(
        numbers, args, has_texts=not streams)
    print_safely(text, sys.stdout)
    if path := args.settings.get("memory"):
        from lib.memory import add_to_memory
        add_to_memory(path, task.x + numbers[task.decoder]["ids"], task.encoder.n_vocab)
    if args.trace:
        from page.page import raced_run, save_page
        save_page(args.trace, raced_run(task, numbers, rounds))
        if not args.json:
            print(f"Wrote {args.trace}")


def both_decoders(task: Task, on_round: Callable[[dict], None] | None = None,
                  streams: bool = False) -> dict:
    """Run the task's decoder and plain decoding after a warm-up; return the measurements.

    With `streams` both texts are printed as they are written.
    """
    task, measuring_s = with_costs(task)  # measured only if a flag such as --K auto needs them
    # A warm-up keeps first calls out of the measurement. Its two tokens are the fewest with a
    # guess, because the last token is never guessed.
    few = task._replace(N=min(task.N, 2))
    decode(few, decoder_step, has_bar=False)
    decode(few, plain_step, has_bar=False)
    compile_products(task.models.target)  # for numbers of rows that the warm-up did not have
    fast = decode(task, decoder_step, on_round, f"{task.decoder} decoding" if streams else "")
    plain = decode(task, plain_step, None, PLAIN_TITLE if streams else "")
    return compare(task, plain, fast, measuring_s)


def decoder_step(task: Task, models: Models) -> Step:
    """Return the step of the task's decoder; tokens that a pattern forces need no pass."""
    return task.with_forced(build(task.entry, models, task.settings), models)


def plain_step(task: Task, models: Models) -> Step:
    """Return the step of plain decoding."""
    return build_plain(task.entry, models, task.settings)


def decode(task: Task, new_step: Callable[[Task, Models], Step],
           on_round: Callable[[dict], None] | None = None, title: str = "",
           has_bar: bool = True) -> Run:
    """Write one text, from models that have read nothing; return it with its measurements.

    `on_round` receives every round as data (run/rounds.py). With a title the text is printed
    under it as it is written. In both cases no terminal shows a bar.
    """
    models = task.new_models()
    step = new_step(task, models)
    if task.window:
        step = windowed(step, len(task.x), task.n_ctx)
    rng: HasRandom = np.random.default_rng(task.seed)
    if on_round:
        from run.rounds import watched
        rng, see = watched(task, models, rng)
    run = Run(models.draft, models.target)
    # tqdm reads True as "no bar", and None as "a bar on a terminal only".
    hides_bar = None if has_bar and not (on_round or title) else True
    show_text = text_printer(task, title) if title else None
    with tqdm(total=task.n_new, unit="token", leave=False, disable=hides_bar) as bar:
        start = time.perf_counter()
        for result in generate(task.x, step, task.n_new, rng, task.ended):
            run.add(result, time.perf_counter() - start)
            if on_round:
                on_round(see(result, run.seconds))
            if show_text:
                show_text(run.ids)
            if task.logprobs:
                from run.rounds import log_probabilities
                run.logprobs.extend(log_probabilities(result, task.models.is_greedy))
            bar.update(len(result.ids))
            start = time.perf_counter()  # what is shown is no part of the run's time
    if show_text:
        show_text(run.ids, is_whole=True)
        print("\n")
    return run


if __name__ == "__main__":
    if sys.stdout is None:
        sys.exit("main.py: standard output is closed")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Characters that the terminal's encoding lacks are printed as escapes.
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(main())
