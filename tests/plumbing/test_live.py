"""lib/demo/live.py: the real decoders' rounds, to its own page only, whoever else asks or leaves."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
from http.client import HTTPConnection

import pytest

from lib.demo import live
from lib.demo.compare import decode
from lib.demo.task import load_task
from main import parse_args
from tests.chromium import chromium
from tests.plumbing.test_robustness import DEFAULT_CTRL_C
from variants import DECODERS

ASKED = {"prompt": "Once upon a time", "N": 12, "seed": 3}


@pytest.fixture(scope="module")
def server():
    task = load_task(parse_args([]))
    with live.make_server(task, 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server, body=None, path="/decode", headers=(), method="POST"):
    """Status, headers and text of an answer. `body` is JSON unless it is bytes."""
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=120)
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    connection.request(method, path, data,
                       {"Content-Type": "application/json", **dict(headers)})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, text


def messages(text):
    return [json.loads(line) for line in text.splitlines()]


def ids_of(said):
    return [token["id"] for message in said if "round" in message
            for token in message["round"]["ids"]]


def directly(server, asked):
    """The ids of the same text without a server."""
    task = live.task_of(server.task, asked)
    return decode(task, task.decoder).ids


# ---- the text

@pytest.mark.parametrize("more", [{}, {"decoder": "lookup", "K": 2}, {"decoder": "tree"},
                                  {"temperature": 0, "race": True}], ids=str)
def test_the_rounds_are_those_of_the_real_decoder(server, more):
    status, headers, text = ask(server, ASKED | more)
    assert status == 200 and headers["Content-Type"].startswith("application/jsonl")
    said = messages(text)
    assert ids_of(said) == directly(server, ASKED | more) != []
    run = said[-1]["run"]
    assert run["summary"]["ids"] == 12 and run["prompt"] == ASKED["prompt"]
    assert run["settings"]["decoder"] == more.get("decoder", "speculative")
    assert ("plain" in run) == ("race" in more)
    if "race" in more:
        assert len(run["plain"]["pieces"]) == 12 and run["plain"]["speedup"] > 0


def test_rounds_are_sent_before_the_text_is_whole(server):
    server.turn.acquire()
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=120)
    connection.request("POST", "/decode", json.dumps(ASKED), {"Content-Type": "application/json"})
    sent = []
    server.turn.release()
    answer = connection.getresponse()
    for line in answer:
        sent.append(json.loads(line))
        if len(sent) == 1:
            assert "round" in sent[0]
    assert len(sent) > 2 and "run" in sent[-1]
    connection.close()


def test_several_at_once_get_each_their_own_text(server):
    wanted = [ASKED | {"seed": seed, "decoder": decoder}
              for seed, decoder in enumerate(("speculative", "lookup", "tree", "speculative"))]
    got = [None] * len(wanted)

    def user(i):
        got[i] = ids_of(messages(ask(server, wanted[i])[2]))

    threads = [threading.Thread(target=user, args=[i]) for i in range(len(wanted))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [directly(server, asked) for asked in wanted]


def test_a_tab_closed_in_mid_stream_takes_nothing_from_the_others(server):
    body = json.dumps(ASKED | {"N": 60}).encode()
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", server.server_port)) as tab:
            tab.sendall(b"POST /decode HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: %d\r\n"
                        b"Content-Type: application/json\r\n\r\n" % (server.server_port, len(body))
                        + body)
            assert tab.recv(100)
            tab.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # at once
    assert ids_of(messages(ask(server, ASKED)[2])) == directly(server, ASKED)
    for _ in range(live.MAX_TEXTS):  # their slots have come back
        assert server.slots.acquire(timeout=60)
    assert server.turn.acquire(timeout=60)
    server.turn.release()
    for _ in range(live.MAX_TEXTS):
        server.slots.release()


# ---- what is refused

def test_too_many_texts_at_once_are_refused(server):
    for _ in range(live.MAX_TEXTS):
        assert server.slots.acquire(timeout=60)
    try:
        assert ask(server, ASKED)[0] == 503
    finally:
        for _ in range(live.MAX_TEXTS):
            server.slots.release()


@pytest.mark.parametrize("body, why", [
    (b"", "need JSON"), (b"{", "need JSON"), (b"\xff", "need JSON"), (b"[" * 60000, "need JSON"),
    ([], "need an object"), ({"k": 1}, "need an object"), ({"prompt": 3}, "need prompt of another"),
    ({"prompt": "a", "K": True}, "need K of"), ({"prompt": "a", "K": 0}, "need --K >= 1"),
    ({"prompt": "a", "K": 2.5}, "need K of"), ({"prompt": "a", "race": 1}, "need race of"),
    ({"prompt": ""}, "need a prompt of 1"), ({"prompt": "tale " * 5000}, "need a prompt of 1"),
    ({"prompt": "a", "N": 10**6}, "need 1 <= N <="), ({"prompt": "a", "seed": -1}, "0 <= seed"),
    ({"prompt": "a", "temperature": -1}, "need 0 <= temperature"),
    ({"prompt": "a", "temperature": float("nan")}, "need 0 <= temperature"),
    ({"prompt": "\ud800"}, ""), ({"prompt": "a", "decoder": "../x"}, "need a decoder of"),
    ({"prompt": "a", "decoder": "tree", "K": 2}, "need no --K with the decoder tree")],
    ids=lambda value: str(value)[:40])
def test_a_malformed_request_is_refused_and_told_why(server, body, why):
    status, _, text = ask(server, body)
    assert status == 400 and why in text and len(text.splitlines()) == 1 and len(text) < 1000


@pytest.mark.parametrize("headers, wanted", [
    ({"Host": "evil.example"}, 421), ({"Host": "127.0.0.1"}, 421), ({"Host": "127.0.0.1:1"}, 421),
    ({"Origin": "http://evil.example"}, 403), ({"Origin": "null"}, 403),
    ({"Origin": "https://127.0.0.1:PORT"}, 403), ({"Content-Type": "text/plain"}, 415),
    ({"Content-Length": "x"}, 411), ({"Content-Length": "-1"}, 411),
    ({"Host": "localhost:PORT", "Origin": "http://localhost:PORT"}, 200),
    ({"Origin": "http://127.0.0.1:PORT"}, 200)], ids=str)
def test_another_name_or_origin_is_refused(server, headers, wanted):
    headers = {name: value.replace("PORT", str(server.server_port))
               for name, value in headers.items()}
    assert ask(server, ASKED | {"N": 1}, headers=headers)[0] == wanted
    if headers.keys() <= {"Host", "Origin"}:
        assert ask(server, None, "/", headers, "GET")[0] == wanted


def test_too_long_a_request_is_refused(server):
    assert ask(server, b" " * (live.MAX_BODY + 1))[0] == 413
    assert ask(server, b"", headers={"Content-Length": "9" * 5000})[0] == 400


def test_other_paths_and_methods_are_refused(server):
    for path in ("/x", "/decode", "/../main.py"):
        assert ask(server, None, path, method="GET")[0] == 404
    assert ask(server, ASKED, "/")[0] == 404
    assert {ask(server, None, "/", method=method)[0] for method in ("PUT", "OPTIONS")} == {501}


def test_the_page_may_ask_its_own_server_only(server):
    status, headers, text = ask(server, None, "/", method="GET")
    assert status == 200 and headers["X-Frame-Options"] == "DENY"
    assert "default-src 'none'; connect-src 'self';" in text and text.count("<script") == 3
    run = json.loads(re.search(r'id="run">(.*?)</script>', text, re.DOTALL)[1])
    assert list(run["live"]["decoders"]) == list(DECODERS)


def test_without_a_draft_only_decoders_that_need_none_are_offered(server):
    alone = server.task._replace(new_draft=None)
    assert {"lookup"} <= set(live.offered(alone)) < set(live.offered(server.task))
    with pytest.raises(ValueError, match="need a decoder of"):
        live.task_of(alone, ASKED)


def test_it_listens_on_this_machine_only(server):
    assert server.socket.getsockname()[0] == "127.0.0.1"


# ---- a process of its own, and the page

def test_ctrl_c_ends_it_while_a_text_is_written():
    process = subprocess.Popen([sys.executable, "-m", "lib.demo.live", "--port", "0"], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               preexec_fn=DEFAULT_CTRL_C)
    try:
        port = int(re.match(r"http://127\.0\.0\.1:(\d+)/", process.stdout.readline())[1])
        connection = HTTPConnection("127.0.0.1", port, timeout=120)
        connection.request("POST", "/decode", json.dumps(ASKED | {"N": 200}),
                           {"Content-Type": "application/json"})
        connection.getresponse().readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
        assert (process.returncode, said) == (0, "lib.demo.live: stopped\n")
    finally:
        process.kill()


def test_a_taken_port_is_said_in_one_line(server, capsys):
    assert live.main(["--port", str(server.server_port)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_page_writes_the_text_that_was_asked_for(server):
    with chromium() as tab:
        tab.open(f"http://127.0.0.1:{server.server_port}/")
        tab("""asking.elements.prompt.value = "Once upon a time"; asking.elements.N.value = 12;
               asking.elements.seed.value = 3; asking.elements.race.checked = true""")
        tab("start.click()")
        tab.wait("['Done', ''].includes(state.textContent) || start.disabled === false")
        assert tab("state.textContent") == "Done"
        assert tab("run.rounds.flatMap(round => round.ids.map(each => each.id))") == directly(
            server, ASKED | {"temperature": 1, "K": 4})
        assert tab("document.querySelectorAll('details.round').length") == tab("run.rounds.length")
        assert tab("at('race').hidden") is False and "speed-up" in tab("at('result').textContent")
        tab("decoders.value = 'tree'; decoders.dispatchEvent(new Event('change'))")
        assert tab("K.disabled") and "K" not in tab("asked()")
        tab("promptBox.value = ''; asking.requestSubmit()")
        tab("promptBox.required = false; asking.requestSubmit()")
        tab.wait("start.disabled === false")
        assert tab("state.textContent").startswith("need a prompt of 1 to")
        assert [said for said in tab.said if "entry" not in said] == []
