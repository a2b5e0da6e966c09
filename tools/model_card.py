"""The measured part of models/README.md: python -m tools.model_card WORK/report.json"""
import json
import sys

NAMES = {"half": "target, first part (8 layers)", "deep": "target, second part",
         "target": "target, third part: the model", "early": "draft, first part: the text",
         "draft": "draft, second part: distilled", "control": "or its control: the text again"}


def table(head, rows):
    """A Markdown table."""
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines) + "\n"


def losses(report):
    """Losses of the models and of the n-gram baselines, nats per token."""
    training = report["training"]
    rows = [[name, training[stage]["step"], f"{training[stage]['tokens'] / 1e6:.2f} M",
             f"{training[stage]['elapsed'] / 60:.1f}", f"{training[stage]['train_loss']:.3f}",
             f"{training[stage]['valid_loss']:.3f}"] for stage, name in NAMES.items()]
    rows += [[name, "", "", "", "", f"{loss:.3f}"] for name, loss in report["baselines"].items()]
    return table(["model", "steps", "tokens", "minutes", "training loss", "validation loss"], rows)


def agreement(report):
    """What draft and target have in common on the held-out text as it stands."""
    training = report["training"]
    rows = [[NAMES[stage], f"{training[stage]['tokens'] / 1e6:.2f} M",
             f"{training[stage]['agreement']:.3f}", f"{training[stage]['overlap']:.3f}"]
            for stage in ("draft", "control")]
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


def main():
    with open(sys.argv[1]) as f:
        report = json.load(f)
    for part in (losses, agreement, acceptance, heads):
        print(part.__doc__ + "\n\n" + part(report))
    for temperature, text in report["samples"].items():
        quoted = "\n".join(f"> {line}".rstrip() for line in text.split("\n"))
        print(f"Temperature {float(temperature):g}:\n\n{quoted}\n")


if __name__ == "__main__":
    main()
