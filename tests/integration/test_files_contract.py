"""The file contract as the two lines of LibreChat clients speak it: up to 0.8.5 (entity_id, session_id) and from
0.8.6 (kind, id, version, storage_session_id). One server answers both."""

import glob
import hashlib
import json
import os
import re
import socket
import sqlite3
import time
import urllib.parse
import uuid

import pytest

from harness import Service, entity

ID = re.compile(r"[A-Za-z0-9_-]{21}")
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
BOUNDARY = "----carrel-contract"


def disposition(name):
    """As curl and form-data write it: raw UTF-8 in quotes; what a header line cannot carry as filename*."""
    if "\n" in name or "\r" in name:
        return "filename*=UTF-8''" + urllib.parse.quote(name, safe="")
    return 'filename="' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def form(items):
    """items: (field, value) and (field, name, bytes), in this order."""
    out = b""
    for item in items:
        name = f"; {disposition(item[1])}" if len(item) == 3 else ""
        out += f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{item[0]}"{name}\r\n\r\n'.encode()
        out += (item[2] if len(item) == 3 else str(item[1]).encode()) + b"\r\n"
    return out + f"--{BOUNDARY}--\r\n".encode()


def send(client, path, items, **kw):
    return client.call("POST", path, form(items), {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}, **kw)


def upload(client, items, path="/upload"):
    a = send(client, path, items)
    assert a.status == 200, (a.status, a.body[:2000])
    return a.json


def unique(prefix):
    return prefix + uuid.uuid4().hex[:16]


def left_in(service):
    """What stands on the disk: temporary files, object files, rows of objects, sessions."""
    with sqlite3.connect(f"file:{service.data_dir}/carrel.db?mode=ro", uri=True) as db:
        rows = [db.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in ("objects", "sessions")]
    return {"tmp": len(os.listdir(service.data_dir + "/tmp")),
            "objects": len(glob.glob(service.data_dir + "/objects/*/*")), "rows": rows[0], "sessions": rows[1]}


def comes_to(service, want):
    """What a refused request left goes when its connection is done with, which is after the answer."""
    deadline = time.monotonic() + 10
    while left_in(service) != want and time.monotonic() < deadline:
        time.sleep(0.02)
    return left_in(service) == want


def settled(service):
    """What stands there once earlier requests are done with."""
    deadline = time.monotonic() + 10
    now = left_in(service)
    while (now["tmp"] or now["objects"] != now["rows"]) and time.monotonic() < deadline:
        time.sleep(0.02)
        now = left_in(service)
    assert now["tmp"] == 0 and now["objects"] == now["rows"], now
    return now


@pytest.fixture(scope="module")
def small():
    with Service(MAX_UPLOAD_MB=1, MAX_BATCH_MB=4) as s:
        yield s


# ---- what each client sends, and how it reads the answer

OLD = [("entity_id", None), ("file", "sales data.csv", b"a,b\n1,2\n")]
NEW = [("kind", "user"), ("id", "66f1c0ffee"), ("file", "sales data.csv", b"a,b\n1,2\n")]
AGENT = [("kind", "agent"), ("id", None), ("file", "sales data.csv", b"a,b\n1,2\n")]
SKILL = [("kind", "skill"), ("id", None), ("version", 3), ("read_only", "true"),
         ("file", "sales data.csv", b"a,b\n1,2\n")]
LATE = [("file", "sales data.csv", b"a,b\n1,2\n"), ("kind", "agent"), ("id", None), ("unknown_field", "x")]


def filled(items):
    return [(i[0], unique("x")) if len(i) == 2 and i[1] is None else i for i in items]


@pytest.mark.parametrize("prefix", ["", "/v1"])
@pytest.mark.parametrize("items, query", [(OLD, ""), (OLD, "?entity_id=agent_x"), (NEW, "?kind=user&id=66f1c0ffee"),
                                          (AGENT, "?kind=agent&id=agent_x"), (SKILL, "?kind=skill&id=s&version=3"),
                                          (LATE, "?anything=goes&x")])
