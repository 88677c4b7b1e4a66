"""The routes of sessions: list, look, end, interrupt, restart, and the workspace as an archive."""

import concurrent.futures
import io
import tarfile
import time
import zipfile

NAMES = {"plain.txt": b"p", "sub/d\u00e9j\u00e0 vu.txt": b"accents", "\U0001f600 emoji.csv": b"a,b\n", ".dot": b"d",
         "empty": b""}


def begin(pool, shared, client, eid, code, session_id):
    """Starts a call and waits until the session says that it executes."""
    run = pool.submit(client.exec, code, entity_id=eid)
    until = time.monotonic() + 20
    while client.call("GET", f"/sessions/{session_id}").json["executing"] == 0:
        assert time.monotonic() < until
        time.sleep(0.05)
    time.sleep(1)  # the session counts as executing a moment before the code runs
    return run


def test_a_session_is_listed_and_told(client, eid):
    a = client.exec("open('x.txt', 'w').write('x')", entity_id=eid)
    sid = a["session_id"]
    s = client.call("GET", f"/sessions/{sid}").json
    assert s["state"] == "live" and s["entity_id"] == eid and s["files"] == 1 and s["executing"] == 0
    assert s["sandbox_age_seconds"] >= 0 and s["created"].endswith("Z") and s["last_used"].endswith("Z")
    listed = client.call("GET", "/sessions").json["sessions"]
    assert listed[0]["id"] == sid
    uses = [i["last_used_ms"] for i in listed]
    assert uses == sorted(uses, reverse=True)
    assert client.call("GET", "/sessions?before=1").json["sessions"] == []
    assert client.call("GET", "/sessions?before=soon").status == 400
    assert client.call("GET", "/sessions/" + "A" * 21).status == 404


def test_the_workspace_as_zip_and_tar(client, eid):
    code = "import os\nos.makedirs('sub')\n"
    for name, data in NAMES.items():
        code += f"open({name!r}, 'wb').write({data!r})\n"
    code += "os.symlink('/etc/passwd', 'link'); os.symlink('/etc', 'dirlink'); os.mkfifo('fifo')\n"
    a = client.exec(code, entity_id=eid)
    assert a["code"] == 0, a["stderr"]
    path = f"/sessions/{a['session_id']}/workspace"
    z = client.call("GET", path)
    assert z.status == 200 and z.headers["Content-Type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(z.body)) as f:
        assert f.testzip() is None
        assert {n: f.read(n) for n in f.namelist()} == NAMES
    t = client.call("GET", path + "?format=tar.gz")
    assert t.status == 200 and t.headers["Content-Type"] == "application/gzip"
    with tarfile.open(fileobj=io.BytesIO(t.body), mode="r:gz") as f:
        assert all(m.isreg() for m in f)
        assert {m.name: f.extractfile(m).read() for m in f} == NAMES
    assert client.call("GET", path + "?format=rar").status == 400


def test_an_upload_that_was_never_used_is_in_the_workspace(client, eid):
    up = client.upload([("u.txt", b"up")], entity_id=eid)
    z = client.call("GET", f"/sessions/{up['session_id']}/workspace?format=zip")
    with zipfile.ZipFile(io.BytesIO(z.body)) as f:
        assert {n: f.read(n) for n in f.namelist()} == {"u.txt": b"up"}


def test_memory_stays_flat_while_a_large_workspace_is_sent(shared, client, eid):
    a = client.exec("import os; open('big', 'wb').write(os.urandom(200 << 20))", entity_id=eid)
    before = shared.rss_kb()
    z = client.call("GET", f"/sessions/{a['session_id']}/workspace")
    assert len(z.body) > 200 << 20
    assert shared.rss_kb() - before < 50 * 1024
    client.call("DELETE", f"/sessions/{a['session_id']}?files=true")


def test_an_end_keeps_files_and_says_that_variables_were_lost(shared, client, eid):
    a = client.exec("x = 1; open('k.txt', 'w').write('kept')", entity_id=eid)
    d = client.call("DELETE", f"/sessions/{a['session_id']}")
    assert d.status == 200 and d.json["files_deleted"] is False
    assert shared.container_of(a["session_id"]) is None
    b = client.exec("print(open('k.txt').read()); print('x' in globals())", entity_id=eid)
    assert b["session_id"] == a["session_id"] and b["stdout"] == "kept\nFalse\n"
    assert b["session_restarted"] and "ended on request" in b["stderr"]


def test_an_end_during_a_run_with_its_files(shared, client, eid):
    a = client.exec("open('k.txt', 'w').write('kept')", entity_id=eid)
    sid = a["session_id"]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        run = begin(pool, shared, client, eid, "import time; time.sleep(100)", sid)
        d = client.call("DELETE", f"/sessions/{sid}?files=true")
        assert d.status == 200 and d.json["files_deleted"] is True
        b = client.exec("import os; print(os.listdir())", entity_id=eid)
        assert b["session_id"] != sid and b["stdout"] == "[]\n"
        assert run.result(30)["code"] != 0
    assert shared.container_of(sid) is None
    for path in (f"/sessions/{sid}", f"/files/{sid}", f"/download/{sid}/{a['files'][0]['id']}"):
        assert client.call("GET", path).status == 404
    assert client.call("DELETE", f"/sessions/{sid}").status == 404


def test_an_interrupt_keeps_variables(shared, client, eid):
    sid = client.exec("x = 41", entity_id=eid)["session_id"]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        run = begin(pool, shared, client, eid, "import time; time.sleep(100)", sid)
        i = client.post(f"/sessions/{sid}/interrupt", {})
        assert i.status == 200 and i.json["cancelled"] == 1
        assert run.result(30)["code"] != 0
    b = client.exec("print(x + 1)", entity_id=eid)
    assert b["stdout"] == "42\n" and not b["session_restarted"]


def test_a_restart_loses_variables_and_says_so(shared, client, eid):
    sid = client.exec("x = 1", entity_id=eid)["session_id"]
    old = shared.container_of(sid)
    assert client.post(f"/sessions/{sid}/restart", {}).status == 200
    b = client.exec("print('x' in globals())", entity_id=eid)
    assert b["stdout"] == "False\n" and b["session_restarted"] and "restarted on request" in b["stderr"]
    assert shared.container_of(sid) not in (None, old)
