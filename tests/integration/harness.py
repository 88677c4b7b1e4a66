"""A Carrel service of the test's own, and a plain HTTP client for it. Standard library only."""

import contextlib
import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = os.environ.get("CARREL_BINARY", os.path.join(ROOT, "build", "release", "carrel"))
START_SECONDS = 60


class Answer:
    """An HTTP answer that was read to its end."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)


class Client:
    def __init__(self, port, headers=None, host="127.0.0.1"):
        self.port, self.host, self.headers = port, host, headers or {}

    def connect(self, timeout=120):
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def call(self, method, path, body=None, headers=None, timeout=120):
        c = self.connect(timeout)
        try:
            c.request(method, path, body, {**self.headers, **(headers or {})})
            r = c.getresponse()
            return Answer(r.status, r.headers, r.read())
        finally:
            c.close()

    def post(self, path, doc, headers=None, timeout=120):
        body = doc if isinstance(doc, (bytes, str)) else json.dumps(doc)
        return self.call("POST", path, body, {"Content-Type": "application/json", **(headers or {})}, timeout)

    def exec(self, code, lang="py", timeout_s=120, **fields):
        """Runs a program and gives the answer's document; HTTP must be 200."""
        a = self.post("/exec", {"code": code, "lang": lang, **fields}, timeout=timeout_s)
        assert a.status == 200, (a.status, a.body[:2000])
        return a.json

    def upload(self, files, **fields):
        body, kind = multipart(files, fields)
        a = self.call("POST", "/upload", body, {"Content-Type": kind})
        assert a.status == 200, (a.status, a.body[:2000])
        return a.json

    def download(self, sid, fid, **kw):
        return self.call("GET", f"/download/{sid}/{fid}", **kw)

    def files(self, sid):
        a = self.call("GET", f"/files/{sid}")
        assert a.status == 200, (a.status, a.body[:2000])
        return a.json

    @contextlib.contextmanager
    def stream(self, code, lang="py", timeout=120, **fields):
        """Gives an iterator of (seconds since the request, event document or None for a comment)."""
        c = self.connect(timeout)
        begun = time.monotonic()
        c.request("POST", "/exec/stream", json.dumps({"code": code, "lang": lang, **fields}),
                  {"Content-Type": "application/json", **self.headers})
        r = c.getresponse()
        assert r.status == 200, (r.status, r.read()[:2000])
        assert r.headers["Content-Type"].startswith("text/event-stream")

        def events():
            for line in r:
                line = line.rstrip(b"\n")
                if line.startswith(b"data: "):
                    yield time.monotonic() - begun, json.loads(line[6:])
                elif line.startswith(b":"):
                    yield time.monotonic() - begun, None
        try:
            yield events()
        finally:
            c.close()


def multipart(files, fields=None):
    """files: (name, bytes) pairs. Gives the body and its Content-Type."""
    boundary = "carrel-test-" + uuid.uuid4().hex
    parts = []
    for key, value in (fields or {}).items():
        parts.append(f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode())
    for name, data in files:
        parts.append(f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
                     f"Content-Type: application/octet-stream\r\n\r\n".encode() + data + b"\r\n")
    parts.append(f"--{boundary}--\r\n".encode())
    return b"".join(parts), f"multipart/form-data; boundary={boundary}"


def entity():
    """An entity_id that no other test uses."""
    return "e" + uuid.uuid4().hex[:20]


class Service:
    """carrel serve on a free port and a data directory of its own; everything is removed at the end."""

    def __init__(self, wrapper=(), **settings):
        self.settings, self.wrapper = settings, list(wrapper)
        self.data_dir = tempfile.mkdtemp(prefix="carrel-test-", dir="/var/tmp")
        self.log_path = self.data_dir + ".log"
        self.process = None
        self.port = 0

    def start(self):
        env = {"PATH": os.environ["PATH"], "HOME": "/root", "PORT": "0", "DATA_DIR": self.data_dir,
               "LOG_LEVEL": "debug"}
        if "SANDBOX_IMAGE" in os.environ:  # to try an image before it is the default one
            env["SANDBOX_IMAGE"] = os.environ["SANDBOX_IMAGE"]
        env.update({k: str(v) for k, v in self.settings.items()})
        self.log = open(self.log_path, "ab")
        begin = self.log.tell()
        self.process = subprocess.Popen([*self.wrapper, BINARY, "serve"], env=env, stderr=self.log,
                                        stdin=subprocess.DEVNULL, stdout=self.log)
        deadline = time.monotonic() + START_SECONDS * (10 if self.wrapper else 1)
        while True:
            with open(self.log_path, "rb") as f:
                f.seek(begin)
                text = f.read().decode(errors="replace")
            m = re.search(r"listening on http://\S+?:(\d+) ", text)
            if m:
                self.port = int(m.group(1))
                return self
            assert self.process.poll() is None, f"the service ended with {self.process.returncode}:\n{text}"
            assert time.monotonic() < deadline, f"the service did not start:\n{text}"
            time.sleep(0.02)

    def client(self, **headers):
        return Client(self.port, {k.replace("_", "-"): v for k, v in headers.items()})

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(timeout=60)
        self.log.close()
        return self.process.returncode

    def kill9(self):
        self.process.kill()
        self.process.wait()
        self.log.close()

    @property
    def instance(self):
        with open(os.path.join(self.data_dir, "instance")) as f:
            return f.read()

    def containers(self, *extra):
        """Ids of this service's containers; extra are further filters, such as label=carrel.session=X."""
        filters = [f"--filter=label=carrel.instance={self.instance}", *[f"--filter={e}" for e in extra]]
        return docker("ps", "-aq", "--no-trunc", *filters).split()

    def container_of(self, sid):
        found = self.containers(f"label=carrel.session={sid}")
        assert len(found) <= 1
        return found[0] if found else None

    def rss_kb(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))

    def log_text(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, value, trace):
        if kind:
            print("---- service log, last lines ----")
            print("\n".join(self.log_text().splitlines()[-60:]))
        if self.process and self.process.poll() is None:
            self.stop()
        with contextlib.suppress(FileNotFoundError):
            for c in self.containers():
                docker("rm", "-f", c)
        shutil.rmtree(self.data_dir, ignore_errors=True)
        os.unlink(self.log_path)


def docker(*args):
    return subprocess.run(["docker", *args], check=True, capture_output=True, text=True).stdout


def raw_exchange(port, data, timeout=10):
    """Sends bytes as they are and gives what comes back until the server closes or falls silent."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as s:
        s.sendall(data)
        got = b""
        while select.select([s], [], [], 2)[0]:
            piece = s.recv(65536)
            if not piece:
                break
            got += piece
        return got
