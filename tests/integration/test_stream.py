"""POST /exec/stream."""

import pytest

from harness import Service, entity

PYTHON = "import time\nfor i in range(4):\n    print(i, flush=True)\n    time.sleep(1)"
BASH = "for i in 0 1 2 3; do echo $i; sleep 1; done"


@pytest.mark.parametrize("lang,code", [("py", PYTHON), ("bash", BASH)])
def test_lines_arrive_as_they_are_printed(client, eid, lang, code):
    client.exec("true" if lang == "bash" else "pass", lang=lang, entity_id=eid)
    with client.stream(code, lang, entity_id=eid) as events:
        seen = list(events)
    assert seen[0][1]["type"] == "session" and seen[-1][1]["type"] == "done"
    times = [t for t, e in seen if e and e["type"] == "stream" and e["name"] == "stdout"]
    assert "".join(e["text"] for _, e in seen if e and e["type"] == "stream") == "0\n1\n2\n3\n"
    assert len(times) == 4
    gaps = [b - a for a, b in zip(times, times[1:])]
    assert all(0.6 < g < 1.4 for g in gaps), gaps
    done = seen[-1][1]
    assert done["stdout"] == "0\n1\n2\n3\n" and done["code"] == 0


def test_silence_does_not_end_a_stream(client, eid):
    with client.stream("import time; time.sleep(20); print('woke')", entity_id=eid) as events:
        seen = list(events)
    assert any(e is None for _, e in seen), "no keep-alive comment came"
    assert seen[-1][1]["stdout"] == "woke\n"


def test_a_slow_answer_is_kept_alive_with_spaces():
    with Service(EXEC_KEEPALIVE_SECONDS=1) as s:
        a = s.client().post("/exec", {"lang": "bash", "code": "sleep 3; echo done", "entity_id": entity()})
        assert a.status == 200 and a.body.startswith(b" ") and a.json["stdout"] == "done\n"


def test_results_displays_and_errors_are_events(client, eid):
    with client.stream("from IPython.display import display, HTML\ndisplay(HTML('<b>x</b>'))\n40 + 2",
                       entity_id=eid) as events:
        kinds = {e["type"]: e for _, e in events if e}
    assert kinds["result"]["data"]["text/plain"] == "42"
    assert kinds["display"]["data"]["text/html"] == "<b>x</b>"
    with client.stream("1/0", entity_id=eid) as events:
        kinds = {e["type"]: e for _, e in events if e}
    assert kinds["error"]["ename"] == "ZeroDivisionError" and kinds["done"]["code"] == 1


def test_characters_split_over_writes_stay_whole(client, eid):
    code = ("import os, time\nfor b in '\u00e9\u4e16\U0001f600'.encode():\n"
            "    os.write(1, bytes([b])); time.sleep(0.02)\n")
    with client.stream(code, "py", entity_id=eid) as events:
        text = "".join(e["text"] for _, e in events if e and e["type"] == "stream")
    assert "\ufffd" not in text or text == "", text
