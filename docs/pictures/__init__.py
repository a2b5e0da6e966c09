"""The pictures of the pages: python -m docs pictures NAME.

svg        SVG as text
palette    the colours, light and dark
figures    drawing with matplotlib
record     recorded runs as JSON
race       race.svg
wild       wild.svg
power      power.svg
theorem1   theorem1.svg
easy       easy.svg
low_acceptance  low_acceptance.svg
ladder     ladder.svg
forking    forking.svg
speed      the plots of docs/speed.md
gallery    which function draws which picture, and from which figures
"""
