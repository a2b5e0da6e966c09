"""Show and measure runs, for main.py and the tools.

flags     the command line of main.py
own       a rule that you wrote, run with real models
task      the models, the prompt and the settings of one run, loaded and checked
compare   plain decoding and a decoder, timed and counted
describe  a comparison in words
trace     every round of a run as data, or as one line
page      the page of a run, trace.html with the run's data
listing   the code of one round, as the page lists it
live      a page that shows a run while it is written
prompts   many prompts: one JSON record each, resumable
costs     the times of a draft step and of target passes
clock     functions timed in turns
answer    whether speculation pays: the rule, and the answer in words
hazards   acceptance by position in the round, and speed-ups, with intervals
race      decoders raced on the same texts, and the formula's prediction
"""
