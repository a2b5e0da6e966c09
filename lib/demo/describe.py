"""Write a comparison as text for people: two texts, then a table of what they cost."""


def describe(numbers, decoder):
    """Return what main.py prints: both decoders' time and text, the table, what to try next."""
    lines = []
    for name, title in (("autoregressive", "Plain decoding (target alone)"),
                        (decoder, f"{decoder.capitalize()} decoding")):
        run = numbers[name]
        same = name == decoder and numbers.get("identical") and run["tokens"]
        speed = f"{run['tokens_per_second']:.1f} tokens/s" if run["tokens"] else "no tokens"
        lines += [title, "-" * len(title), f"Time = {run['time_s']:.2f}s ({speed})",
                  f"Text = {'identical' if same else run['text']}", ""]
    return "\n".join([*lines, *table(numbers, decoder), "", *notes(numbers, decoder),
                      f"Matrix products: {numbers['product']}",
                      f"Try: {hint(numbers, decoder)}"])


def shown(number, form=".2f"):
    """Return a number as text, or "-" if there is none."""
    return "-" if number is None else format(number, form)


def table(numbers, decoder):
    """Return plain decoding and the decoder side by side; the speed-up first."""
    plain, fast, predicted = (numbers[name] for name in
                              ("autoregressive", decoder, "speedup_predicted"))
    speedup, n_rows = numbers["speedup_measured"], numbers["rows_per_target_pass"]
    theory = f"  (theory, from this run's timings: {predicted:.2f})" if predicted else ""
    rows = [("", "plain", decoder),
            ("speed-up", shown(speedup and 1.0), shown(speedup) + theory),
            ("time", f"{plain['time_s']:.2f} s", f"{fast['time_s']:.2f} s")]
    if "measuring_s" in numbers:
        rows.append(("of which measuring", "-", f"{numbers['measuring_s']:.2f} s"))
    rows += [("tokens per second", shown(plain["tokens_per_second"], ".1f"),
              shown(fast["tokens_per_second"], ".1f")),
             ("target passes", plain["tokens"], numbers["target_passes"]),
             ("tokens per pass", "1.00" if plain["tokens"] else "-",
              shown(numbers["tokens_per_target_pass"])),
             ("ms per target pass", shown(numbers["target_ms"]),
              shown(numbers["target_pass_ms"]) + (f" for {n_rows:.1f} rows" if n_rows else ""))]
    if numbers["draft_ms"] is not None:
        rows.append(("ms per draft pass", "-", shown(numbers["draft_ms"])))
    if numbers["tested"]:
        rows.append(("guesses accepted", "-", f"{numbers['accepted']} of {numbers['tested']} "
                     f"tested, {100 * numbers['acceptance']:.0f} %"))
    if "identical" in numbers:
        rows.append(("texts identical", "", "yes" if numbers["identical"] else "no"))
    return [f"{name:<20}{before:>9}   {after}".rstrip() for name, before, after in rows]


def notes(numbers, decoder):
    """Return what a reader of the table should know of this run."""
    lines, n_ctx = [], numbers["n_ctx"]
    full = [run["tokens"] for run in (numbers["autoregressive"], numbers[decoder])
            if run["ended_by"] == "n_ctx"]
    if numbers["window_moved"]:
        lines.append(f"Window: the models see only the last {n_ctx // 2}-{n_ctx - 1} tokens; "
                     "\"exact\" is relative to that.")
    elif full:
        lines.append(f"Context full: n_ctx = {n_ctx} reached after {full[0]} new "
                     f"{'token' if full[0] == 1 else 'tokens'}; --window continues.")
    if not numbers["exact"]:
        lines.append("This method is not exact: its text does not follow the target's "
                     "distribution.")
    if "first_difference" in numbers:
        where = numbers["first_difference"]
        expected = "" if numbers["exact"] else ", as expected"
        lines.append(f"The texts differ from new token {where['token'] + 1} on{expected} (top two "
                     f"logits there: {where['gap_of_the_two_best_logits']:.2g} apart).")
    return lines


def hint(numbers, decoder):
    """Return one thing to try next."""
    if (numbers["speedup_measured"] or 1) < 1:
        if "measuring_s" in numbers:
            return "a better draft: little paid here at the measured costs"
        if decoder != "speculative":
            return "a run without these flags (slower than plain decoding here)"
        return "--K auto, which measures this machine and picks K (slower than plain decoding here)"
    if "identical" in numbers and not numbers["greedy_only"]:
        return "--temperature 0.8 --trace run.html, and open run.html"
    return "--show, which prints every round"
