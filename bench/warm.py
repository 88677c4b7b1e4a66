"""Warm latency through POST /exec, against floors measured in the same run. Prints a Markdown table.

usage: warm.py [ROUNDS]        exit code 1 when a bound is exceeded
"""

import http.client
import json
import os
import platform
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "integration"))
from harness import ROOT, Service, entity  # noqa: E402

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
PYTHON_BOUND = 2.5  # times the kernel's own round trip
BASH_BOUND_MS = 8.0


def cpu_name():
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def measure(port, doc):
    """Milliseconds of each call on one kept connection."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = json.dumps(doc)
    times = []
    for i in range(ROUNDS + 20):
        begun = time.perf_counter()
        c.request("POST", "/exec", body, {"Content-Type": "application/json"})
        answer = json.loads(c.getresponse().read())
        took = (time.perf_counter() - begun) * 1000
        assert answer["stdout"] == "1\n", answer
        if i >= 20:
            times.append(took)
    c.close()
    return times


def row(name, times, floor=None):
    p50, p95 = statistics.median(times), sorted(times)[int(len(times) * 0.95)]
    ratio = f"{p50 / floor:.2f}" if floor else "1"
    print(f"| {name} | {p50:.2f} | {p95:.2f} | {min(times):.2f} | {ratio} |")
    return p50


def main():
    with open(os.path.join(ROOT, "bench", "kernel_floor.py")) as f:
        floor_code = f.read()
    with Service(MAX_OUTPUT_KB=4096) as s:
        client, name = s.client(), entity()
        client.exec("print(1)", entity_id=name)
        script = f"cat > /tmp/floor.py <<'END'\n{floor_code}\nEND\npython3 /tmp/floor.py {ROUNDS}"
        answer = client.exec(script, lang="bash", entity_id=entity())
        assert answer["code"] == 0, answer
        floor_times = [float(x) for x in answer["stdout"].split()]
        python = measure(s.port, {"lang": "py", "code": "print(1)", "entity_id": name})
        bash = measure(s.port, {"lang": "bash", "code": "echo 1", "entity_id": name})
    print(f"Hardware: {os.cpu_count()} x {cpu_name()}, Linux {platform.release()}; {ROUNDS} rounds each, "
          "one client, one connection, milliseconds.\n")
    print("| what | p50 | p95 | best | p50 / floor |\n| --- | --- | --- | --- | --- |")
    floor = row("the kernel's own round trip, `print(1)`", floor_times)
    got = row("`/exec` Python `print(1)`", python, floor)
    shell = row("`/exec` bash `echo 1`", bash)
    print(f"\nBounds: Python at most {PYTHON_BOUND} times the floor, bash at most {BASH_BOUND_MS} ms.")
    return 0 if got <= PYTHON_BOUND * floor and shell <= BASH_BOUND_MS else 1


sys.exit(main())
