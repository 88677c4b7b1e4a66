"""A small client of the kernel, wired as the runner does it: ipc sockets, an empty key, one execution at a time."""

import json
import os
import signal
import subprocess
import sys
import time

import zmq
from jupyter_client.session import Session

DIRECTORY = "/run/kernel"
WORKSPACE = "/mnt/data"


class Result:
    def __init__(self):
        self.stdout = self.stderr = ""
        self.data, self.errors, self.reply, self.stream_times = [], [], None, []
        self.exit_status = None  # of a kernel that died

    @property
    def text(self):
        """text/plain of the last thing displayed"""
        return self.data[-1].get("text/plain") if self.data else None

    @property
    def traceback(self):
        return "\n".join(line for e in self.errors for line in e["traceback"])


class Kernel:
    def __init__(self, flag="-P"):
        for n in range(1, 6):
            if os.path.exists(f"{DIRECTORY}/k-{n}"):
                os.unlink(f"{DIRECTORY}/k-{n}")
        connection = {"transport": "ipc", "ip": f"{DIRECTORY}/k", "key": "", "signature_scheme": "hmac-sha256"}
        for n, name in enumerate(("shell", "iopub", "stdin", "control", "hb"), start=1):
            connection[f"{name}_port"] = n
        path = f"{DIRECTORY}/connection.json"
        with open(path, "w", encoding="utf-8") as f:
            json.dump(connection, f)
        started = time.monotonic()
        self.real_stderr = open("/tmp/kernel.stderr", "w+b")  # what no message carries
        self.process = subprocess.Popen(
            [sys.executable, flag, "-m", "carrel_kernel", "-f", path],
            cwd=WORKSPACE,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.real_stderr,
            env={k: v for k, v in os.environ.items() if k != "MPLBACKEND"},
        )
        self.session = Session(key=b"")
        context = zmq.Context.instance()
        self.shell, self.iopub = context.socket(zmq.DEALER), context.socket(zmq.SUB)
        self.iopub.subscribe(b"")
        for socket, n in ((self.shell, 1), (self.iopub, 2)):
            socket.rcvhwm = 0
            socket.linger = 0
            socket.reconnect_ivl = 5
            socket.connect(f"ipc://{DIRECTORY}/k-{n}")
        self.session.send(self.shell, "kernel_info_request", {})
        while not self.shell.poll(100):
            if self.process.poll() is not None or time.monotonic() > started + 20:
                self.real_stderr.seek(0)
                raise TimeoutError("no kernel_info_reply: " + self.real_stderr.read().decode(errors="replace"))
        self.session.recv(self.shell, 0)
        self.boot_ms = (time.monotonic() - started) * 1000
        # iopub may have connected later than shell: wait until a message gets through
        while not self.run("None", seconds=1).reply or not self.heard:
            pass

    def close(self):
        self.process.kill()
        self.process.wait()
        self.shell.close()
        self.iopub.close()
        self.real_stderr.close()

    def run(self, code, seconds=30, interrupt_after=None, **metadata):
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": False}
        sent = self.session.send(self.shell, "execute_request", content, metadata=metadata)
        result, idle, now = Result(), False, time.monotonic()
        deadline = now + seconds
        interrupt = now + interrupt_after if interrupt_after else None
        self.heard = False
        poller = zmq.Poller()
        poller.register(self.shell, zmq.POLLIN)
        poller.register(self.iopub, zmq.POLLIN)
        while not (result.reply and idle) and time.monotonic() < deadline:
            if interrupt and time.monotonic() > interrupt:
                interrupt = None
                os.kill(self.process.pid, signal.SIGINT)
            ready = poller.poll(20)
            for socket, _ in ready:
                message = self.session.recv(socket, 0)[1]
                if message["parent_header"].get("msg_id") != sent["header"]["msg_id"]:
                    continue
                if socket is self.shell:
                    result.reply = message["content"]
                else:
                    self.heard = True
                    idle |= self._take(result, message["msg_type"], message["content"])
            if not ready and self.process.poll() is not None:
                result.exit_status = self.process.returncode
                break
        return result

    @staticmethod
    def _take(result, kind, content):
        if kind == "stream":
            setattr(result, content["name"], getattr(result, content["name"]) + content["text"])
            result.stream_times.append(time.monotonic())
        elif kind in ("display_data", "execute_result"):
            result.data.append(content["data"])
        elif kind == "error":
            result.errors.append(content)
        return kind == "status" and content["execution_state"] == "idle"
