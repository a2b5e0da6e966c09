"""A headless Chromium for the tests of pages, by its DevTools protocol. Skipped where none is.

    page.open(uri); page("1 + 1")    a JavaScript expression's value; a promise is waited for
    page.said                        what the console was told, and exceptions that nobody caught
"""

import base64
import contextlib
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync
--disable-background-networking --disable-component-update --remote-allow-origins=*
--remote-debugging-port=0 --hide-scrollbars about:blank""".split()
WAIT = 120  # seconds; a loaded machine starts a browser slowly
KEYS = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowRight": 39, " ": 32}


class Page:
    """One tab: commands go out, answers and events come in, on one socket."""

    def __init__(self, socket):
        self.socket, self.n, self.said = socket, 0, []
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method, **params):
        """One command of the protocol, and its answer."""
        self.n += 1
        self.socket.send(json.dumps({"id": self.n, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown",
                                         "Log.entryAdded"):
                self.said.append(message["params"])
            if message.get("id") == self.n:
                assert "error" not in message, message
                return message["result"]

    def __call__(self, expression):
        """The value of an expression in the page."""
        got = self.ask("Runtime.evaluate", expression=expression, awaitPromise=True,
                       returnByValue=True, replMode=True)
        assert "exceptionDetails" not in got, got["exceptionDetails"]
        return got["result"].get("value")

    def wait(self, expression):
        """Until an expression of the page is true."""
        end = time.monotonic() + WAIT
        while not self(expression):
            assert time.monotonic() < end, f"waited {WAIT} s for {expression}"
            time.sleep(0.05)

    def open(self, uri):
        """Go to a page, and wait for it."""
        self.ask("Page.navigate", url="about:blank")
        self.ask("Page.navigate", url=uri)
        self.wait(f"location.href === {json.dumps(uri)} && document.readyState === 'complete'")

    def look(self, width, dark=False, height=900):
        """As on a screen of this width, in the light or the dark."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def press(self, key):
        """One key, down and up."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, **(text if kind == "keyDown"
                     else {}), windowsVirtualKeyCode=KEYS.get(key, ord(key[0].upper())))

    def screenshot(self, path, whole=True):
        """A picture of the whole page, or of what is seen."""
        data = self.ask("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        Path(path).write_bytes(base64.b64decode(data))


@contextlib.contextmanager
def chromium():
    """A Page in a browser of its own."""
    websocket = pytest.importorskip("websocket", reason="needs websocket-client")
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen([CHROMIUM, *FLAGS, f"--user-data-dir={profile}"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            port = port_of(Path(profile) / "DevToolsActivePort", process)
            with urlopen(f"http://127.0.0.1:{port}/json", timeout=WAIT) as answer:
                tab = next(tab for tab in json.load(answer) if tab["type"] == "page")
            with contextlib.closing(websocket.create_connection(
                    tab["webSocketDebuggerUrl"], timeout=WAIT)) as socket:
                yield Page(socket)
        finally:
            process.terminate()
            process.wait()


def port_of(file, process):
    """Where the browser listens: it writes a file with its port when it does."""
    end = time.monotonic() + WAIT
    while not (file.exists() and "\n" in file.read_text()):
        assert process.poll() is None and time.monotonic() < end, "Chromium did not start"
        time.sleep(0.1)
    return int(file.read_text().split("\n")[0])