def test_an_upload_is_read_back_by_either_client(client, items, query, prefix):
    up = upload(client, filled(items), prefix + "/upload")
    assert up["message"] == "success"
    f, sid = up["files"][0], up["storage_session_id"]
    fid = f["fileId"]
    assert sid == up["session_id"] == f["session_id"] == f["storage_session_id"]
    assert ID.fullmatch(sid) and ID.fullmatch(fid) and f["id"] == fid
    assert f["filename"] == f["name"] == f["path"] == "sales data.csv" and f["status"] == "success"
    assert f["size"] == 8 and f["contentType"].startswith("text/csv") and "modified_from" not in f
    assert f["metadata"]["original-filename"] == "sales data.csv" and ISO.fullmatch(f["lastModified"])
    got = client.call("GET", f"{prefix}/download/{sid}/{fid}{query}")
    assert got.status == 200 and got.body == b"a,b\n1,2\n" and got.headers["Content-Length"] == "8"
    # 0.8.6: is it still there?
    meta = client.call("GET", f"{prefix}/sessions/{sid}/objects/{fid}{query}").json
    age = time.time() - time.mktime(time.strptime(meta["lastModified"][:19], "%Y-%m-%dT%H:%M:%S")) + time.timezone
    assert abs(age) < 60, meta
    assert meta["name"] == f"{sid}/{fid}.csv" and meta["originalFilename"] == "sales data.csv"
    assert meta["etag"] == hashlib.sha256(b"a,b\n1,2\n").hexdigest()
    assert meta["readOnly"] is (items is SKILL)
    assert client.call("GET", f"{prefix}/files/{sid}/{fid}{query}").json == meta
    # up to 0.8.5: the same question
    listed = client.call("GET", f"{prefix}/files/{sid}?detail=summary{query.replace('?', '&')}").json
    assert next(e for e in listed if e["name"].startswith(f"{sid}/{fid}"))["lastModified"] == meta["lastModified"]
    # agents 2.4: id and name out of the full listing
    entry = client.call("GET", f"{prefix}/files/{sid}?detail=full").json[0]
    assert entry["name"].split("/")[1].split(".")[0] == fid
    assert entry["metadata"]["original-filename"] == "sales data.csv"


SUMMARY = {"name", "id", "fileId", "session_id", "storage_session_id", "filename", "path", "size", "lastModified",
           "etag"}
FULL = SUMMARY | {"metadata", "versionId", "contentType", "readOnly", "originalFilename"}
NORMALIZED = {"id", "name", "storage_session_id", "size", "contentType", "lastModified"}


@pytest.mark.parametrize("query, keys", [("", FULL), ("?detail=full", FULL), ("?detail=summary", SUMMARY),
                                         ("?detail=normalized", NORMALIZED), ("?kind=agent&id=x", FULL)])
def test_details_of_a_listing(client, eid, query, keys):
    up = upload(client, [("entity_id", eid), *[("file", f"d/{i}.tar.gz", b"x" * i) for i in range(5)]])
    sid, ids = up["session_id"], [f["id"] for f in up["files"]]
    listed = client.call("GET", f"/files/{sid}{query}").json
    assert [set(e) for e in listed] == [keys] * 5
    assert [e["id"] for e in listed] == ids, "oldest first"
    assert [e["size"] for e in listed] == [0, 1, 2, 3, 4]
    names = [f"d/{i}.tar.gz" for i in range(5)] if keys is NORMALIZED else [f"{sid}/{i}.gz" for i in ids]
    assert [e["name"] for e in listed] == names


def test_a_simple_listing_is_names_and_an_unknown_detail_is_refused(client, eid):
    up = upload(client, [("entity_id", eid), ("file", "noext", b"1"), ("file", "a.csv", b"2")])
    sid, (one, two) = up["session_id"], (f["id"] for f in up["files"])
    assert client.call("GET", f"/files/{sid}?detail=simple").json == [f"{sid}/{one}", f"{sid}/{two}.csv"]
    a = client.call("GET", f"/files/{sid}?detail=everything")
    assert a.status == 400 and "detail" in a.json["message"]
    assert client.call("GET", f"/files/{'A' * 21}").status == 404


def test_outputs_are_listed_at_once(client, eid):
    a = client.exec("open('out.txt', 'w').write('x')", entity_id=eid)
    assert [f["id"] for f in client.files(a["session_id"])] == [f["id"] for f in a["files"]]


# ---- names

