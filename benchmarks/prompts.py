"""Prompts that repeat themselves, for the tables: a song, a list, a program and a tale.

Written for these tables; in no training text.
"""

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
