"""The service as a whole: bad input, authentication, an engine that is away, hardening, leaks."""

import json
import re
import subprocess

import pytest

from harness import BINARY, Service, docker, entity, raw_exchange


@pytest.mark.parametrize("body,word", [
    ({"lang": "py"}, "code"),
    ({"code": "1"}, "lang"),
    ({"code": 5, "lang": "py"}, "code"),
    ({"code": "1", "lang": "cobol"}, "lang"),
    ({"code": "1", "lang": "py", "entity_id": "a b"}, "entity_id"),
    ({"code": "1", "lang": "py", "timeout": "soon"}, "timeout"),
    ({"code": "1", "lang": "py", "files": "x"}, "files"),
    ({"code": "1", "lang": "py", "args": [1]}, "args"),
    ([], "object"),
    ("{", "JSON"),
    ("[" * 12288, "JSON"),
    ("{\"code\":" * 3000, "JSON"),
])
def test_bad_input_is_refused_by_name(client, body, word):
    a = client.post("/exec", body if isinstance(body, str) else json.dumps(body))
    assert a.status == 400 and a.json["error"] == "invalid_request"
    assert word in a.json["message"] and a.json["detail"] == a.json["message"]


def test_unknown_fields_are_ignored(client, eid):
    assert client.exec("print(1)", entity_id=eid, apiKey="k", user_id="u", intent=None)["stdout"] == "1\n"


def test_a_sandbox_answer_of_brackets_is_survived(client, eid):
    a = client.exec("get_ipython().kernel.iopub_socket.send_multipart("
                    "[b'x', b'<IDS|MSG>', b''] + [b'[' * 12288] * 4)\nprint('ok')", entity_id=eid)
    assert a["stdout"] == "ok\n"
    assert client.call("GET", "/health").status == 200


def test_routes_methods_and_openapi(client):
    spec = client.call("GET", "/openapi.json").json
    assert spec["openapi"].startswith("3.1")
    index = client.call("GET", "/").json
    assert {(e["method"].lower(), e["path"]) for e in index["endpoints"]} == \
        {(m, p) for p, ops in spec["paths"].items() for m in ops}
    assert client.call("GET", "/nowhere").status == 404
    wrong = client.call("PUT", "/exec", "{}")
    assert wrong.status == 405 and "POST" in wrong.headers["Allow"]
    assert client.call("GET", "/libraries").json["libraries"]["python"]
    health = client.call("GET", "/v1/health").json
    assert health["status"] == "ok" and health["runtime_capabilities"]["python"]["version"]


def test_an_open_server_refuses_other_pages_and_names(shared, client):
    run = {"code": "print(1)", "lang": "py"}
    for headers in [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"},
                    {"Host": "127.0.0.1.evil.example"}]:
        assert client.post("/exec", run, headers).status == 403, headers
        assert client.call("GET", "/health", headers=headers).status == 403, headers
    assert client.call("POST", "/exec", json.dumps(run), {"Content-Type": "text/plain"}).status == 415
    assert client.post("/exec", run, {"Host": f"localhost:{shared.port}"}).status == 200


def test_smuggled_requests_are_refused(shared):
    for head in [b"Content-Length: 5\r\nTransfer-Encoding: chunked", b"Content-Length: 1\r\nContent-Length: 2",
                 b"Transfer-Encoding: xchunked", b"Host: a"]:
        got = raw_exchange(shared.port, b"POST /exec HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n\r\n0\r\n\r\n")
        assert got.startswith(b"HTTP/1.1 400"), (head, got[:200])


def test_a_key_is_needed_when_one_is_set():
    with Service(CODE_INTERPRETER_API_KEY="s3cret-key") as s:
        run = {"code": "print(1)", "lang": "py"}
        for c in [s.client(), s.client(X_API_Key="wrong"), s.client(Authorization="Bearer wrong")]:
            a = c.post("/exec", run)
            assert a.status == 401 and a.json["error"] == "unauthorized" and a.headers["WWW-Authenticate"]
        for c in [s.client(X_API_Key="s3cret-key"), s.client(Authorization="Bearer s3cret-key"),
                  s.client(X_API_Key="wrong", Authorization="Bearer s3cret-key")]:
            assert c.post("/exec", run).json["stdout"] == "1\n"
        assert set(s.client().call("GET", "/health").json) == {"status", "version"}
        assert "max_sessions" in s.client(X_API_Key="s3cret-key").call("GET", "/health").json
        # the key is nowhere in a sandbox
        c = s.client(X_API_Key="s3cret-key")
        a = c.exec("cat /proc/*/environ /proc/*/cmdline /proc/mounts 2>/dev/null | tr '\\0' '\\n'; env", lang="bash",
                   entity_id=entity())
        assert "s3cret-key" not in a["stdout"] + a["stderr"]
        assert "s3cret-key" not in docker("inspect", *s.containers())
        assert "s3cret-key" not in s.log_text()


