"""The README's tour, exactly as printed there (but for the port of the test's own service)."""

import os
import re
import subprocess

from harness import ROOT

EXPECTED = {  # what a reader is told to expect, by block
    0: "\n42\n",
    1: '"stderr": "err\\n"',
    2: "cities.csv",
    3: "PNG image data",
    4: '"type":"done"',
    5: '"status": "ok"',
}


def tour():
    with open(os.path.join(ROOT, "README.md")) as f:
        text = f.read().split("## A tour with curl")[1].split("## How it works")[0]
    return re.findall(r"```sh\n(.*?)```", text, re.S)


def test_every_block_of_the_tour_works(shared):
    blocks = tour()
    assert len(blocks) == len(EXPECTED)
    for i, block in enumerate(blocks):
        script = block.replace("127.0.0.1:8000", f"127.0.0.1:{shared.port}")
        r = subprocess.run(["bash", "-eu", "-o", "pipefail", "-c", script], capture_output=True, text=True, timeout=120)
        assert r.returncode == 0, (block, r.stdout, r.stderr)
        assert EXPECTED[i] in "\n" + r.stdout, (block, r.stdout)
        assert "http://" not in r.stderr, r.stderr