NAMES = ["plain.csv", "with space.txt", "acc\u00e9nt \u00fcber.txt", "e\u0301 decomposed.txt", "\u65e5\u672c\u8a9e.md",
         "\U0001f680 launch \U0001f469\u200d\U0001f680.txt", 'say "hi".txt', "it's.txt", "two\nlines.txt", "tab\there.txt",
         "semi;colon=x.txt", "100% %41.txt", "a" * 251 + ".txt", "\u00fc" * 125 + ".txt", "skills/pdf/ref/forms.md",
         "deep/" * 9 + "x.xsd", "noext", "archive.tar.gz", "-rf", "$(id).txt", "<b>&amp;.html"]


def test_names_go_through_unchanged(client, eid):
    data = {n: n.encode() for n in NAMES}
    up = upload(client, [("entity_id", eid), *[("file", n, d) for n, d in data.items()]], "/upload/batch")
    assert [f["filename"] for f in up["files"]] == NAMES and up["failed"] == 0
    listed = client.files(up["session_id"])
    assert [f["metadata"]["original-filename"] for f in listed] == NAMES
    for f in up["files"]:
        got = client.download(up["session_id"], f["id"])
        assert got.body == data[f["filename"]]
        star = re.search(r"filename\*=UTF-8''(\S+)", got.headers["Content-Disposition"]).group(1)
        assert urllib.parse.unquote(star) == f["filename"].rsplit("/", 1)[-1]
    seen = client.exec("import os, json\nprint(json.dumps(sorted(os.path.relpath(os.path.join(d, n), '/mnt/data') "
                       "for d, _, names in os.walk('/mnt/data') for n in names)))", entity_id=eid)
    assert json.loads(seen["stdout"]) == sorted(NAMES) and seen["files"] == []
    refs = [{"id": f["id"], "storage_session_id": up["session_id"], "name": f["name"]} for f in up["files"]]
    other = client.exec("cat 'skills/pdf/ref/forms.md'; find . -type f -print0 | tr -cd '\\0' | wc -c", lang="bash",
                        entity_id=entity(), files=refs)
    assert other["stdout"] == f"skills/pdf/ref/forms.md{len(NAMES)}\n" and "skipped_files" not in other


BAD_NAMES = ["../up.txt", "a/../../up.txt", "/etc/passwd", "a//b.txt", "back\\slash.txt", ".", "", "x" * 256]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_name_fails_an_upload_and_only_itself_in_a_batch(shared, client, name):
    before = settled(shared)
    a = send(client, "/upload", [("file", "good.txt", b"1"), ("file", name, b"2")])
    assert a.status == 400 and "name" in a.json["message"]
    alone = send(client, "/upload/batch", [("file", name, b"2")])
    assert alone.status == 400 and alone.json["message"] == "error" and alone.json["failed"] == 1
    assert comes_to(shared, before)
    b = upload(client, [("file", "good.txt", b"1"), ("file", name, b"2"), ("file", "fine.txt", b"3")], "/upload/batch")
    assert b["message"] == "partial_success" and (b["succeeded"], b["failed"]) == (2, 1)
    assert [f["status"] for f in b["files"]] == ["success", "error", "success"]
    assert b["files"][1]["filename"] == name and "name" in b["files"][1]["error"]
    assert [f["filename"] for f in client.files(b["session_id"])] == ["good.txt", "fine.txt"]


# ---- batches

def test_a_skill_of_two_hundred_files(client):
    names = [f"skills/pdf/{'ref/' if i % 3 else ''}f{i}.{'xsd' if i % 2 else 'py'}" for i in range(199)]
    names.append("skills/pdf/__init__.py")
    files = [("file", n, b"" if i % 10 == 9 else f"#{i}\n".encode()) for i, n in enumerate(names)]
    begun = time.monotonic()
    up = upload(client, [("kind", "skill"), ("id", unique("s")), ("version", 1), ("read_only", "true"), *files],
                "/upload/batch")
    took = time.monotonic() - begun
    assert up["message"] == "success" and (up["succeeded"], up["failed"]) == (200, 0)
    assert [f["filename"] for f in up["files"]] == names and len({f["fileId"] for f in up["files"]}) == 200
    assert took < 20, took
    sid = up["storage_session_id"]
    refs = [{"id": f["fileId"], "resource_id": "s", "storage_session_id": sid, "name": f["filename"], "kind": "skill",
             "version": 1} for f in up["files"]]
    a = client.exec("find skills -type f | wc -l; cat skills/pdf/f0.py; stat -c %a skills/pdf/f0.py; "
                    "echo more > skills/pdf/new.txt", lang="bash", entity_id=entity(), files=refs)
    assert a["stdout"] == "200\n#0\n444\n" and [f["name"] for f in a["files"]] == ["skills/pdf/new.txt"]


