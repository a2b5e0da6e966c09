"""Show a run in a browser.

page      the page of a run, trace.html with the run's data
listing   the code of one round, as the page lists it
live      a page that shows each round of a run as soon as it is done
"""
