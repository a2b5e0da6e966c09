"""The prompts of the tables: openings of tales that are in no training text."""

LENGTH = 100  # new tokens per text, in every table

OPENINGS = [
    "The miller's youngest daughter could count to nine and no further, and so",
    "There stood at the edge of the marsh a house with a single window, and in it lived",
    "\"If you carry me over the river,\" said the hedgehog to the goose, \"I will",
    "When the old clockmaker had been dead a year and a day, his three apprentices",
    "Far to the north, where the snow lies until midsummer, a bear once",
    "The queen lost her thimble in the well on a Monday, and by Tuesday",
]


def named(n_prompts, N):
    """Return how a table names its texts."""
    return f"1 prompt of {N} new tokens" if n_prompts == 1 else (
        f"{n_prompts} prompts of {N} new tokens each")