def test_a_thousand_files_and_not_one_more(shared, client):
    fields = [("kind", "skill"), ("id", unique("s")), ("version", "2"), ("read_only", "true"), ("entity_id", "e")]
    up = upload(client, fields + [("file", f"{i}.txt", b"") for i in range(1000)], "/upload/batch")
    assert up["succeeded"] == 1000 and len(client.files(up["session_id"])) == 1000
    before = settled(shared)
    a = send(client, "/upload/batch", fields + [("file", f"{i}.txt", b"") for i in range(1001)])
    assert a.status == 413 and comes_to(shared, before)


def test_a_batch_without_files_is_refused(shared, client):
    before = settled(shared)
    a = send(client, "/upload/batch", [("kind", "skill"), ("id", "s"), ("version", 1)])
    assert a.status == 400 and "file" in a.json["message"] and comes_to(shared, before)


def test_the_same_name_twice_in_a_batch_is_two_files_and_the_last_is_placed(client, eid):
    up = upload(client, [("entity_id", eid), ("file", "x.txt", b"first"), ("file", "x.txt", b"second")], "/upload/batch")
    assert up["succeeded"] == 2 and len(client.files(up["session_id"])) == 2
    assert client.exec("cat x.txt", lang="bash", entity_id=eid)["stdout"] == "second"


def test_files_past_the_limit(small):
    client, big = small.client(), os.urandom((1 << 20) + 1)
    before = settled(small)
    a = send(client, "/upload", [("file", "ok.bin", b"1"), ("file", "big.bin", big)])
    assert a.status == 413 and "MAX_UPLOAD_MB" in a.json["message"] and comes_to(small, before)
    b = upload(client, [("file", "ok.bin", b"1"), ("file", "big.bin", big), ("file", "just.bin", big[:-1])], "/upload/batch")
    assert b["message"] == "partial_success" and [f["status"] for f in b["files"]] == ["success", "error", "success"]
    assert "MAX_UPLOAD_MB" in b["files"][1]["error"]
    now = settled(small)
    assert (now["tmp"], now["objects"], now["rows"]) == (0, before["objects"] + 2, before["rows"] + 2)
    c = send(client, "/upload/batch", [("file", f"{i}.bin", big[:-1]) for i in range(6)])
    assert c.status == 413 and "MAX_BATCH_MB" in c.json["message"] and comes_to(small, now)


def test_an_announced_length_past_the_limit_is_refused_before_the_body(small):
    with socket.create_connection(("127.0.0.1", small.port), timeout=10) as s:
        s.sendall(f"POST /upload HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {10 << 30}\r\nContent-Type: "
                  f"multipart/form-data; boundary={BOUNDARY}\r\n\r\n".encode())
        assert s.recv(64).startswith(b"HTTP/1.1 413")


# ---- bodies that arrive otherwise, or not at all

@pytest.mark.parametrize("path", ["/upload", "/upload/batch"])
@pytest.mark.parametrize("piece", [7, 1000, 65536])
def test_chunked_bodies(client, eid, path, piece):
    data = os.urandom(100_003 if piece > 7 else 1003)
    body = form([("entity_id", eid), ("file", "\u00fc.bin", data), ("files", "empty", b"")])
    c = client.connect()
    c.request("POST", path, (body[i:i + piece] for i in range(0, len(body), piece)),
              {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}", "Transfer-Encoding": "chunked"},
              encode_chunked=True)
    r = c.getresponse()
    up = json.loads(r.read())
    c.close()
    assert r.status == 200 and [f["filename"] for f in up["files"]] == ["\u00fc.bin", "empty"]
    assert client.download(up["session_id"], up["files"][0]["id"]).body == data
    assert client.download(up["session_id"], up["files"][1]["id"]).body == b""


