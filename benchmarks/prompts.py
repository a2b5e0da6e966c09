"""The prompts of the tables and how long their texts are: openings of tales, in no training text.

REPETITIVE texts repeat themselves: they are for decoders that copy.
"""

LENGTH = 100  # new tokens per text, in every table

OPENINGS = [
    "The miller's youngest daughter could count to nine and no further, and so",
    "There stood at the edge of the marsh a house with a single window, and in it lived",
    "\"If you carry me over the river,\" said the hedgehog to the goose, \"I will",
    "When the old clockmaker had been dead a year and a day, his three apprentices",
    "Far to the north, where the snow lies until midsummer, a bear once",
    "The queen lost her thimble in the well on a Monday, and by Tuesday",
]
SONG = """Sleep, little lamb, on the hill by the sea,
the wind blows for you and the wind blows for me.
Sleep, little lamb, till the stars are all gone,
and I will sit by you until the new dawn.

Sleep, little bird, in the top of the tree,
the wind blows for you and the wind blows for me.
Sleep, little bird, till the stars are all gone,
and I will sit by you until the new dawn.

Sleep, little fish, in the depths of the sea,
"""
LIST = """The miller's list:
one sack of flour for the baker,
one sack of barley for the baker,
one sack of oats for the baker,
two sacks of flour for the king,
two sacks of barley for the king,
two sacks of oats for the king,
three sacks of flour for the"""
PROGRAM = """if wolf == 1:
    lock(door)
    say("go away, wolf")
if fox == 1:
    lock(door)
    say("go away, fox")
if bear == 1:
    lock(door)
    say("go away, bear")
if lion == 1:
"""
TALE = """First the boy opened the first door, and behind the first door sat a cat. \
"Good evening," said the cat. "Where are you going?" "I am going to the end of the world," said \
the boy.

Then the boy opened the second door, and behind the second door sat a dog. \
"Good evening," said the dog. "Where are you going?" "I am going to the end of the world," said \
the boy.

Then the boy opened the third door, and behind"""
REPETITIVE = [SONG, LIST, PROGRAM, TALE]


def named(n_prompts, N):
    """Return how a table names its texts."""
    return f"1 prompt of {N} new tokens" if n_prompts == 1 else (
        f"{n_prompts} prompts of {N} new tokens each")
