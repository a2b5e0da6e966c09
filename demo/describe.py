"""Write a comparison as text for people: two texts, then a table of what they cost."""

from demo.compare import SHORT


def describe(numbers, decoder):
    """Return what main.py prints: both decoders' time and text, the table, what to try next."""
    lines = []
    for name, title in (("autoregressive", "Plain decoding (target alone)"),
                        (decoder, f"{decoder.capitalize()} decoding")):
        run = numbers[name]
        same = name == decoder and numbers.get("identical") and run["tokens"]
        lines += [title, "-" * len(title), f"Time = {run['time_s']:.2f}s",
                  f"Text = {'identical' if same else run['text']}", ""]
    return "\n".join([*lines, *table(numbers, decoder), "", *notes(numbers, decoder),
                      f"Matrix products: {numbers['product']}",
                      f"Try: {hint(numbers)}"])


def shown(number, form="{:.2f}", none="-"):
    """Return a number as text, or "-" if there is none."""
    return none if number is None else form.format(number)


def table(numbers, decoder):
    """Return plain decoding and the decoder side by side; the speed-up first."""
    plain, fast, speedup = numbers["autoregressive"], numbers[decoder], numbers["speedup_measured"]
    theory = "  (theory, from this run's timings: {:.2f})"
    rows = [
        ("", "plain", decoder),
        ("speed-up", "1.00",
         shown(speedup, none=f"-  (a text has fewer than {SHORT} tokens)")
         + shown(numbers["speedup_predicted"], theory, none="")),
        ("time", shown(plain["time_s"], "{:.2f} s"), shown(fast["time_s"], "{:.2f} s")),
        ("of which measuring", "-", shown(numbers.get("measuring_s"), "{:.2f} s")),
        ("tokens per second", shown(plain["tokens_per_second"], "{:.1f}"),
         shown(fast["tokens_per_second"], "{:.1f}")),
        ("target passes", plain["tokens"], numbers["target_passes"]),
        ("tokens per pass", "1.00", shown(numbers["tokens_per_target_pass"])),
        ("ms per target pass", shown(numbers["target_ms"]), shown(numbers["target_pass_ms"])
         + shown(numbers["rows_per_target_pass"], " for {:.1f} rows", none="")),
        ("ms per draft pass", "-", shown(numbers["draft_ms"])),
        ("guesses accepted", "-", f"{numbers['accepted']} of {numbers['tested']} tested, "
         f"{100 * numbers['acceptance']:.0f} %" if numbers["tested"] else "-"),
        ("texts identical", "", {True: "yes", False: "no"}.get(numbers.get("identical"), "-"))]
    return [f"{name:<20}{before:>9}   {after}" for name, before, after in rows if after != "-"]


def notes(numbers, decoder):
    """Return what a reader of the table should know of this run."""
    lines, n_ctx = [], numbers["n_ctx"]
    full = [run["tokens"] for run in (numbers["autoregressive"], numbers[decoder])
            if run["ended_by"] == "n_ctx"]
    if numbers["window_moved"]:
        lines.append(f"Window: the models see only the last {n_ctx // 2}-{n_ctx - 1} tokens; "
                     "\"exact\" is relative to that.")
    elif full:
        lines.append(f"Context full: n_ctx = {n_ctx} reached after {full[0]} new tokens; "
                     "--window continues.")
    if numbers.get("vocabularies"):
        lines.append(f"Vocabularies differ: {numbers['vocabularies']}; only these are guessed.")
    if not numbers["exact"]:
        lines.append("This method is not exact: its text does not follow the target's "
                     "distribution.")
    if decoder == "quantized" and not numbers["draft_in_int8"]:
        lines.append("The int8 copy is held as floats here, and no faster than the target: "
                     "only Numba's product reads int8.")
    if "first_difference" in numbers:
        where = numbers["first_difference"]
        lines.append(f"The texts differ from new token {where['token'] + 1} on (top two logits "
                     f"there: {where['gap_of_the_two_best_logits']:.2g} apart).")
    return lines


def hint(numbers):
    """Return one thing to try next."""
    if (numbers["speedup_measured"] or 1) < 1:
        return "python -m tools.will_it_pay, because this was slower than plain decoding"
    return "--trace run.html, and open run.html"