@pytest.mark.parametrize("path", ["/upload", "/upload/batch"])
@pytest.mark.parametrize("cut", [20, 400, 5000])
def test_a_body_that_ends_half_way_leaves_nothing(shared, client, eid, path, cut):
    before = settled(shared)
    items = [("entity_id", eid), *[("file", f"{i}.bin", os.urandom(3000)) for i in range(40)]]
    whole = form(items)
    head = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    a = client.call("POST", path, whole[:-cut], head)  # a well-formed request with a truncated body
    assert a.status == 400 and comes_to(shared, before)
    c = client.connect()  # a connection that is cut
    c.putrequest("POST", path)
    for k, v in {**head, "Content-Length": str(len(whole))}.items():
        c.putheader(k, v)
    c.endheaders()
    c.send(whole[:-cut])
    time.sleep(0.2)
    c.close()
    assert comes_to(shared, before)


# ---- whose files

@pytest.mark.parametrize("fields, word", [
    ([("kind", "admin")], "kind"), ([("kind", "Agent"), ("id", "a")], "kind"),
    ([("kind", "agent")], "id"), ([("kind", "agent"), ("id", "a/b")], "id"), ([("kind", "agent"), ("id", "x" * 129)], "id"),
    ([("kind", "skill"), ("id", "s")], "version"), ([("kind", "skill"), ("version", "1")], "id"),
    ([("kind", "skill"), ("id", "s"), ("version", "")], "version"),
    ([("kind", "skill"), ("id", "s"), ("version", "1 or 1")], "version"), ([("entity_id", "a b")], "entity_id")])
@pytest.mark.parametrize("path", ["/upload", "/upload/batch"])
def test_bad_owners_are_refused(shared, client, path, fields, word):
    before = settled(shared)
    a = send(client, path, [*fields, ("file", "x.txt", b"x")])
    assert a.status == 400 and a.json["message"].startswith(word), a.body
    assert comes_to(shared, before)


def test_agents_and_skills_have_storage_of_their_own(client):
    who = unique("a")

    def sid(*fields):
        return upload(client, [*fields, ("file", "x.txt", b"x")])["session_id"]
    agent = sid(("kind", "agent"), ("id", who))
    assert sid(("kind", "agent"), ("id", who), ("version", 9)) == agent, "an agent has no versions"
    assert sid(("kind", "agent"), ("id", who), ("entity_id", "e"), ("session_id", "A" * 21)) == agent
    one, two = sid(("kind", "skill"), ("id", who), ("version", 1)), sid(("kind", "skill"), ("id", who), ("version", 2))
    users = [sid(("kind", "user"), ("id", who)), sid(("kind", "user"), ("id", who)), sid(("kind", "user"))]
    assert len({agent, one, two, *users}) == 6
    assert sid(("kind", "skill"), ("id", who), ("version", 1)) == one


def test_shared_storage_is_never_executed_in(shared, client):
    who = unique("a")
    up = upload(client, [("kind", "agent"), ("id", who), ("file", "k.txt", b"knowledge")])
    sid, fid = up["session_id"], up["files"][0]["id"]
    a = client.exec("ls", lang="bash", session_id=sid)
    assert a["session_id"] != sid and a["stdout"] == ""
    plain = upload(client, [("session_id", sid), ("file", "x.txt", b"x")])
    assert plain["session_id"] != sid, "nor does an upload of a user go there"
    b = client.exec("cat k.txt; echo changed > k.txt", lang="bash", entity_id=entity(),
                    files=[{"id": fid, "resource_id": who, "storage_session_id": sid, "name": "k.txt", "kind": "agent"}])
    assert b["stdout"] == "knowledge"
    assert b["files"][0]["modified_from"] == {"id": fid, "storage_session_id": sid}
    assert b["files"][0]["storage_session_id"] == b["session_id"] != sid, "what is made from it is the user's"
    assert client.download(sid, fid).body == b"knowledge"
    assert client.call("DELETE", f"/sessions/{sid}/objects/{fid}?kind=agent&id={who}").status == 200
    assert client.call("GET", f"/sessions/{sid}/objects/{fid}").status == 404
    assert client.files(sid) == [] and shared.container_of(sid) is None


def test_read_only_files_are_never_results(client):
    up = upload(client, [("kind", "skill"), ("id", unique("s")), ("version", 1), ("read_only", "true"), ("file", "s.py", b"1")])
    a = client.exec("rm -f s.py; echo 2 > s.py; echo out > o.txt", lang="bash", entity_id=entity(), files=[
        {"id": up["files"][0]["id"], "storage_session_id": up["session_id"], "name": "s.py", "kind": "skill", "version": 1}])
    assert [f["name"] for f in a["files"]] == ["o.txt"]


# ---- references

