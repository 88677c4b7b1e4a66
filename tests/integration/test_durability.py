"""What was answered survives; what was cut off leaves nothing."""

import hashlib
import http.client
import os
import socket
import sqlite3
import threading

from harness import Service, entity, multipart


def disk(service):
    """Ids of object files, and names of temporary ones."""
    objects = os.path.join(service.data_dir, "objects")
    found = [f for _, _, files in os.walk(objects) for f in files]
    tmp = os.path.join(service.data_dir, "tmp")
    return sorted(found), os.listdir(tmp) if os.path.isdir(tmp) else []


def rows(service):
    with sqlite3.connect(os.path.join(service.data_dir, "carrel.db")) as db:
        return sorted(r[0] for r in db.execute("SELECT id FROM objects"))


def test_a_truncated_upload_leaves_nothing():
    with Service() as s:
        body, kind = multipart([("cut.bin", os.urandom(3 << 20))], {"entity_id": entity()})
        for chunked in (False, True):
            with socket.create_connection(("127.0.0.1", s.port)) as c:
                head = f"POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
                if chunked:
                    c.sendall((head + "Transfer-Encoding: chunked\r\n\r\n").encode())
                    c.sendall(b"%x\r\n" % (2 << 20) + body[:2 << 20] + b"\r\n")
                else:
                    c.sendall((head + f"Content-Length: {len(body)}\r\n\r\n").encode() + body[:2 << 20])
        s.client().call("GET", "/health")
        s.kill9()
        s.start()
        assert disk(s) == ([], []) and rows(s) == []


def test_kill_9_during_uploads_and_executions_loses_nothing_answered():
    with Service(MAX_SESSIONS=4) as s:
        answered, lock, killed = [], threading.Lock(), threading.Event()

        def upload(i):
            c = s.client()
            for n in range(50):
                data = os.urandom(40000 + i * 1000 + n)
                try:
                    up = c.upload([(f"u{i}-{n}.bin", data)], entity_id=f"up{i}")
                except (OSError, http.client.HTTPException):
                    return
                with lock:
                    answered.append((up["session_id"], up["files"][0]["id"], hashlib.sha256(data).hexdigest()))

        def execute(i):
            c = s.client()
            for n in range(50):
                try:
                    a = c.exec(f"import os; d = os.urandom({9000 + n}); open('r{n}.bin', 'wb').write(d)", entity_id=f"ex{i}")
                except (OSError, http.client.HTTPException):
                    return
                with lock:
                    answered.extend((a["session_id"], f["id"], f["sha256"]) for f in a["files"])

        threads = [threading.Thread(target=upload, args=(i,)) for i in range(16)]
        threads += [threading.Thread(target=execute, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        while not killed.is_set():  # in the middle: some of each kind are answered, more are under way
            with lock:
                if len(answered) > 60:
                    killed.set()
            killed.wait(0.01)
        s.kill9()
        for t in threads:
            t.join()
        s.start()
        c = s.client()
        for sid, fid, digest in answered:
            got = c.download(sid, fid)
            assert got.status == 200 and hashlib.sha256(got.body).hexdigest() == digest
        objects, temporary = disk(s)
        assert temporary == [] and objects == rows(s), "half-done uploads must leave neither bytes nor rows"
