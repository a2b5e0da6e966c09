"""Run pages in a headless Chromium, by its DevTools protocol; skip where there is none.

    page.open(uri)               goes to a page, and waits for it
    page("1 + 1")                the value of a JavaScript expression; a promise is awaited
    page.wait("shown === 2")     waits until an expression is true
    page.press("n")              presses and releases one key
    page.said                    messages on the console, and exceptions that no code caught
"""

import contextlib
import json
import shutil
import subprocess
import tempfile
from itertools import combinations
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.commands import until

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync
--disable-background-networking --disable-component-update --remote-allow-origins=*
--remote-debugging-port=0 --hide-scrollbars about:blank""".split()
KEYS = {"Enter": ("\r", 13), "ArrowLeft": ("", 37), "ArrowRight": ("", 39)}  # text, code
TELEPHONE = 358  # pixels: the width of a page on a narrow screen
# Each picture of a page: its width and height in pixels, and its width in its own units. Of all
# texts that can be seen: their edges in pixels, the edges of their letters, which leave about a
# fifth of the line above and below them, and the size of the letters in the picture's units.
PICTURES = """[...document.querySelectorAll("svg")].map(picture => {
const frame = picture.getBoundingClientRect();
const hidden = e =>
  e !== picture && (getComputedStyle(e).opacity === "0" || hidden(e.parentElement));
const seen = [...picture.querySelectorAll("text")].filter(
  e => e.textContent.trim() && !hidden(e));
return {width: frame.width, height: frame.height, units: picture.viewBox.baseVal.width,
texts: seen.map(e => {
  const box = e.getBoundingClientRect();
  return {words: e.textContent, left: box.left - frame.left, right: box.right - frame.left,
          top: box.top - frame.top, bottom: box.bottom - frame.top,
          high: box.top + box.height / 5, low: box.bottom - box.height / 5,
          size: parseFloat(getComputedStyle(e).fontSize)}; })}; })"""


class Page:
    """Control one tab: commands go out, answers and events come in, on one socket."""

    def __init__(self, socket):
        self.socket = socket
        self.n = 0  # commands sent
        self.said = []
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method, **params):
        """Send one command of the protocol; return its answer."""
        self.n += 1
        self.socket.send(json.dumps({"id": self.n, "method": method, "params": params}))
        while (message := json.loads(self.socket.recv())).get("id") != self.n:
            if message.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown",
                                         "Log.entryAdded"):
                self.said.append(message["params"])
        assert "error" not in message, message
        return message["result"]

    def __call__(self, expression):
        got = self.ask("Runtime.evaluate", expression=expression, awaitPromise=True,
                       returnByValue=True, replMode=True)
        assert "exceptionDetails" not in got, got["exceptionDetails"]
        return got["result"].get("value")

    def wait(self, expression):
        until(lambda: self(expression))

    def open(self, uri):
        self.ask("Page.navigate", url="about:blank")
        self.ask("Page.navigate", url=uri)
        self.wait(f"location.href === {json.dumps(uri)} && document.readyState === 'complete'")

    def press(self, key):
        text, code = KEYS.get(key, (key, ord(key[0].upper())))
        for kind, typed in (("keyDown", text), ("keyUp", "")):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, text=typed,
                     windowsVirtualKeyCode=code)


@contextlib.contextmanager
def chromium():
    """Yield a Page in a separate browser."""
    websocket = pytest.importorskip("websocket", reason="needs websocket-client")
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen([CHROMIUM, *FLAGS, f"--user-data-dir={profile}"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            file = Path(profile) / "DevToolsActivePort"  # the browser writes it when it listens
            port = until(lambda: file.exists() and file.read_text("utf-8")).split("\n")[0]
            with urlopen(f"http://127.0.0.1:{port}/json", timeout=120) as answer:
                tab = next(tab for tab in json.load(answer) if tab["type"] == "page")
            with contextlib.closing(websocket.create_connection(
                    tab["webSocketDebuggerUrl"], timeout=120)) as socket:
                yield Page(socket)
        finally:
            process.terminate()
            process.wait()


# ---- pictures

def assert_apart(picture, slack=0):
    """Assert that no text of one of PICTURES covers another, or leaves it by more than slack."""
    for text in picture["texts"]:
        assert -slack <= text["left"] < text["right"] <= picture["width"] + slack, text
        assert -slack <= text["top"] < text["bottom"] <= picture["height"] + slack, text
    for one, other in combinations(picture["texts"], 2):
        across = min(one["right"], other["right"]) - max(one["left"], other["left"])
        down = min(one["low"], other["low"]) - max(one["high"], other["high"])
        assert across <= 0.5 or down <= 0.5, (one["words"], other["words"])
