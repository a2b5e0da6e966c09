"""Commands for users' own models.

will_it_pay  whether speculation pays for a pair, or for one model
report       what will_it_pay measured, in sentences, tables and a picture
export       any model written for other programs
survey       main.py --prompts on many cores or machines
"""
