"""A client of carrel-runner: speaks frames over its Unix socket (see common/frame.h)."""

import json
import socket
import struct
import time

HELLO, RUN, ATTACH, CANCEL, ACK, LIST = 1, 10, 11, 12, 13, 14
LISTING, REFUSED = 30, 31
STARTED, STDOUT, STDERR, RESULT, DISPLAY, ERROR, END = 50, 51, 52, 53, 54, 55, 56


class Closed(Exception):
    """The runner closed the connection."""


class Refused(Exception):
    """The runner refused a request."""


class Run:
    """What an execution told, up to now."""

    def __init__(self):
        self.events = []
        self.stdout = b""
        self.stderr = b""
        self.displays = []
        self.results = []
        self.errors = []
        self.started = None
        self.end = None
        self.times = []  # seconds since the first event, one an event

    def take(self, kind, payload):
        self.events.append((kind, payload))
        self.times.append(time.monotonic())
        if kind == STDOUT:
            self.stdout += payload
        elif kind == STDERR:
            self.stderr += payload
        elif kind == REFUSED:
            raise Refused(json.loads(payload)["message"])
        else:
            doc = json.loads(payload)
            if kind == STARTED:
                self.started = doc
            elif kind == RESULT:
                self.results.append(doc)
            elif kind == DISPLAY:
                self.displays.append(doc)
            elif kind == ERROR:
                self.errors.append(doc)
            elif kind == END:
                self.end = doc

    @property
    def out(self):
        return self.stdout.decode(errors="replace")

    @property
    def err(self):
        return self.stderr.decode(errors="replace")

    @property
    def code(self):
        return self.end["code"]

    @property
    def reason(self):
        return self.end["reason"]


class Connection:
    def __init__(self, path, hello=True, timeout=30):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        self.socket.connect(str(path))
        self.buffer = b""
        self.hello = None
        if hello:
            self.send(HELLO, protocol=1, oldest=1, program="test")
            kind, payload = self.read()
            assert kind == HELLO, kind
            self.hello = json.loads(payload)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, frame_kind, **doc):
        self.send_raw(frame_kind, json.dumps(doc).encode())

    def send_raw(self, frame_kind, payload):
        self.socket.sendall(struct.pack(">IB", len(payload), frame_kind) + payload)

    def _need(self, n):
        while len(self.buffer) < n:
            data = self.socket.recv(1 << 20)
            if not data:
                raise Closed()
            self.buffer += data

    def read(self):
        self._need(5)
        length, kind = struct.unpack(">IB", self.buffer[:5])
        self._need(5 + length)
        payload = self.buffer[5 : 5 + length]
        self.buffer = self.buffer[5 + length :]
        return kind, payload

    def follow(self, run=None, until=END):
        run = run or Run()
        while True:
            kind, payload = self.read()
            run.take(kind, payload)
            if kind in (until, END):
                return run

    def list(self):
        self.send(LIST)
        kind, payload = self.read()
        assert kind == LISTING, kind
        return json.loads(payload)


counter = 0


def start(path, lang, code, *, args=(), stdin=None, timeout_ms=20000, connection=None, run_id=None, **options):
    """Sends RUN; gives the connection that follows it, and the id."""
    global counter
    counter += 1
    run_id = run_id or f"run-{time.time_ns()}-{counter}"
    connection = connection or Connection(path)
    connection.send(
        RUN,
        **{
            "id": run_id,
            "lang": lang,
            "code": code,
            "args": list(args),
            "stdin": stdin,
            "timeout_ms": timeout_ms,
            "compile_timeout_ms": 60000,
            "output_max": 1 << 20,
            "memory_max": 0,
            "cpu_max_s": 0,
            "file_max": 0,
            "bash_strict": True,
            "detached": False,
            **options,
        },
    )
    return connection, run_id


def run(path, lang, code, **options):
    """Runs a program to its end and acknowledges it."""
    reuse = options.get("connection")
    connection, run_id = start(path, lang, code, **options)
    try:
        result = connection.follow()
        connection.send(ACK, id=run_id)
        return result
    finally:
        if not reuse:
            connection.close()
