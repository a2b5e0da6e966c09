"""The live page shows the real decoders' rounds, whatever other requests arrive."""

import json
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from unittest import mock

import pytest

from lib.pattern import KINDS
from main import decode, decoder_step
from page import live
from run.flags import parse_args
from run.task import load_task
from tests.commands import DEFAULT_CTRL_C, refusal

ASKED = {"prompt": "Once upon a time", "decoder": "speculative", "temperature": 1,
         "n_tokens_to_generate": 12, "seed": 3}


@pytest.fixture(scope="module")
def server():
    with ThreadingHTTPServer((live.HOST, 0), live.Handler) as server:
        server.task = load_task(parse_args([]))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server, body=None, path="/decode", **headers):
    """Return status and text of the answer to a POST, or to a GET without a body."""
    connection = HTTPConnection(live.HOST, server.server_port, timeout=120)
    if isinstance(body, dict):
        body = json.dumps(body)
    connection.request("POST" if body else "GET", path, body, headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def error_of(server, body, **headers):
    """Return the error that answers a request, in one line."""
    _, text = ask(server, body, **headers)
    assert len(text.splitlines()) == 1 and len(text) < 400
    return json.loads(text)["error"]


def ids_of(text):
    rounds = [json.loads(line)["round"] for line in text.splitlines()[1:-1]]
    return [token["id"] for result in rounds for token in result["ids"]]


def directly(server, asked):
    task = live.task_of(server.task, asked)
    return decode(task, decoder_step).ids


# ---- the text

@pytest.mark.parametrize("more, clocks", [
    ({"K": 3}, ["draft", "target"]), ({"decoder": "tree"}, ["draft", "target"]),
    ({"decoder": "stopping"}, ["draft", "target"]), ({"temperature": 0}, ["draft", "target"]),
    ({"decoder": "quantized"}, ["draft", "target"]), ({"decoder": "lookup"}, ["target"])], ids=str)
def test_the_rounds_and_figures_are_those_of_the_real_decoder(server, more, clocks):
    """The clocks are those of the models that the decoder calls."""
    status, text = ask(server, ASKED | more)
    assert status == 200
    if more.get("decoder") != "stopping":  # it guesses by times that are measured
        assert ids_of(text) == directly(server, ASKED | more) != []
    first, *messages, last = map(json.loads, text.splitlines())
    assert len(ids_of(text)) == 12 and last["seconds"] > 0
    by_clock = {name: sum(message["round"]["seconds"][name] for message in messages)
                for name in messages[0]["round"]["seconds"]}
    assert by_clock.keys() == {*clocks} and all(seconds > 0 for seconds in by_clock.values())
    for name, value in (ASKED | more).items():
        if name != "prompt":
            assert first["run"]["settings"][name] == value


def test_the_text_fits_the_pattern_of_its_request_alone(server):
    pytest.importorskip("llguidance", reason="needs requirements/pattern.txt")
    texts = []
    for pattern in ({"regex": " (man|king)"}, {"json_schema": {"const": "king"}}, {}):
        _, answer = ask(server, ASKED | pattern)
        settings = json.loads(answer.splitlines()[0])["run"]["settings"]
        assert {kind: settings[kind] for kind in KINDS if kind in settings} == pattern
        ids = ids_of(answer)
        assert ids == directly(server, ASKED | pattern)
        texts.append(server.task.encoder.decode(ids).removesuffix("<|endoftext|>"))
    assert texts[0] in (" man", " king") and texts[1] == '"king"' and len(ids) == 12


def test_several_at_once_get_each_their_own_text_though_a_tab_is_closed_in_mid_stream(server):
    tab = HTTPConnection(live.HOST, server.server_port, timeout=120)
    tab.request("POST", "/decode", json.dumps(ASKED | {"n_tokens_to_generate": 200}))
    tab.getresponse().close()
    wanted = [ASKED | {"seed": seed, "decoder": decoder}
              for seed, decoder in enumerate(("speculative", "lookup", "tree", "speculative"))]
    with ThreadPoolExecutor(len(wanted)) as users:
        got = users.map(lambda asked: ids_of(ask(server, asked)[1]), wanted)
    assert list(got) == [directly(server, asked) for asked in wanted]


# ---- what is refused

@pytest.mark.parametrize("body, why", [
    ({"K": 0}, "--K: need auto or a whole number >= 1"),
    ({"K": None}, "--K: need a value, got None"), ({"K": [4]}, "--K: need auto or a whole"),
    ({"prompt": "tale " * 5000}, "shorten it"),
    ({"temperature": float("nan")}, '"temperature": need a finite number, got nan'),
    ({"decoder": ["tree"]}, "need one of the decoders speculative, "),
    ({"decoder": "tree", "K": 2}, "--K does not apply to --decoder tree"),
    ({"user": 5}, "'user' is not a choice: choose from prompt, messages, "),
    ('{"messages": []}', "this tokenizer has no chat template"),
    ("{}", 'need a "prompt" that is text'), ("[]", "need a JSON object, got []"),
    ("{", "need JSON, got: "), ("[" * 100_000, "need JSON, got: it is nested too deeply")],
    ids=lambda value: str(value)[:40])
def test_a_malformed_request_is_refused_and_told_why(server, body, why):
    assert why in error_of(server, body if isinstance(body, str) else ASKED | body)


@pytest.mark.parametrize("length, why", [
    *((length, f"need a Content-Length, got {length!r}") for length in ("-1", "x", "", "1" * 30)),
    (str(live.MAX_BYTES + 1), f"need a request of at most {live.MAX_BYTES} bytes, got ")])
def test_a_body_is_refused_by_its_length_before_it_is_read(server, length, why):
    """The body that a header promises never comes."""
    assert error_of(server, ASKED, **{"Content-Length": length}).startswith(why)


def test_a_fault_of_the_decoder_reaches_the_page(server, monkeypatch):
    monkeypatch.setattr(live, "send_rounds", mock.Mock(side_effect=KeyError("here")))
    assert error_of(server, ASKED) == "cannot decode this request: KeyError: 'here'"


@pytest.mark.parametrize("headers, wanted", [
    ({"Host": "evil.example"}, 403), ({"Host": "127.0.0.1:1"}, 403), ({"Origin": "null"}, 403),
    ({"Origin": "http://evil.example"}, 403), ({"Host": "localhost:PORT"}, 200),
    ({"Origin": "http://127.0.0.1:PORT"}, 200)], ids=str)
def test_a_different_name_or_origin_is_refused(server, headers, wanted):
    headers = {name: value.replace("PORT", str(server.server_port))
               for name, value in headers.items()}
    assert ask(server, ASKED | {"n_tokens_to_generate": 1}, **headers)[0] == wanted
    assert ask(server, None, "/", **headers)[0] == wanted


def test_the_page_may_ask_its_own_server_only(server):
    assert ask(server, None, "/../main.py")[0] == ask(server, ASKED, "/")[0] == 403
    _, text = ask(server, None, "/")
    assert "default-src 'none'; connect-src 'self';" in text and text.count("<script") == 3
    assert server.socket.getsockname()[0] == "127.0.0.1"


# ---- a separate process, and the page

def test_ctrl_c_ends_it_while_a_text_is_written():
    process = subprocess.Popen([sys.executable, "-m", "page.live", "--port", "0",
                                "--backend", "numpy"], text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, preexec_fn=DEFAULT_CTRL_C)
    try:
        port = int(re.match(r"http://127\.0\.0\.1:(\d+)/", process.stdout.readline())[1])
        connection = HTTPConnection("127.0.0.1", port, timeout=120)
        connection.request("POST", "/decode", json.dumps(ASKED | {"n_tokens_to_generate": 200}))
        connection.getresponse().readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0 and said.endswith("\npage.live: stopped\n")
        assert "Traceback" not in said
    finally:
        process.kill()


def test_a_port_that_cannot_be_used_is_named_in_one_line(server):
    assert "--port: need a " in refusal(live.main, "--port", -1)
    port = server.server_port
    why = refusal(live.main, "--port", port)
    assert f"cannot use port {port}: " in why and "choose a different --port" in why


def test_the_page_writes_the_text_that_was_asked_for_and_can_stop(server, browser):
    tab = browser
    tab.open(f"http://127.0.0.1:{server.server_port}/")
    # before the first text: no figures, no settings
    shown = tab("document.body.innerText")
    assert " in 0 passes" not in shown and "temperature 0" not in shown
    assert "undefined" not in shown
    assert "Settings" not in shown and "a pass gives one token or several" in shown
    # a text that is written to its end
    tab("""ask.prompt.value = "Once upon a time"; ask.n_tokens_to_generate.value = 12;
           ask.seed.value = 3;
           ask.generate.click()""")
    tab.wait("!ask.generate.disabled")
    assert tab("at('state').textContent") == "Done"
    shown = tab("document.body.innerText")
    assert "12 tokens in" in shown and "temperature 1" in shown and "Settings" in shown
    assert tab("run.rounds.flatMap(round => round.ids.map(each => each.id))") == directly(
        server, ASKED | {"K": 4})
    # a text that is stopped
    tab("ask.n_tokens_to_generate.value = 200; ask.generate.click()")
    tab.wait("run.rounds.length > 3")
    tab("ask.stop.click()")
    tab.wait("!ask.generate.disabled")
    n = tab("run.rounds.flatMap(round => round.ids).length")
    assert tab("at('state').textContent") == "Stopped"
    assert tab("at('result').textContent").startswith(f"{n} tokens in ")
    # a decoder without K, and a request that is refused
    tab("ask.decoder.value = 'tree'; ask.decoder.dispatchEvent(new Event('change'))")
    assert tab("ask.K.disabled") and "K" not in tab("asked()")
    tab("ask.prompt.value = 'tale '.repeat(5000); form.requestSubmit()")
    tab.wait("!ask.generate.disabled")
    assert tab("at('state').textContent").endswith("shorten it")
    assert [said for said in tab.said if "entry" not in said] == []


# ---- forced tokens

def test_a_forced_round_has_no_pass_and_no_tested_guess(server, browser):
    pytest.importorskip("llguidance", reason="needs requirements/pattern.txt")
    browser.open(f"http://127.0.0.1:{server.server_port}/")
    browser("""ask.prompt.value = "Once upon a time"; ask.n_tokens_to_generate.value = 20;
               ask.regex.value = " Oberammergau(, and [a-z ]{20,40})"; ask.generate.click()""")
    browser.wait("!ask.generate.disabled")
    rounds = browser("run.rounds")
    asked = [each for each in rounds if "forced" not in each]
    tested = sum("accepted" in guess for each in asked for guess in each["guesses"])
    shown = browser("at('result').textContent")
    assert 0 < len(asked) < len(rounds) and tested
    assert f" tokens in {len(asked)} pass" in shown and f" of {tested} tested" in shown
