"""Sessions: state, isolation, eviction, restart of the service."""

import concurrent.futures
import time

from harness import Service, entity


def test_variables_stay_between_calls(client, eid):
    assert client.exec("x = 41", entity_id=eid)["code"] == 0
    a = client.exec("print(x + 1)", entity_id=eid)
    assert a["stdout"] == "42\n"
    assert a["runtime_status"] == "reused"


def test_sessions_are_apart(shared, client):
    one, two = entity(), entity()
    a = client.exec("x = 41; open('/mnt/data/mine.txt', 'w').write('secret')", entity_id=one)
    b = client.exec("import os; print(os.listdir('/mnt/data')); print(x)", entity_id=two)
    assert "NameError" in b["stderr"] and b["code"] != 0
    assert b["stdout"] == "[]\n"
    containers = {shared.container_of(a["session_id"]), shared.container_of(b["session_id"])}
    assert len(containers) == 2 and None not in containers


def test_session_id_continues_a_session(client):
    a = client.exec("y = 7")
    b = client.exec("print(y)", session_id=a["session_id"])
    assert b["session_id"] == a["session_id"] and b["stdout"] == "7\n"


def test_an_unknown_session_id_counts_as_not_sent(client):
    a = client.exec("print(1)", session_id="A" * 21)
    assert a["stdout"] == "1\n" and a["session_id"] != "A" * 21


def test_last_expression_is_printed_as_ipython_does(client, eid):
    assert client.exec("1 + 1", entity_id=eid)["stdout"] == "2\n"
    assert client.exec("'a'", entity_id=eid)["stdout"] == "'a'\n"
    assert client.exec("x = 3", entity_id=eid)["stdout"] == ""


def test_python_calls_of_one_session_queue_in_order(client, eid):
    client.exec("order = []", entity_id=eid)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        done = list(pool.map(lambda i: client.exec(f"import time; order.append({i}); time.sleep(0.05); print({i})",
                                                   entity_id=eid), range(6)))
    assert [d["stdout"] for d in done] == [f"{i}\n" for i in range(6)]
    assert client.exec("print(len(order))", entity_id=eid)["stdout"] == "6\n"


def test_first_calls_of_one_entity_meet_in_one_session(client, eid):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda i: client.exec(f"echo {i}", lang="bash", entity_id=eid), range(4)))
    assert len({d["session_id"] for d in done}) == 1
    assert [d["stdout"] for d in done] == [f"{i}\n" for i in range(4)]


def test_the_oldest_idle_session_is_evicted_and_keeps_its_files():
    with Service(MAX_SESSIONS=2) as s:
        c = s.client()
        names = [entity() for _ in range(3)]
        first = c.exec("kept = 5; open('kept.txt', 'w').write('still here')", entity_id=names[0])
        second = c.exec("print(2)", entity_id=names[1])
        third = c.exec("print(3)", entity_id=names[2])
        assert s.container_of(first["session_id"]) is None
        assert s.container_of(second["session_id"]) and s.container_of(third["session_id"])
        assert c.call("GET", "/health").json["active_sessions"] == 2
        back = c.exec("print(open('kept.txt').read())", entity_id=names[0])
        assert back["session_id"] == first["session_id"] and back["stdout"] == "still here\n"
        assert back["session_restarted"] and "variables" in back["stderr"]
        again = c.exec("print('kept' in globals())", entity_id=names[0])
        assert again["stdout"] == "False\n" and not again["session_restarted"] and again["stderr"] == ""
        assert s.container_of(second["session_id"]) is None


def test_when_all_are_busy_a_call_waits_and_is_then_refused():
    with Service(MAX_SESSIONS=1, QUEUE_WAIT_SECONDS=1) as s:
        c = s.client()
        with c.stream("import time; print('on', flush=True); time.sleep(6)", entity_id=entity()) as events:
            while True:
                _, e = next(events)
                if e and e["type"] == "stream":
                    break
            refused = c.post("/exec", {"code": "print(1)", "lang": "py", "entity_id": entity()})
            assert refused.status == 429 and refused.json["error"] == "rate_limited"
            assert int(refused.headers["Retry-After"]) == refused.json["retry_after_seconds"] > 0
            for _ in events:
                pass
        assert c.exec("print(1)", entity_id=entity())["stdout"] == "1\n"


def test_kill_9_of_the_service_keeps_variables_and_containers():
    with Service() as s:
        c, name = s.client(), entity()
        a = c.exec("z = 99", entity_id=name)
        before = s.container_of(a["session_id"])
        with c.stream("import time; print('asleep', flush=True); time.sleep(2)", entity_id=name) as events:
            while True:
                _, e = next(events)
                if e and e["type"] == "stream":
                    break
            s.kill9()
        s.start()
        c = s.client()
        b = c.exec("print(z)", entity_id=name)
        assert b["stdout"] == "99\n" and b["session_id"] == a["session_id"] and not b["session_restarted"]
        assert s.containers() == [before]


def test_a_stop_and_a_start_keep_variables():
    with Service() as s:
        c, name = s.client(), entity()
        c.exec("z = 98", entity_id=name)
        assert s.stop() == 0
        s.start()
        assert s.client().exec("print(z)", entity_id=name)["stdout"] == "98\n"


def test_an_idle_session_loses_its_sandbox():
    with Service(ANONYMOUS_IDLE_SECONDS=1) as s:
        a = s.client().exec("print(1)")
        deadline = time.monotonic() + 20
        while s.container_of(a["session_id"]):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert s.client().exec("print(2)", session_id=a["session_id"])["stdout"] == "2\n"


def test_two_services_do_not_share_a_data_directory():
    import subprocess
    from harness import BINARY
    with Service() as s:
        r = subprocess.run([BINARY, "serve"], env={"DATA_DIR": s.data_dir, "PORT": "0"}, capture_output=True,
                           text=True, timeout=60)
        assert r.returncode == 1 and "another service runs on DATA_DIR" in r.stderr
