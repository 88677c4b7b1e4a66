"""Runs inside a sandbox: the kernel's own round trip, with nothing of Carrel between. Prints milliseconds, one a line.

A second kernel is started just as the runner starts its own, and driven by the barest client there can be: a request on
the shell socket, then its reply and the idle status, whichever comes first.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import uuid

import zmq

ROUNDS = int(sys.argv[1])
directory = tempfile.mkdtemp(dir="/tmp")
path = os.path.join(directory, "c.json")
ports = {name: i + 1 for i, name in enumerate(["shell_port", "iopub_port", "stdin_port", "control_port", "hb_port"])}
with open(path, "w") as f:
    json.dump({"transport": "ipc", "ip": os.path.join(directory, "k"), "key": "", "signature_scheme": "hmac-sha256",
               **ports}, f)
kernel = subprocess.Popen([sys.executable, "-P", "-m", "carrel_kernel", "-f", path], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL)
context = zmq.Context()
shell, iopub = context.socket(zmq.DEALER), context.socket(zmq.SUB)
iopub.subscribe(b"")
for socket, name in [(shell, "shell_port"), (iopub, "iopub_port")]:
    socket.setsockopt(zmq.RECONNECT_IVL, 10)
    socket.connect(f"ipc://{directory}/k-{ports[name]}")
poller = zmq.Poller()
poller.register(shell, zmq.POLLIN)
poller.register(iopub, zmq.POLLIN)


def run(code):
    ident = uuid.uuid4().hex
    header = {"msg_id": ident, "session": "floor", "username": "", "date": "2026-01-01T00:00:00Z",
              "msg_type": "execute_request", "version": "5.3"}
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False,
               "stop_on_error": False}
    frames = [b"<IDS|MSG>", b"", json.dumps(header).encode(), b"{}", b"{}", json.dumps(content).encode()]
    begun = time.perf_counter()
    shell.send_multipart(frames)
    reply = idle = False
    while not (reply and idle):
        for socket, _ in poller.poll(60000):
            parts = socket.recv_multipart()
            at = parts.index(b"<IDS|MSG>")
            if json.loads(parts[at + 3]).get("msg_id") != ident:
                continue
            if socket is shell:
                reply = True
            elif b'"idle"' in parts[at + 5]:
                idle = True
    return (time.perf_counter() - begun) * 1000


run("pass")
time.sleep(0.5)
for _ in range(20):
    run("print(1)")
for _ in range(ROUNDS):
    print(f"{run('print(1)'):.3f}")
kernel.kill()
