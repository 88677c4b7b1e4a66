"""Files: uploads, results, downloads, deletion, and what a hostile workspace can try."""

import concurrent.futures
import hashlib
import io
import os
import struct
import zlib

import pytest

from harness import entity, multipart


def png_pixels(data):
    """Decodes a PNG (8 bit, not interlaced) far enough to count its distinct pixels."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, idat, width, height, kind = 8, b"", 0, 0, 0
    while at < len(data):
        size, name = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        assert zlib.crc32(name + body) == struct.unpack(">I", data[at + 8 + size:at + 12 + size])[0]
        if name == b"IHDR":
            width, height, depth, kind, _, _, lace = struct.unpack(">IIBBBBB", body)
            assert depth == 8 and lace == 0
        elif name == b"IDAT":
            idat += body
        at += 12 + size
    step = {2: 3, 6: 4, 0: 1, 3: 1}[kind]
    raw = zlib.decompress(idat)
    assert len(raw) == height * (1 + width * step)
    return width, height, len(set(raw))


def test_the_main_job_on_real_data(client, eid):
    found = client.exec("import sklearn.datasets, os\n"
                        "p = os.path.join(os.path.dirname(sklearn.datasets.__file__), 'data', 'iris.csv')\n"
                        "print(open(p).read(), end='')", entity_id=entity())
    csv = found["stdout"].encode()
    assert csv.startswith(b"150,4,setosa")
    up = client.upload([("iris.csv", csv)], entity_id=eid)
    assert up["message"] == "success" and up["session_id"] == up["storage_session_id"]
    a = client.exec(
        "import pandas as pd, matplotlib.pyplot as plt, hashlib\n"
        "d = pd.read_csv('/mnt/data/iris.csv', skiprows=1, header=None, names=['sl', 'sw', 'pl', 'pw', 'kind'])\n"
        "g = d.groupby('kind').mean()\n"
        "g.to_csv('/mnt/data/means.csv')\n"
        "g.plot(kind='bar'); plt.show()\n"
        "print(len(d), hashlib.sha256(open('/mnt/data/means.csv', 'rb').read()).hexdigest())\n", entity_id=eid)
    assert a["code"] == 0, a["stderr"]
    names = {f["name"]: f for f in a["files"]}
    assert set(names) == {"means.csv", "plot_1.png"}
    inside = client.exec("for f in means.csv plot_1.png; do sha256sum < $f; done", lang="bash", entity_id=eid)
    hashes = [line.split()[0] for line in inside["stdout"].splitlines()]
    for name, want in zip(["means.csv", "plot_1.png"], hashes):
        got = client.download(a["session_id"], names[name]["id"])
        assert got.status == 200 and hashlib.sha256(got.body).hexdigest() == want == names[name]["sha256"]
    width, height, shades = png_pixels(client.download(a["session_id"], names["plot_1.png"]["id"]).body)
    assert width > 300 and height > 200 and shades > 20, "nothing is drawn"


def test_an_upload_is_there_without_a_reference_and_starts_nothing(shared, client, eid):
    up = client.upload([("a b/\u00fc\u00f1\u00ee.txt", b"hello"), ("empty.bin", b"")], entity_id=eid)
    assert shared.container_of(up["session_id"]) is None
    assert [f["status"] for f in up["files"]] == ["success", "success"]
    a = client.exec("find . -type f | sort; cat 'a b'/*", lang="bash", entity_id=eid)
    assert a["stdout"] == "./a b/\u00fc\u00f1\u00ee.txt\n./empty.bin\nhello"
    assert a["files"] == [], "unchanged inputs are not results"


def test_a_reference_brings_a_file_into_another_session(client, eid):
    up = client.upload([("in.txt", b"v1")])
    fid, sid = up["files"][0]["id"], up["session_id"]
    a = client.exec("cat renamed/here.txt; echo -n v2 > renamed/here.txt", lang="bash", entity_id=eid,
                    files=[{"id": fid, "session_id": sid, "name": "renamed/here.txt"}])
    assert a["stdout"] == "v1"
    assert [f["name"] for f in a["files"]] == ["renamed/here.txt"]
    new = a["files"][0]
    assert new["modified_from"] == {"id": fid, "storage_session_id": sid} and new["id"] != fid
    assert client.download(sid, fid).body == b"v1"
    assert client.download(a["session_id"], new["id"]).body == b"v2"
    b = client.exec("cat renamed/here.txt", lang="bash", entity_id=eid,
                    files=[{"id": fid, "session_id": sid, "name": "renamed/here.txt"}])
    assert b["stdout"] == "v2", "a stale reference must not undo newer work"


def test_a_dead_reference_never_fails_a_call(client, eid):
    a = client.exec("print(1)", entity_id=eid, files=[{"id": "A" * 21, "name": "gone.txt"}])
    assert a["stdout"] == "1\n" and a["skipped_files"][0]["name"] == "gone.txt" and "gone.txt" in a["stderr"]


def test_deleted_and_skipped_files_are_told(client, eid):
    client.exec("open('old.txt', 'w').write('x')", entity_id=eid)
    a = client.exec("import os\nos.remove('old.txt'); os.symlink('/etc/passwd', 'link.txt')", entity_id=eid)
    assert a["deleted_files"] == ["old.txt"]
    assert any(s["name"] == "link.txt" for s in a["skipped_files"])


def test_list_download_delete(client, eid):
    up = client.upload([("data.csv", b"1,2\n")], entity_id=eid)
    sid, fid = up["session_id"], up["files"][0]["id"]
    listed = client.files(sid)
    assert [f["id"] for f in listed] == [fid] and listed[0]["name"] == f"{sid}/{fid}.csv"
    assert listed[0]["metadata"]["original-filename"] == "data.csv"
    got = client.download(sid, fid)
    assert got.body == b"1,2\n" and got.headers["Content-Length"] == "4"
    assert 'filename="data.csv"' in got.headers["Content-Disposition"]
    head = client.call("HEAD", f"/download/{sid}/{fid}")
    assert head.status == 200 and head.headers["Content-Length"] == "4" and head.body == b""
    assert client.call("GET", f"/v1//download/{sid}/{fid}").body == b"1,2\n"
    assert client.call("DELETE", f"/files/{sid}/{fid}").json["message"] == "deleted"
    assert client.download(sid, fid).status == 404 and client.files(sid) == []
    assert client.exec("ls", lang="bash", entity_id=eid)["stdout"] == ""


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/passwd", "a//b", "a\\b", "."])
def test_names_that_leave_the_workspace_are_refused(client, eid, name):
    body, kind = multipart([(name.replace("\\", "\\\\"), b"x")], {"entity_id": eid})
    a = client.call("POST", "/upload", body, {"Content-Type": kind})
    assert a.status == 400 and "name" in a.json["message"], a.body
    r = client.post("/exec", {"code": "1", "lang": "py", "files": [{"id": "A" * 21, "name": name}]})
    assert r.status == 400 and "name" in r.json["message"]


@pytest.mark.parametrize("target", ["/etc/shadow", "/var/run/docker.sock", "/proc/1/environ"])
def test_links_in_the_workspace_give_nothing_away(client, eid, target):
    a = client.exec(f"ln -s {target} secret.txt; ln -s / rootdir; ln -s .. up", lang="bash", entity_id=eid)
    assert a["files"] == []
    sid = a["session_id"]
    assert client.files(sid) == []
    for path in ["secret.txt", "..%2f..%2fetc%2fshadow", "rootdir/etc/shadow"]:
        assert client.call("GET", f"/download/{sid}/{path}").status == 404
    up = client.upload([("real.txt", b"mine")])
    b = client.exec("ls -l secret.txt rootdir", lang="bash", entity_id=eid,
                    files=[{"id": up["files"][0]["id"], "name": "secret.txt"},
                           {"id": up["files"][0]["id"], "name": "rootdir/tmp/planted.txt"}])
    assert not os.path.exists("/tmp/planted.txt")
    assert b["code"] == 0


def test_programs_that_run_at_once_are_each_told_of_their_files(client, eid):
    client.exec("true", lang="bash", entity_id=eid)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        a = pool.submit(client.exec, "echo a > fa.txt; while [ ! -e fb.txt ]; do sleep 0.02; done", lang="bash",
                        entity_id=eid)
        b = pool.submit(client.exec, "while [ ! -e fa.txt ]; do sleep 0.02; done; echo b > fb.txt", lang="bash",
                        entity_id=eid)
        assert "fa.txt" in {f["name"] for f in a.result()["files"]}
        assert "fb.txt" in {f["name"] for f in b.result()["files"]}
    assert client.exec("true", lang="bash", entity_id=eid)["files"] == []


def test_code_that_spoils_its_own_directories_does_not_lose_the_session(client, eid):
    client.exec("echo kept > kept.txt", lang="bash", entity_id=eid)
    for spoil in ["rm /run/carrel/runner.sock; mkdir -p /run/carrel/runner.sock/a",
                  "rm /run/carrel/runner.sock; chmod 000 /run/carrel",
                  "rm /run/carrel/runner.sock; chmod 000 /mnt/data $HOME"]:
        client.exec(spoil, lang="bash", entity_id=eid)
        assert client.exec("cat kept.txt", lang="bash", entity_id=eid)["stdout"] == "kept\n"


def test_a_missing_file_part_and_a_cut_body_are_refused(client):
    body, kind = multipart([], {"entity_id": "x"})
    assert client.call("POST", "/upload", body, {"Content-Type": kind}).status == 400
    body, kind = multipart([("a.txt", b"x" * 100)])
    assert client.call("POST", "/upload", body[:-20], {"Content-Type": kind}).status == 400
    assert client.call("POST", "/upload", b"{}", {"Content-Type": "application/json"}).status == 415


def test_plain_python_saves_its_figures_too(client, eid):
    a = client.exec("python3 - <<'PY'\nimport matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()\nPY",
                    lang="bash", entity_id=eid)
    assert a["code"] == 0 and [f["name"] for f in a["files"]] == ["plot_1.png"], a["stderr"]


def test_a_big_upload_streams_to_disk(shared, client, eid):
    data = os.urandom(1 << 20) * 120
    client.exec("print(1)", entity_id=eid)
    before = shared.rss_kb()
    up = client.upload([("big.bin", data)], entity_id=eid)
    assert shared.rss_kb() - before < 20 * 1024
    got = client.download(up["session_id"], up["files"][0]["id"])
    assert hashlib.sha256(got.body).digest() == hashlib.sha256(data).digest()
    a = client.exec("sha256sum < big.bin", lang="bash", entity_id=eid)
    assert a["stdout"].split()[0] == hashlib.sha256(data).hexdigest()
    assert io.BytesIO(got.body).read(4) == data[:4]
