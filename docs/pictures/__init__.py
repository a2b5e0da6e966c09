"""The pictures of the pages: python -m docs.pictures NAME.

svg        SVG as text
palette    the colours, light and dark
figures    drawing with matplotlib
record     recorded runs as JSON
race       race.svg
one_round  round.svg
theorem1   theorem1.svg
forking    forking.svg
family     family.svg
bars       ladder.svg and wild.svg
speed      the plots of docs/speed.md
__main__   the command
"""
