"""The pictures of the pages: python -m docs pictures NAME.

palette    the colours, light and dark
figures    drawing with matplotlib
wild       wild.svg
power      power.svg
low_acceptance  low_acceptance.svg
methods    methods.svg
speed      the plots of docs/speed.md
gallery    which function draws which picture
"""
