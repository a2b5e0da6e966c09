"""The figures of what models.training.train_pair has trained: report.json in its --work."""
import json
import os

from models.training import baselines, eagle_task, markov_task, tasks
from models.training.plans import NAMES


def baselines_stage(config):
    """Losses of n-gram models on the held-out ids."""
    train, valid = (tasks.load_ids(config["work"], split) for split in ("train", "valid"))
    n_vocab = config["shapes"]["target"]["n_vocab"]
    losses = baselines.ngram_losses(train, valid, n_vocab)
    return dict(zip(("unigram", "bigram", "trigram"), losses))


def losses_stage(config):
    """Losses, accuracies and agreement of the trained models, in PyTorch and float32."""
    work, shapes, valid = config["work"], config["shapes"], tasks.load_ids(config["work"], "valid")
    T, found = shapes["target"]["n_ctx"], {}
    kept = ("valid_loss", "train_loss", "tokens", "step", "elapsed", "begun_from")
    for stage in config["plans"]:
        if state := tasks.result(stage, work):
            found[stage] = {name: state[name] for name in kept if name in state}
    target = tasks.load_trained(work, "target", shapes)
    for stage in ("draft", "control"):
        if stage in found:
            draft = tasks.load_trained(work, stage, shapes)
            same, overlap = tasks.agreement(draft, target, valid, T)
            found[stage].update(agreement=same, overlap=overlap)
    heads = tasks.load_heads(work, target)
    found["heads"]["accuracy"] = tasks.head_accuracy(heads, valid, T)
    if "eagle" in found:
        eagle = eagle_task.load_eagle(work, target)
        found["eagle"]["agreement"] = eagle_task.eagle_agreement(eagle, valid, T)
    if "markov" in found:
        table = markov_task.load_markov(work, heads)
        found["markov"]["overlap"] = markov_task.markov_overlap(table, valid, T)
    return found


def report_stage(config):
    """All figures of the model card, as one dict."""
    from models.training import acceptance, repeats  # NumPy only: the project's own models and loop

    folder, valid = os.path.join(config["work"], "models"), tasks.load_ids(config["work"], "valid")
    training, (target, *drafts) = losses_stage(config), NAMES.values()
    drafts = [name for name in drafts if os.path.exists(os.path.join(folder, name))]
    table = acceptance.acceptance_table(folder, drafts, target, valid, **config["report"])
    return {"training": training, "acceptance": table,
            "repeats": repeats.repeated_shares(folder, target),
            "samples": acceptance.samples(folder, drafts[0], target)}


def save(work, figures):
    """Add figures to report.json in --work and print them."""
    path, known = os.path.join(work, "report.json"), {}
    if os.path.exists(path):
        with open(path) as f:
            known = json.load(f)
    with open(path, "w") as f:
        json.dump({**known, **figures}, f, indent=1)
    print(json.dumps(figures, indent=1), flush=True)
