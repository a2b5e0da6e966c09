"""Verification rules that were used or discussed in public, right and wrong.

register      every rule: a way to guess, a test, whether it is exact, where it is used
guesses       the ways to guess, and to choose how many guesses are tested
verifiers     the tests, one round at a time
settings      penalties, masks and stop tokens, and how engines misapply them
batched       the rules as functions over arrays
__main__      the command: the tables of docs/wild.md
"""