def test_an_open_server_is_not_bound_beyond_loopback_by_accident():
    r = subprocess.run([BINARY, "serve"], env={"HOST": "0.0.0.0", "PORT": "0", "DATA_DIR": "/var/tmp/unused"},
                       capture_output=True, text=True, timeout=30)
    assert r.returncode == 1 and "AUTH=none" in r.stderr


@pytest.mark.parametrize("settings,words", [
    ({"DOCKER_HOST": "unix:///nowhere/docker.sock"}, ["docker.sock", "no such file"]),
    ({"SANDBOX_IMAGE": "carrel-no-such-image:1"}, ["carrel-no-such-image:1", "make images"]),
])
def test_an_engine_that_is_away_is_explained(settings, words):
    with Service(**settings) as s:
        c = s.client()
        for a in [c.post("/exec", {"code": "1", "lang": "py"}), c.call("GET", "/health")]:
            assert a.status == 503
            text = a.body.decode().lower()
            assert all(w.lower() in text for w in words), text
        up = c.upload([("a.txt", b"kept")])
        assert c.download(up["session_id"], up["files"][0]["id"]).body == b"kept"


def test_the_sandbox_is_hardened(shared, client, eid):
    a = client.exec("grep -E '^(Cap|NoNewPrivs|Seccomp:|Uid)' /proc/self/status; tail -n +3 /proc/net/dev | cut -d: -f1;"
                    "touch /probe /etc/probe 2>&1 || true; id -un; cat /proc/self/oom_score_adj", lang="bash",
                    entity_id=eid)
    text = a["stdout"]
    assert set(re.findall(r"Cap\w+:\s+(\w+)", text)) == {"0" * 16}
    assert re.search(r"NoNewPrivs:\s+1", text) and re.search(r"Seccomp:\s+2", text)
    uids = set(re.search(r"Uid:\s+(.*)", text).group(1).split())
    assert len(uids) == 1 and "0" not in uids
    assert [line.strip() for line in text.splitlines() if line.strip() in ("lo", "eth0")] == ["lo"]
    assert text.count("Read-only file system") == 2 and "sandbox\n" in text
    seen = json.loads(docker("inspect", shared.container_of(a["session_id"])))[0]["HostConfig"]
    assert seen["NetworkMode"] == "none" and seen["CapDrop"] == ["ALL"] and seen["ReadonlyRootfs"]
    assert not seen["Privileged"] and seen["Memory"] == seen["MemorySwap"] == 1024 << 20
    assert not any("docker.sock" in str(m) for m in seen["Mounts"])


def test_two_sandboxes_have_different_uids(client):
    uids = {client.exec("id -u", lang="bash", entity_id=entity())["stdout"] for _ in range(2)}
    assert len(uids) == 2


def test_a_sandbox_that_is_killed_or_wedged_is_replaced(shared, client, eid):
    a = client.exec("v = 1; open('f.txt', 'w').write('kept')", entity_id=eid)
    docker("kill", shared.container_of(a["session_id"]))
    b = client.exec("print(open('f.txt').read())", entity_id=eid)
    assert b["stdout"] == "kept\n" and b["session_restarted"]
    docker("pause", shared.container_of(a["session_id"]))
    c = client.exec("print(open('f.txt').read())", entity_id=eid)
    assert c["stdout"] == "kept\n" and c["session_restarted"]


def test_the_runner_socket_cannot_be_pointed_elsewhere(shared, client, eid):
    a = client.exec("rm /run/carrel/runner.sock; ln -s /var/run/docker.sock /run/carrel/runner.sock; echo planted",
                    lang="bash", entity_id=eid)
    assert a["stdout"] == "planted\n"
    b = client.exec("echo well", lang="bash", entity_id=eid)
    assert b["stdout"] == "well\n"


def test_valgrind_finds_no_leak_after_200_executions():
    log = "/var/tmp/carrel-valgrind.log"
    with Service(wrapper=["valgrind", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect",
                          "--error-exitcode=9", f"--log-file={log}"]) as s:
        c, name = s.client(), entity()
        for i in range(170):
            assert c.exec(f"echo {i}", lang="bash", entity_id=name)["stdout"] == f"{i}\n"
        for i in range(20):
            assert c.exec(f"open('f.txt', 'w').write('{i}'); print({i})", entity_id=name)["code"] == 0
        for i in range(10):
            with c.stream(f"echo {i}", "bash", entity_id=name) as events:
                assert list(events)[-1][1]["type"] == "done"
        up = c.upload([("a.txt", b"x")], entity_id=name)
        c.download(up["session_id"], up["files"][0]["id"])
        assert s.stop() == 0, open(log).read()[-6000:]
