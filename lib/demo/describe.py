"""A comparison as text for people: two texts, then a table that says what they cost."""


def describe(numbers, decoder):
    """What main.py prints: both decoders' time and text, the table, and what to try next."""
    lines = []
    for name in ("autoregressive", decoder):
        run, title = numbers[name], f"{name.capitalize()} decode"
        same = name == decoder and numbers.get("identical") and run["tokens"]
        speed = f"{run['tokens_per_second']:.1f} tokens/s" if run["tokens"] else "no tokens"
        lines += [title, "-" * len(title), f"Time = {run['time_s']:.2f}s ({speed})",
                  f"Text = {'identical' if same else run['text']}", ""]
    return "\n".join([*lines, *table(numbers, decoder), *notes(numbers, decoder)])


def table(numbers, decoder):
    """Plain decoding and the decoder side by side; the speed-up first."""
    plain, fast = numbers["autoregressive"], numbers[decoder]
    shown = lambda value, form: "-" if value is None else form.format(value)
    predicted = shown(numbers["speedup_predicted"], "  (predicted {:.2f})")
    count = "K" if decoder == "speculative" else "guesses"
    K = f", {count} = {numbers['mean_K']:.1f} on average" if "mean_K" in numbers else ""
    rows = [
        ("", "plain", decoder),
        ("speed-up", "1.00", shown(numbers["speedup_measured"], "{:.2f}") + predicted.strip("-")),
        ("time", f"{plain['time_s']:.2f} s", f"{fast['time_s']:.2f} s"),
        *measuring(numbers),
        ("tokens per second", shown(plain["tokens_per_second"], "{:.1f}"),
         shown(fast["tokens_per_second"], "{:.1f}")),
        ("target passes", plain["tokens"], numbers["target_passes"]),
        ("tokens per pass", "1.00" if plain["tokens"] else "-",
         shown(numbers["tokens_per_target_pass"], "{:.2f}") + K),
        ("ms per target pass", shown(numbers["target_ms"], "{:.2f}"),
         shown(numbers["target_pass_ms"], "{:.2f}")
         + shown(numbers["rows_per_target_pass"], " for {:.1f} rows").strip("-")),
    ]
    if numbers["draft_ms"] is not None:
        rows.append(("ms per draft pass", "-", f"{numbers['draft_ms']:.2f}"))
    if numbers["tested"]:
        rows.append(("guesses accepted", "-", f"{numbers['accepted']} of {numbers['tested']} "
                     f"tested ({100 * numbers['acceptance']:.0f} %)"))
    if "identical" in numbers:
        rows.append(("texts identical", "", "yes" if numbers["identical"] else "no"))
    return [f"{name:<20}{before:>9}   {after}".rstrip() for name, before, after in rows]


def measuring(numbers):
    """The row of what --K auto took of the time to know the costs."""
    if "measuring_s" not in numbers:
        return []
    how = "kept from an earlier run" if numbers["costs_known"] else "the first rounds, which try K"
    return [("measuring", "-", f"{numbers['measuring_s']:.2f} s of it: {how}")]


def notes(numbers, decoder):
    """What a reader of the table should know of this run, and one thing to try next."""
    lines = [*context_notes(numbers, decoder)]
    if not numbers["exact"]:
        lines.append("Not the target's distribution: this method trades it for speed.")
    if "first_difference" in numbers:
        where = numbers["first_difference"]
        lines.append(f"The texts part at new token {where['token']}, where the target's two best "
                     f"logits differ by {where['gap_of_the_two_best_logits']:.2g}.")
    lines.append(f"Few rows are multiplied by {numbers['product']}.")
    return ["", *lines, f"Try: {hint(numbers, decoder)}"]


def context_notes(numbers, decoder):
    """What is to be said of the context: nothing, if the text did not come to its end."""
    n_ctx = numbers["n_ctx"]
    if numbers["window_moved"]:
        return [f"Window: the models see the last {n_ctx // 2} to {n_ctx - 1} tokens, and the "
                f"target's distribution is meant so."]
    full = [run["tokens"] for run in (numbers["autoregressive"], numbers[decoder])
            if run["ended_by"] == "n_ctx"]
    return [f"Context full: n_ctx = {n_ctx} reached after {full[0]} new tokens; --window continues."
            ] if full else []


def hint(numbers, decoder):
    """One thing to try next."""
    if numbers.get("mean_K", 1) < 0.1:
        return "a better draft: at this acceptance no K pays, so hardly a guess was made"
    if (numbers["speedup_measured"] or 1) < 1 and "mean_K" in numbers:
        return ("a better draft: no K paid here" if numbers["costs_known"] else
                "the same once more: the costs are known now")
    if (numbers["speedup_measured"] or 1) < 1:
        return "--decoder speculative --K auto, which measures what pays here"
    if "identical" in numbers:
        return "--temperature 0.8 --trace run.html, and open run.html"
    return "--show, which prints every round"
