"""What happens to the Python kernel: limits, deaths, exit, floods, strange bytes."""

import time

import pytest

from harness import Service, entity


@pytest.mark.parametrize("code", ["print('begun', flush=True)\nwhile True: pass",
                                  "print('begun', flush=True)\nsum(range(10**11))"])
def test_a_timeout_is_answered_and_the_session_works_on(client, eid, code):
    client.exec("kept = 1", entity_id=eid)
    begun = time.monotonic()
    a = client.exec(code, entity_id=eid, timeout=3000)
    assert time.monotonic() - begun < 8
    assert a["status"] == "TO" and a["code"] == 124 and a["stdout"] == "begun\n"
    assert "time limit" in a["stderr"]
    begun = time.monotonic()
    b = client.exec("print(6 * 7, 'kept' in globals())", entity_id=eid)
    assert time.monotonic() - begun < 5
    kept = not b["session_restarted"]
    assert b["stdout"] == f"42 {kept}\n"
    assert kept or "variables" in a["stderr"] + b["stderr"]


@pytest.mark.parametrize("code,words", [
    ("import os; os.kill(os.getpid(), 9)", ["kill"]),
    ("import ctypes; ctypes.string_at(0)", ["SIGSEGV", "egmentation"]),
    ("x = []\nwhile True: x.append(bytearray(16 << 20))", ["out of memory"]),
])
def test_a_dead_kernel_is_explained_and_replaced(client, eid, code, words):
    client.exec("before = 1", entity_id=eid)
    begun = time.monotonic()
    a = client.exec(code, entity_id=eid)
    assert time.monotonic() - begun < 10
    assert a["code"] != 0 and any(w in a["stderr"] for w in words), a["stderr"]
    b = client.exec("print('before' in globals())", entity_id=eid)
    assert b["stdout"] == "False\n" and b["code"] == 0
    assert b["session_restarted"] and "variables" in b["stderr"]
    c = client.exec("print(2)", entity_id=eid)
    assert c["stderr"] == "" and not c["session_restarted"]


def test_out_of_memory_has_its_status():
    with Service(SANDBOX_MEMORY_MB=256) as s:
        a = s.client().exec("x = []\nwhile True: x.append(bytearray(8 << 20))", entity_id=entity())
        assert a["status"] == "OOM" and a["code"] == 137 and "256 MB" in a["stderr"]


@pytest.mark.parametrize("code,expected", [("exit()", 0), ("quit()", 0), ("exit(3)", 3), ("import sys; sys.exit(4)", 4),
                                           ("raise SystemExit", 0)])
def test_exit_ends_the_cell_and_keeps_the_variables(client, eid, code, expected):
    client.exec("kept = 'yes'", entity_id=eid)
    for _ in range(2):
        a = client.exec(f"print('one')\n{code}\nprint('two')", entity_id=eid)
        assert a["stdout"] == "one\n" and a["code"] == expected and "Traceback" not in a["stderr"]
        assert client.exec("print(kept)", entity_id=eid)["stdout"] == "yes\n"


def test_an_exception_is_an_answer(client, eid):
    a = client.exec("print('first')\n1/0", entity_id=eid)
    assert a["code"] == 1 and a["status"] == "error" and a["run"]["status"] == "error"
    assert a["stdout"] == "first\n" and "ZeroDivisionError" in a["stderr"]
    assert "\x1b" not in a["stderr"]
    assert a["run"]["output"].startswith("first\n")


def test_endless_print_is_bounded_and_memory_stays_flat(shared, client, eid):
    client.exec("print(1)", entity_id=eid)
    before = shared.rss_kb()
    a = client.exec("while True: print('x' * 1000)", entity_id=eid, timeout=20000)
    assert a["status"] == "OL" and len(a["stdout"]) < 1100 * 1024
    b = client.exec("yes", lang="bash",
                    entity_id=eid, timeout=20000)
    assert b["status"] == "OL" and len(b["stdout"]) < 1100 * 1024
    assert shared.rss_kb() - before < 30 * 1024
    assert client.exec("print('on')", entity_id=eid)["stdout"] == "on\n"


def test_output_of_a_child_process_is_whole(client, eid):
    a = client.exec("import subprocess\n"
                    "_ = subprocess.run(['python3', '-c', 'import os; os.write(1, b\"y\" * 300000)'])\n", entity_id=eid)
    assert a["stdout"].count("y") == 300000
    assert client.exec("print('later')", entity_id=eid)["stdout"] == "later\n"


