"""Measure what tables and answers need: times, and counts of guesses.

passes     the passes of one run, timed, and what its rounds accepted
clock      functions timed in turns
costs      the times of a draft pass and of target passes
race       decoders raced on the same texts, and the formula's prediction
positions  acceptance by position in the round, and speed-ups, with intervals
answer     whether speculation pays: the rule, and the answer in words
command    flags and cells that commands which measure share
models     the models and prompts of the tables
"""
