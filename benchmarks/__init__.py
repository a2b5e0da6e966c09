"""Measure the tables of RESULTS.md: python -m benchmarks NAME.

__main__    the command line of all tables
speed       times of passes, and when speculation pays
variants    every decoder
acceptance  acceptance against temperature
rules       expected tokens per round of every test
batch       several texts per pass
patterns    texts that fit a pattern
engines     other programs on the same work
low_acceptance  faults in the draft, and the acceptance by position that shows them
real        a real chat model, and other programs on the same prompts
power       the oracle's power: how surely it refuses a wrong rule
"""
