"""Write a comparison as text for people: the two texts, then a table of their costs."""

import shlex
import sys
from argparse import Namespace
from collections.abc import Callable

from lib.markdown import shown
from lib.terminal import print_safely
from run.compare import SHORTEST
from run.task import Task

PLAIN_TITLE = "Plain decoding (target alone)"


def comparison_in_words(numbers: dict, args: Namespace, has_texts: bool = True) -> str:
    """Return what main.py prints: both decoders' time and text, the table, and notes.

    Without `has_texts` both texts are left out, because they were printed as they were written.
    """
    decoder = args.decoder
    texts = [*text_lines(numbers["autoregressive"], PLAIN_TITLE),
             *text_lines(numbers[decoder], f"{decoder} decoding",
                         is_identical=numbers.get("identical", False))]
    return "\n".join([
        *(texts if has_texts else ()),
        *table_lines(numbers, decoder), "", *note_lines(numbers, args),
        f"Matrix products: {numbers['product']}",
        *([f"Try: {tip}"] if (tip := next_step(numbers, args)) else [])])


def text_lines(run: dict, title: str, is_identical: bool = False) -> list[str]:
    """Return the time and the text of one run, under its title."""
    # Identical texts are shown once, unless they are the prompt alone.
    text = "identical" if is_identical and run["tokens"] else run["text"]
    return [title, "-" * len(title), f"Time = {run['time_s']:.2f}s", f"Text = {text}", ""]


def text_printer(task: Task, title: str) -> Callable[..., None]:
    """Print the title and the prompt of a text; return a function that prints its new part.

    The function gets all new tokens so far, and whether they are the whole text. A character is
    printed with its last token; what is left of one at the end is shown as U+FFFD.
    """
    n_shown = 0

    def show(new, is_whole=False):
        nonlocal n_shown
        text = task.text_of(new)
        if not is_whole:
            text = text.rstrip("\ufffd")
        print_safely(text[n_shown:], sys.stdout, end="")
        n_shown = len(text)

    print_safely(f"{title}\n{'-' * len(title)}\nText = ", sys.stdout, end="")
    show([])
    return show


def table_lines(numbers: dict, decoder: str) -> list[str]:
    """Return the table: plain decoding and the decoder in two columns, the speed-up first."""
    plain = numbers["autoregressive"]
    fast = numbers[decoder]
    too_short = f"-  (a text has fewer than {SHORTEST} tokens)"
    if min(plain["tokens"], fast["tokens"]) >= SHORTEST:
        too_short = "-  (a text ended in its first round)"  # no time after the prompt's
    speedup = shown(numbers["speedup_measured"], none=too_short)
    speedup += shown(numbers["speedup_predicted"], "  (theory, from this run's passes: {:.2f})",
                     none="")
    # A pass over more positions takes longer, so they are shown with the time.
    pass_ms = shown(numbers["target_pass_ms"])
    if numbers["target_pass_ms"] is not None:
        pass_ms += shown(numbers["rows_per_target_pass"], " for {:.1f} positions", none="")
    passes = str(numbers["target_passes"])
    if numbers["reading_passes"]:
        passes += f" + {numbers['reading_passes']} for the heads alone"
    accepted = "-"  # also for trees, whose guesses are not counted as tested
    if numbers["tested"]:
        accepted = (f"{numbers['accepted']} of {numbers['tested']} tested, "
                    f"{100 * numbers['acceptance']:.0f} %")
    identical = "-"
    if "identical" in numbers:  # missing if chance may make the texts differ
        identical = "yes" if numbers["identical"] else "no"
    rows = [  # (label, plain decoding, the decoder)
        ("", "plain", decoder),
        ("speed-up", "1.00", speedup),
        ("with the prompt", "1.00", shown(numbers["speedup_with_prompt"])),
        ("time", shown(plain["time_s"], "{:.2f} s"), shown(fast["time_s"], "{:.2f} s")),
        ("to the first token", shown(plain["prompt_s"], "{:.2f} s"),
         shown(fast["prompt_s"], "{:.2f} s")),
        ("of which measuring", "-", shown(numbers.get("measuring_s"), "{:.2f} s")),
        ("tokens/s after it", shown(plain["tokens_per_second"], "{:.1f}"),
         shown(fast["tokens_per_second"], "{:.1f}")),
        ("target passes", plain["tokens"], passes),
        ("tokens per pass", "1.00", shown(numbers["tokens_per_target_pass"])),
        ("ms per target pass", shown(numbers["target_ms"]), pass_ms),
        ("ms per draft pass", "-", shown(numbers["draft_ms"])),
        ("guesses accepted", "-", accepted),
        ("accepted per round", "-", rounds_in_words(numbers["rounds_by_accepted"])),
        ("forced by pattern", "-", shown(numbers.get("forced"), "{} tokens, without a pass")),
        ("texts identical", "", identical)]
    return [f"{name:<20}{before:>9}   {after}" for name, before, after in rows if after != "-"]


