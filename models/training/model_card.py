"""The measured part of models/README.md: python -m models.training.model_card WORK/report.json"""
import json
import sys

from benchmarks.tables import table

NAMES = {"half": "target, first part (8 layers)", "deep": "target, second part",
         "long": "target, third part", "target": "target, fourth part: the model",
         "early": "draft, first part: the text",
         "draft": "draft, second part: distilled", "control": "or its control: the text again"}


def stages(report, wanted):
    """The stages that were run, or begun from a former model: (name, figures)."""
    return [(NAMES[stage], report["training"][stage]) for stage in wanted
            if stage in report["training"]]


def work(name, stage):
    """Name, steps, tokens and minutes of one stage; none of a model that was there before."""
    if "begun_from" in stage:
        return [f"{name}: in its place the former {stage['begun_from']}", "", "", ""]
    return [name, stage["step"], f"{stage['tokens'] / 1e6:.2f} M", f"{stage['elapsed'] / 60:.1f}"]


def losses(report):
    """Losses of the models and of the n-gram baselines, nats per token."""
    rows = [[*work(name, stage), f"{stage['train_loss']:.3f}", f"{stage['valid_loss']:.3f}"]
            for name, stage in stages(report, NAMES)]
    rows += [[name, "", "", "", "", f"{loss:.3f}"] for name, loss in report["baselines"].items()]
    return table(["model", "steps", "tokens", "minutes", "training loss", "validation loss"], rows)


def agreement(report):
    """What draft and target have in common on the held-out text as it stands."""
    rows = [[name, f"{stage['tokens'] / 1e6:.2f} M", f"{stage['agreement']:.3f}",
             f"{stage['overlap']:.3f}"] for name, stage in stages(report, ("draft", "control"))]
    return table(["draft", "tokens", "same most probable token",
                  "mean sum of min(p_draft, p_target)"], rows)


def acceptance(report):
    """Acceptance and tokens per target pass for every K."""
    parts = {f"{draft}, temperature {float(t):g}": rows
             for draft, by_t in report["acceptance"].items() for t, rows in by_t.items()}
    rows = [[K] + [f"{part[K - 1][1]:.3f} / {part[K - 1][2]:.2f}" for part in parts.values()]
            for K in range(1, 9)]
    return table(["K", *parts], rows)


def heads(report):
    """How often the target and each head name the right token."""
    accuracy = report["training"]["heads"]["accuracy"]
    names = ["target, 1 ahead"] + [f"head {k}, {k + 1} ahead" for k in range(1, len(accuracy))]
    return table(names, [[f"{a:.3f}" for a in accuracy]])


def markov(report):
    """What the heads, alone and as a chain with their table, have in common with the target."""
    alone, chain = report["training"]["markov"]["overlap"]
    rows = [["alone", *alone], ["with the table", *chain]]
    return table(["mean sum of min(p_draft, p_target)", *(f"head {k}, {k + 1} ahead"
                                                          for k in range(1, 1 + len(alone)))],
                 [[name, *(f"{share:.3f}" for share in shares)] for name, *shares in rows])


def eagle(report):
    """What EAGLE's head and the target have in common, guess by guess, on the held-out text."""
    rows = [[k, f"{same:.3f}", f"{overlap:.3f}"]
            for k, (same, overlap) in enumerate(report["training"]["eagle"]["agreement"], 1)]
    return table(["guess", "same most probable token", "mean sum of min(p_draft, p_target)"], rows)


def repeats(report):
    """The share of tokens in a repeat of 8 or more, in greedy texts of the six openings."""
    shares = report["repeats"]
    rows = [[f"{share:.3f}" for share in [*shares, sum(shares) / len(shares)]]]
    return table([*range(1, len(shares) + 1), "all"], rows)


def main():
    with open(sys.argv[1]) as f:
        report = json.load(f)
    trained = [part for part in (markov, eagle) if part.__name__ in report["training"]]
    for part in (losses, agreement, acceptance, heads, *trained, repeats):
        print(part.__doc__ + "\n\n" + part(report))
    for temperature, text in report["samples"].items():
        quoted = "\n".join(f"> {line}".rstrip() for line in text.split("\n"))
        print(f"Temperature {float(temperature):g}:\n\n{quoted}\n")


if __name__ == "__main__":
    main()
