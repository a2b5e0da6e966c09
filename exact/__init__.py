"""Enumerate what a test of guesses does to the distribution of the text.

law        every outcome of a random function, with its exact probability
toys       models of three tokens, small enough that all their texts are enumerated
rule_file  a guess and a test, read from your file
judge      the command that judges a test in your file
oracle     a check of a verifier over arrays or in a program, in one file to copy
expected   the expected tokens per round of each test, given guesses and rows
optimum    the best acceptance that any exact rule reaches
rules      verification rules used or discussed in public, and how far they are from the target
engines    the verifiers that engines ship, run as they are
"""