def rounds_in_words(n_rounds: list[int]) -> str:
    """Return the mean of the accepted guesses, and how many rounds accepted 0, 1, .. guesses.

    >>> rounds_in_words([2, 0, 6])
    '1.50  (0 in 2 rounds, 1 in 0, 2 in 6)'
    """
    if sum(n_rounds) == 0 or len(n_rounds) == 1:  # no round, or no guess in any
        return "-"
    mean = sum(n * count for n, count in enumerate(n_rounds)) / sum(n_rounds)
    counts = [f"{n} in {count}" for n, count in enumerate(n_rounds)]
    counts[0] += " rounds"  # the noun once, in the first entry
    return f"{mean:.2f}  ({', '.join(counts)})"


def note_lines(numbers: dict, args: Namespace) -> list[str]:
    """Return notes about this run."""
    decoder = args.decoder
    lines = end_lines(numbers, args)
    n_ctx = numbers["n_ctx"]
    both = (numbers["autoregressive"], numbers[decoder])
    # The number of new tokens of each run that filled the context.
    tokens_when_full = [run["tokens"] for run in both if run["ended_by"] == "n_ctx"]
    # A text that outgrew its context has moved the window, or has stopped without --window.
    if numbers["window_moved"]:
        lines.append(f"Window: the models see only the last {n_ctx // 2}-{n_ctx - 1} tokens; "
                     "\"exact\" is relative to that.")
    elif tokens_when_full:
        lines.append(f"Context full: n_ctx = {n_ctx} reached after {tokens_when_full[0]} new "
                     "tokens; --window continues.")
    if numbers.get("vocabularies"):
        lines.append(f"Vocabularies differ: {numbers['vocabularies']}; only these are guessed.")
    if "fits_pattern" in numbers:
        lines.append(pattern_line(numbers["fits_pattern"], numbers[decoder]["ended_by"]))
    if numbers["exact"] is None:
        lines.append(f"No run shows whether {decoder} is exact. The judge enumerates it: "
                     f"{judge_command(args)}")
    elif not numbers["exact"]:
        lines.append("This method is not exact: its text does not follow the target's "
                     "distribution.")
    if args.dtype == "int8":
        lines.append("The target is the model rounded to int8, which has a different "
                     "distribution; \"exact\" is relative to that.")
    if numbers["draft_in_int8"] is False:
        lines.append("The int8 copy is stored as floats here, so it is no faster than the "
                     "target: only Numba's product reads int8.")
    if "first_difference" in numbers:
        # Passes over different numbers of rows round differently, which can swap two logits
        # that are nearly equal. The note shows how near they were.
        where = numbers["first_difference"]
        gap = shown(where["gap_of_the_two_best_logits"], "{:.2g}", none="infinitely far")
        lines.append(f"The texts differ from new token {where['token'] + 1} on (top two logits "
                     f"there: {gap} apart).")
    return lines


def end_lines(numbers: dict, args: Namespace) -> list[str]:
    """Return that the target ended its text by itself, if it did, and how to chat."""
    plain = numbers["autoregressive"]
    if plain["ended_by"] != "stop" or args.stop or args.grammar:  # the user chose the end
        return []
    tokens = "1 token" if plain["tokens"] == 1 else f"{plain['tokens']} tokens"
    lines = [f"The target ended its text after {tokens} (end of text)."]
    if numbers["has_chats"] and args.chat is None:
        lines.append('Its tokenizer has a chat template. To chat: --chat TEXT instead of '
                     '--prompt.')
    return lines


def judge_command(args: Namespace) -> str:
    """Return the command that judges the user's file, at temperature 0 if that was given."""
    command = f"python -m exact.judge {shlex.quote(args.decoder)}"
    is_greedy = args.temperature == 0 and "temperature" in args.given
    return f"{command} --temperature 0" if is_greedy else command


def next_step(numbers: dict, args: Namespace) -> str | None:
    """Return what to try next: measure whether a slow run's models pay, or see the run."""
    speedup = numbers["speedup_measured"]
    if speedup is not None and speedup < 1:
        draft = args.draft_model_size if "draft" in args.needs else "none"
        words = {"target": args.target_model_size, "draft": draft}
        words |= {name: getattr(args, name) for name in ("models_dir", "decoder", "backend")
                  if name in args.given}
        flags = " ".join(f"--{name} {shlex.quote(word)}" for name, word in words.items())
        return (f"python -m tools.will_it_pay {flags} (other flags do not apply to it), "
                "because this was slower than plain decoding")
    return None if args.trace else "--trace run.html, and open run.html"


def pattern_line(fits: bool, ended_by: str) -> str:
    """Return whether the text fits its pattern, and why if it does not."""
    if fits:
        return "The text fits the pattern."
    if ended_by == "stop":
        return "The text does not fit the pattern: --stop ended it."
    return "The text does not fit the pattern yet: it was cut off. Allow more tokens."
