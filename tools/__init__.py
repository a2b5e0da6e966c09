"""Commands for users' own models.

will_it_pay  whether speculation pays for a pair
export       any model written for other programs
survey       main.py --prompts on many cores or machines
"""
