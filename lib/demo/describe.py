"""A comparison as text for people: two texts, then a table that says what they cost."""


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


def shown(number, form):
    """Return a number in a form such as "{:.2f}", or "-" if there is none."""
    return "-" if number is None else form.format(number)


def table(numbers, decoder):
    """Return plain decoding and the decoder side by side; the speed-up first."""
    plain, fast, rows = numbers["autoregressive"], numbers[decoder], [("", "plain", decoder)]
    add = lambda *row: rows.append(row)
    speedup, predicted = numbers["speedup_measured"], numbers["speedup_predicted"]
    add("speed-up", shown(speedup and 1.0, "{:.2f}"), shown(speedup, "{:.2f}")
        + (f"  (theory, from this run's timings: {predicted:.2f})" if predicted else ""))
    add("time", f"{plain['time_s']:.2f} s", f"{fast['time_s']:.2f} s")
    if "measuring_s" in numbers:
        add("of which measuring", "-", f"{numbers['measuring_s']:.2f} s")
    add("tokens per second", shown(plain["tokens_per_second"], "{:.1f}"),
        shown(fast["tokens_per_second"], "{:.1f}"))
    add("target passes", plain["tokens"], numbers["target_passes"])
    add("tokens per pass", "1.00" if plain["tokens"] else "-",
        shown(numbers["tokens_per_target_pass"], "{:.2f}"))
    add("ms per target pass", shown(numbers["target_ms"], "{:.2f}"),
        shown(numbers["target_pass_ms"], "{:.2f}") if not numbers["rows_per_target_pass"] else
        f"{numbers['target_pass_ms']:.2f} for {numbers['rows_per_target_pass']:.1f} rows")
    if numbers["draft_ms"] is not None:
        add("ms per draft pass", "-", f"{numbers['draft_ms']:.2f}")
    if numbers["tested"]:
        add("guesses accepted", "-", f"{numbers['accepted']} of {numbers['tested']} tested, "
            f"{100 * numbers['acceptance']:.0f} %")
    if "identical" in numbers:
        add("texts identical", "", "yes" if numbers["identical"] else "no")
    return [f"{name:<20}{before:>9}   {after}".rstrip() for name, before, after in rows]


def notes(numbers, decoder):
    """Return what a reader of the table should know of this run."""
    lines = [*context_notes(numbers, decoder)]
    if not numbers["exact"]:
        lines.append("This method is not exact: its text does not follow the target's "
                     "distribution.")
    if "first_difference" in numbers:
        where = numbers["first_difference"]
        expected = "" if numbers["exact"] else ", as expected"
        lines.append(f"The texts differ from new token {where['token'] + 1} on{expected} (top two "
                     f"logits there: {where['gap_of_the_two_best_logits']:.2g} apart).")
    return lines


def context_notes(numbers, decoder):
    """Return a note if the context filled up."""
    n_ctx = numbers["n_ctx"]
    if numbers["window_moved"]:
        return [f"Window: the models see only the last {n_ctx // 2}-{n_ctx - 1} tokens; \"exact\" "
                f"is relative to that."]
    full = [run["tokens"] for run in (numbers["autoregressive"], numbers[decoder])
            if run["ended_by"] == "n_ctx"]
    if not full:
        return []
    tokens = "token" if full[0] == 1 else "tokens"
    return [f"Context full: n_ctx = {n_ctx} reached after {full[0]} new {tokens}; --window "
            "continues."]


def hint(numbers, decoder):
    """Return one thing to try next."""
    if (numbers["speedup_measured"] or 1) < 1:
        if "measuring_s" in numbers:
            return "a better draft: little paid here at the measured costs"
        return ("--decoder speculative --K auto, which measures this machine and picks K "
                "(slower than plain decoding here)")
    if "identical" in numbers and not numbers["greedy_only"]:
        return "--temperature 0.8 --trace run.html, and open run.html"
    return "--show, which prints every round"
