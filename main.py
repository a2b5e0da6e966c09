"""Continue a prompt with plain decoding, then with speculative decoding, and compare them.

    python main.py --K 4 --temperature 0

Each of the four steps has a file:

    run/flags.py      parses the command line
    run/task.py       loads the models and the prompt that the flags name: a task
    run/compare.py    runs and times both decoders; the loop is `speculative.generate`
    run/describe.py   puts the measurements into words

Modules that only some flags need are imported where they are used.

    done_round   one round of the decoder as data: guesses, draws, distributions (run/rounds.py)
    numbers      the measurements of both runs, a dict that --json prints
"""

import io
import json
import sys
from argparse import Namespace

from lib.terminal import catch_ctrl_c, command, print_safely

if __name__ == "__main__":
    catch_ctrl_c("main.py")  # the imports below take a second

from lib.backend.arrays import gpu_errors_in_one_line
from run.compare import compare
from run.describe import comparison_in_words
from run.flags import parse_args, settings_for_json
from run.task import load_task


@command("main.py")
def main(argv=None):
    """Continue one prompt with both decoders, or each of --prompts with one decoder.

    Returns the exit status, where None stands for 0.
    """
    args = parse_args(argv)
    if args.prompts is None:
        return continue_prompt(args)
    from run.prompts import write_records
    return write_records(args)


def continue_prompt(args: Namespace) -> None:
    """Load, run and print; then save what --memory and --trace ask for."""
    rounds: list[dict] = []
    # With --json standard output gets nothing but the JSON.
    stream = sys.stderr if args.json else sys.stdout
    show_round = None
    if args.show:
        from run.rounds import round_printer
        show_round = round_printer(stream)

    def on_round(done_round):
        if show_round:
            show_round(done_round, is_first=not rounds)
        rounds.append(done_round)

    watches_rounds = args.show or args.trace
    with gpu_errors_in_one_line():
        task = load_task(args)
        numbers = compare(task, on_round if watches_rounds else None)
    numbers["settings"] = settings_for_json(args)
    if args.show:
        print_safely("", stream)  # an empty line after the rounds
    if path := args.settings.get("memory"):
        from lib.memory import remember
        remember(path, task.x + numbers[args.decoder]["ids"], task.encoder.n_vocab)
    text = json.dumps(numbers) if args.json else comparison_in_words(numbers, args)
    print_safely(text, sys.stdout)
    if args.trace:
        from page.page import raced_run, save_page
        save_page(args.trace, raced_run(task, numbers, rounds))
        if not args.json:
            print(f"Wrote {args.trace}")


if __name__ == "__main__":
    if sys.stdout is None:
        sys.exit("main.py: standard output is closed")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Characters that the terminal's encoding lacks are printed as escapes.
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(main())