def test_strange_bytes_do_not_break_the_answer(client, eid):
    a = client.exec("import os; os.write(1, b'a\\xff\\xfeb\\n')", entity_id=eid)
    assert "a\ufffd\ufffdb" in a["stdout"]
    b = client.exec("print('x\\ud800y'); print('p\\udcffq')", entity_id=eid)
    assert b["code"] == 0 and b["stdout"].count("\n") == 2 and "x" in b["stdout"] and "q" in b["stdout"]
    c = client.exec("printf 'k\\377\\0m'", lang="bash", entity_id=eid)
    assert c["stdout"] == "k\ufffd\0m"
    assert client.exec("print('later')", entity_id=eid)["stdout"] == "later\n"
    assert client.exec("import os; os.system('echo sub')", entity_id=eid)["stdout"].startswith("sub\n")


def test_lone_surrogates_and_nul_in_the_code(client, eid):
    a = client.post("/exec", r'{"lang":"py","entity_id":"%s","code":"print(len(\"\ud800\"))"}' % eid)
    assert a.status == 200 and a.json["stdout"] == "1\n"
    b = client.post("/exec", '{"lang":"bash","entity_id":"%s","code":"echo a\\u0000b"}' % eid)
    assert b.status == 200


def test_forged_kernel_messages_cannot_end_or_break_a_call(client, eid):
    a = client.exec("""
import json, zmq, glob
c = json.load(open('/run/kernel/connection.json'))
k = get_ipython().kernel
parent = k.get_parent()
for junk in [b'', b'[' * 5000, b'\\xff\\xfe', b'{"x":1}', b'null']:
    k.iopub_socket.send_multipart([b'x', b'<IDS|MSG>', b'', junk, junk, junk, junk])
k.session.send(k.iopub_socket, 'status', {'execution_state': 'idle'}, parent=parent)
k.session.send(k.iopub_socket, 'stream', {'name': 5, 'text': ['no']}, parent=parent)
""", entity_id=eid)
    assert a["code"] == 0, a["stderr"]  # whoever forges the end of a cell may lose that cell's output, and no more
    assert client.exec("print('later')", entity_id=eid)["stdout"] == "later\n"


def test_arguments_stdin_and_argparse(client, eid):
    code = "import sys; print(sys.argv[1:])"
    assert client.exec(code, entity_id=eid, args=["--rounds", "5", "two words"])["stdout"] == \
        "['--rounds', '5', 'two words']\n"
    assert client.exec(code, entity_id=eid, args="--rounds 6")["stdout"] == "['--rounds', '6']\n"
    assert client.exec(code, entity_id=eid)["stdout"] == "[]\n"
    assert client.exec("print(input())", entity_id=eid, stdin="typed\n")["stdout"] == "typed\n"
    assert client.exec("input()", entity_id=eid)["code"] != 0
    assert client.exec("import argparse; p = argparse.ArgumentParser(); p.add_argument('--n', type=int, default=3);"
                       "print(p.parse_args().n)", entity_id=eid)["stdout"] == "3\n"


def test_asyncio_in_all_its_forms(client, eid):
    run = "import asyncio\nasync def f():\n    await asyncio.sleep(0.01)\n    return 5\nprint(asyncio.run(f()))"
    assert client.exec(run, entity_id=eid)["stdout"] == "5\n"
    assert client.exec("import asyncio\nawait asyncio.sleep(0)\nprint('top')", entity_id=eid)["stdout"] == "top\n"
    assert client.exec(run, entity_id=eid)["stdout"] == "5\n"


def test_background_processes_of_bash_end_with_the_call(client, eid):
    a = client.exec("(setsid sleep 300 >/dev/null 2>&1 &) ; nohup sleep 301 >/dev/null 2>&1 & echo started",
                    lang="bash", entity_id=eid)
    assert a["stdout"] == "started\n"
    b = client.exec("ps -eo args | grep -c '^sleep 30[01]' || true", lang="bash", entity_id=eid)
    assert b["stdout"] == "0\n"


def test_a_client_that_hangs_up_ends_its_run(client, eid):
    c = client.connect()
    c.request("POST", "/exec", '{"lang":"bash","code":"sleep 299","entity_id":"%s"}' % eid,
              {"Content-Type": "application/json"})
    deadline = time.monotonic() + 10
    count = "ps -eo args | grep -c '^sleep 299' || true"
    while client.exec(count, lang="bash", entity_id=eid)["stdout"] != "1\n":
        assert time.monotonic() < deadline, "it never ran"
    c.close()
    begun = time.monotonic()
    while client.exec(count, lang="bash", entity_id=eid)["stdout"] != "0\n":
        assert time.monotonic() - begun < 2, "the program outlived its client"
