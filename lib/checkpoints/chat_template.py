"""Run a chat template, a Jinja program from a model's files that writes a chat as one text.

The program is a stranger's. jinja2's sandbox keeps Python's objects from it, but limits neither
time nor memory, so it runs in a process that has both limited.
"""

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

# The process of a template: it is given the folder in which Python finds this file.
PROCESS = """import sys
sys.path.insert(0, sys.argv[1])
from lib.checkpoints.chat_template import main
main()"""
SECONDS = 10  # a template that runs longer never ends
BYTES = 2**30  # of memory
NOT_GIVEN = {"tools": None, "documents": None}  # names that a template may read
OLDEST = "3.1.6"  # of jinja2: known programs escape from the sandbox of older versions


def render(template, messages, names):
    """Return the text of a chat up to the model's answer; ValueError if the template fails."""
    if not has_jinja():
        raise ValueError(f"a chat needs the package jinja2, {OLDEST} or later: pip install -r "
                         "requirements/llama.txt")
    job = json.dumps([template, {**NOT_GIVEN, **names, "messages": messages}])
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROCESS, str(Path(__file__).parents[2])], input=job,
            capture_output=True, encoding="utf-8", timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise ValueError(f"the chat template did not end within {SECONDS} s") from None
    if done.returncode:
        why = done.stderr.strip() or "its process crashed"
        raise ValueError(f"the chat template does not take these messages: {why:.200}")
    return json.loads(done.stdout)


def has_jinja():
    """Return whether a jinja2 is installed that is not too old."""
    try:
        version = metadata.version("jinja2")
    except metadata.PackageNotFoundError:
        return False
    numbers = re.match(r"\d+(\.\d+)*", version)[0].split(".")  # without the end of 3.2.0rc1
    return [*map(int, numbers)] >= [*map(int, OLDEST.split("."))]


# ---- in the process of the template

def run_template(template, variables):
    """Return what a template writes, as transformers runs it."""
    import datetime

    from jinja2 import ext, sandbox, utils

    class Generation(ext.Extension):
        """Read {% generation %} .. {% endgeneration %}, the marks of an answer, as no marks."""

        tags = {"generation"}

        def parse(self, parser):
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    class Namespace(utils.Namespace):
        """Hold a template's variables; an underscore may begin Python's own names only."""

        def __init__(self, **variables):
            super().__init__()
            for name, value in variables.items():
                self[name] = value

        def __setitem__(self, name, value):
            if str(name).startswith("_"):
                raise ValueError(f"{name} begins with an underscore")
            super().__setitem__(name, value)

    def raise_exception(message):
        raise ValueError(message)

    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols])
    environment.filters["tojson"] = as_json
    environment.globals |= {
        "raise_exception": raise_exception, "namespace": Namespace,
        "dict": lambda *pairs, **named: dict(*pairs, **named),  # not the type, its functions
        "strftime_now": lambda form: datetime.datetime.now().strftime(form)}
    return environment.from_string(template).render(add_generation_prompt=True, **variables)


def as_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    """Return a value as JSON; jinja2's own filter would write < and > for a web page."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def main():
    """Limit the memory; run the template on standard input, and print its text as JSON."""
    if sys.platform == "linux":  # elsewhere the limited time limits the memory too
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    template, variables = json.load(sys.stdin)
    try:
        print(json.dumps(run_template(template, variables)))
    except Exception as error:  # a program can fail in any way
        sys.exit(" ".join(f"{type(error).__name__}: {error}".split()))