@pytest.mark.parametrize("shape", [
    lambda sid, fid: {"id": fid, "session_id": sid, "name": "in.txt"},
    lambda sid, fid: {"id": fid, "session_id": sid, "name": "in.txt", "entity_id": "agent_x"},
    lambda sid, fid: {"id": fid, "storage_session_id": sid, "resource_id": "u1", "kind": "user", "name": "in.txt"},
    lambda sid, fid: {"id": fid, "storage_session_id": sid, "session_id": None, "resource_id": fid, "kind": "skill",
                      "version": 7, "name": "/mnt/data/in.txt"},
    lambda sid, fid: {"id": fid, "storage_session_id": "A" * 21, "session_id": sid, "name": "mnt/data/in.txt"},
    lambda sid, fid: {"id": fid, "session_id": 5, "storage_session_id": {}, "kind": ["x"], "name": "in.txt"},
    lambda sid, fid: {"id": fid, "name": "in.txt"}])
def test_every_shape_of_a_reference_is_honoured(client, shape):
    up = upload(client, [("file", "raw n\u00e4me.txt", b"hello")])
    a = client.exec("cat in.txt; ls | wc -l", lang="bash", entity_id="refs", files=[
        {"id": up["files"][0]["id"], "session_id": up["session_id"], "name": "sub/y.txt"},
        shape(up["session_id"], up["files"][0]["id"])])
    assert a["stdout"] == "hello2\n" and a["files"] == [] and "skipped_files" not in a


def test_an_output_is_found_under_the_session_of_its_execution(client, eid):
    up = upload(client, [("file", "in.txt", b"v1")])
    a = client.exec("printf v2 > in.txt", lang="bash", entity_id=eid,
                    files=[{"id": up["files"][0]["id"], "storage_session_id": up["session_id"], "name": "in.txt"}])
    f = a["files"][0]
    assert f["storage_session_id"] == a["session_id"]
    for path in (f"/download/{a['session_id']}/{f['id']}", f"/files/{a['session_id']}/{f['id']}",
                 f"/sessions/{a['session_id']}/objects/{f['id']}"):
        assert client.call("GET", path).status == 200
    assert client.download(up["session_id"], f["id"]).status == 404
    assert client.download("A" * 21, f["id"]).status == 404


@pytest.mark.parametrize("ran_between", [True, False])
def test_a_newer_upload_of_a_name_is_not_undone_by_a_stale_reference(client, eid, ran_between):
    def ref(up):
        return {"id": up["files"][0]["id"], "session_id": up["session_id"], "name": "data.csv"}
    one = upload(client, [("entity_id", eid), ("file", "data.csv", b"old")])
    if ran_between:
        assert client.exec("cat data.csv", lang="bash", entity_id=eid, files=[ref(one)])["stdout"] == "old"
    two = upload(client, [("entity_id", eid), ("file", "data.csv", b"new")])
    assert "modified_from" not in two["files"][0] and two["files"][0]["id"] != one["files"][0]["id"]
    for files in ([ref(one)], [ref(two)], [ref(two), ref(one)], []):
        assert client.exec("cat data.csv", lang="bash", entity_id=eid, files=files)["stdout"] == "new"
    assert client.download(one["session_id"], one["files"][0]["id"]).body == b"old"
    assert [f["id"] for f in client.files(one["session_id"])] == [one["files"][0]["id"], two["files"][0]["id"]]
    a = client.exec("printf newer > data.csv", lang="bash", entity_id=eid, files=[ref(one)])
    assert a["files"][0]["modified_from"]["id"] == two["files"][0]["id"]


# ---- downloads and deletion

