"""Put the stored run of docs/run.html into today's page. Its first round is in docs/learn.md.

The run, with its race, was recorded by this command. The picture of README.md is a screenshot
of its fourth round.

    python main.py --trace docs/run.html --prompt "There was once an old woman who" \\
        --temperature 1 --K 4 --seed 16 --n_tokens_to_generate 44
"""

from pathlib import Path

from page.page import run_as_data, save_page, stored_run

PAGE = Path(__file__).parent / "run.html"


def with_todays_code(run):
    """Return a stored run with today's lines of code."""
    # run_as_data reads the code again. The stored rounds stay, and so do the entries
    # of a race, which run_as_data does not return.
    return run | run_as_data(run["prompt"], run["rounds"], run["settings"])


def write_page():
    """Write the page."""
    save_page(PAGE, with_todays_code(stored_run(PAGE)))
