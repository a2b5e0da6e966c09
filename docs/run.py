"""Make docs/run.html, the page of one recorded run. Its first round is in docs/learn.md."""

import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from main import both_decoders, decode, decoder_step
from page.page import raced_run, run_as_data, save_page, stored_run
from run.flags import parse_args, settings_for_json
from run.task import load_task

PAGE = Path(__file__).parent / "run.html"
FLAGS = ('--prompt "There was once an old woman who" --temperature 1 --K 4 --seed 16 '
         '--n_tokens_to_generate 44')
REPEATS = 21
PICTURE = Path(__file__).parent / "img" / "run.png"
BROWSERS = "chromium", "google-chrome", "chrome"
# The browser leaves only one round of the page, and steps through its code to the line that
# tests its first guess: code.walk(i) goes to step i, and ".runs" is the line that runs in this
# step.
ONE_ROUND = """<script>
show(ROUND);
const round = at("round-ROUND");
const code = round.querySelector("details.code");
code.open = true;
round.lastChild.prepend(code);
document.body.replaceChildren(round);
for (let i = 0; !code.querySelector(".runs").textContent.includes("accept("); i++) code.walk(i);
scrollTo(0, 0);
</script>"""


def recorded_run():
    """Return the run without seconds; the seed determines everything else."""
    args = parse_args(shlex.split(FLAGS))
    task = load_task(args)
    rounds = []
    decode(task, decoder_step, rounds.append)
    # Seconds are removed, because they would differ in each recording.
    for round_data in rounds:
        round_data["seconds"] = {}
        del round_data["end"]
    return run_as_data(task.encoder.decode(task.x), rounds, settings_for_json(args))


def recorded_race(repeats=REPEATS):
    """Return the run with the median speed-up of several races, with the race's plain run."""
    args = parse_args(shlex.split(FLAGS))
    runs = []
    for _ in range(repeats):
        rounds = []
        task = load_task(args)
        # Every run has the same seed, so only the times differ.
        numbers = both_decoders(task, rounds.append) | {"settings": settings_for_json(args)}
        runs.append(raced_run(task, numbers, rounds))
    # The middle one of the sorted runs has the median speed-up.
    by_speedup = sorted(runs, key=lambda run: run["plain"]["speedup"])
    return by_speedup[repeats // 2]


def with_todays_code(run):
    """Return a stored run with today's counts and lines of code."""
    # run_as_data computes counts and code again. The stored rounds stay, and so do the entries
    # of a race, which run_as_data does not return.
    return run | run_as_data(run["prompt"], run["rounds"], run["settings"])


def draw_picture(picture: Path, scheme: str, number=4):
    """Save a PNG of one round with its code; `scheme` is "light" or "dark"."""
    # The first browser that is installed.
    browser = next(filter(shutil.which, BROWSERS), None)
    if browser is None:
        raise ValueError(f"--picture needs a browser: one of {', '.join(BROWSERS)}")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        script = ONE_ROUND.replace("ROUND", str(number))
        page.write_text(PAGE.read_text(encoding="utf-8") + script, encoding="utf-8")
        # Chromium's numbers for the two schemes.
        preferred = {"dark": 0, "light": 1}[scheme]
        subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--window-size=800,876", "--virtual-time-budget=3000",
             f"--blink-settings=preferredColorScheme={preferred}", f"--screenshot={picture}",
             page.as_uri()], check=True, capture_output=True)


def write_page(record, seconds, picture):
    """Write the page, or the README's picture of it."""
    if picture:
        draw_picture(PICTURE, "light")
        draw_picture(PICTURE.with_stem("run-dark"), "dark")
        return
    if seconds and not record:
        raise ValueError("--seconds needs --record")
    if seconds:
        run = recorded_race()
    elif record:
        run = recorded_run()
    else:
        run = with_todays_code(stored_run(PAGE))
    save_page(PAGE, run)