def test_download_headers_ranges_and_validators(client):
    data = bytes(range(256)) * 4
    up = upload(client, [("file", "d\u00e4ta \u2603.bin", data)])
    path = f"/download/{up['session_id']}/{up['files'][0]['id']}"
    whole = client.call("GET", path)
    etag = whole.headers["ETag"]
    assert etag == f'"{hashlib.sha256(data).hexdigest()}"' and whole.headers["Accept-Ranges"] == "bytes"
    assert re.match(r'attachment; filename="[ -~]+"; filename\*=UTF-8\'\'d%C3%A4ta%20%E2%98%83\.bin$',
                    whole.headers["Content-Disposition"])
    head = client.call("HEAD", path)
    assert head.status == 200 and head.body == b"" and head.headers["Content-Length"] == "1024"
    assert head.headers["ETag"] == etag and head.headers["Content-Disposition"] == whole.headers["Content-Disposition"]
    for spec, status, want in [("bytes=0-9", 206, data[:10]), ("bytes=1000-", 206, data[1000:]), ("bytes=-4", 206, data[-4:]),
                               ("bytes=1020-9999", 206, data[1020:]), ("bytes=2000-", 416, None), ("lines=1-2", 200, data)]:
        a = client.call("GET", path, headers={"Range": spec})
        assert a.status == status and (want is None or a.body == want), spec
        if status == 206:
            first = data.index(want) if spec != "bytes=-4" else 1020
            assert a.headers["Content-Range"].endswith("/1024") and a.headers["Content-Length"] == str(len(want)), first
    for method in ("GET", "HEAD"):
        a = client.call(method, path, headers={"If-None-Match": etag})
        assert a.status == 304 and a.body == b"" and a.headers["ETag"] == etag
    assert client.call("GET", path, headers={"If-None-Match": '"other"'}).status == 200
    meta = client.call("HEAD", path.replace("/download/", "/files/"))
    assert meta.status == 200 and meta.body == b""


@pytest.mark.parametrize("shape", ["/files/{}/{}", "/sessions/{}/objects/{}", "/v1/sessions/{}/objects/{}?kind=user&id=u"])
def test_deletion_by_either_route(client, eid, shape):
    up = upload(client, [("entity_id", eid), ("file", "a.txt", b"1"), ("file", "b.txt", b"2")])
    sid, (a, b) = up["session_id"], (f["id"] for f in up["files"])
    client.exec("1", entity_id=eid)
    done = client.call("DELETE", shape.format(sid, a))
    assert done.status == 200 and done.json == {"message": "deleted", "id": a, "session_id": sid}
    assert client.call("DELETE", shape.format(sid, a)).status == 404
    for path in (f"/files/{sid}/{a}", f"/sessions/{sid}/objects/{a}", f"/download/{sid}/{a}"):
        assert client.call("GET", path).status == 404
    assert [f["id"] for f in client.files(sid)] == [b]
    assert client.exec("ls", lang="bash", entity_id=eid)["stdout"] == "b.txt\n"


@pytest.mark.parametrize("sid, fid", [("A" * 21, "B" * 21), ("short", "B" * 21), ("A" * 21, "..%2f..%2fx"), ("%00" * 21, "x")])
@pytest.mark.parametrize("method, shape", [("GET", "/files/{}/{}"), ("DELETE", "/files/{}/{}"), ("GET", "/download/{}/{}"),
                                           ("GET", "/sessions/{}/objects/{}"), ("DELETE", "/sessions/{}/objects/{}")])
def test_unknown_ids_are_not_found(client, method, shape, sid, fid):
    a = client.call(method, shape.format(sid, fid))
    assert a.status == 404 and a.json["error"]


# ---- last use

@pytest.mark.parametrize("use", ["download", "metadata", "listing", "reference"])
def test_a_use_is_recorded(small, use):
    client = small.client()
    up = upload(client, [("file", "a.txt", b"1"), ("file", "b.txt", b"2")])
    sid, fid = up["session_id"], up["files"][0]["id"]
    day_ms = 86400 * 1000
    with sqlite3.connect(small.data_dir + "/carrel.db", timeout=20) as db:
        db.execute("UPDATE objects SET last_used_ms = last_used_ms - ?, created_ms = created_ms - ? WHERE session_id = ?",
                   (2 * day_ms, 2 * day_ms, sid))
    if use == "download":
        assert client.download(sid, fid).status == 200
    elif use == "metadata":
        client.call("GET", f"/sessions/{sid}/objects/{fid}")
    elif use == "listing":
        client.call("GET", f"/files/{sid}?detail=summary")
    else:
        client.exec("1", files=[{"id": fid, "name": "a.txt"}])
    with sqlite3.connect(f"file:{small.data_dir}/carrel.db?mode=ro", uri=True) as db:
        used = dict(db.execute("SELECT id, last_used_ms FROM objects WHERE session_id = ?", (sid,)).fetchall())
    fresh = {f["id"]: time.time() * 1000 - used[f["id"]] < day_ms for f in up["files"]}
    assert fresh == {fid: True, up["files"][1]["id"]: use == "listing"}
