"""Prints what is in this image as JSON: the runtimes and the libraries a program can use. Runs at build time."""

import glob
import importlib.metadata
import json
import platform
import re
import subprocess

# Packages worth telling somebody who writes a program; their libraries and data files are not.
NOTABLE = """bash bc bzip2 coreutils curl esbuild ffmpeg file fonts-dejavu-core fonts-liberation fonts-wqy-microhei g++
gawk gcc git golang-go jq libopenblas0-pthread make nodejs patch poppler-utils procps sqlite3 tree unzip xxd xz-utils zip
zstd""".split()

VERSION_COMMANDS = {
    "bash": ["bash", "-c", "echo ${BASH_VERSION%%(*}"],
    "node": ["node", "--version"],
    "typescript": ["esbuild", "--version"],
    "go": ["go", "env", "GOVERSION"],
    "c": ["gcc", "-dumpfullversion"],
    "cpp": ["g++", "-dumpfullversion"],
}


def output(command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def runtimes():
    versions = {"python": platform.python_version()}
    for name, command in VERSION_COMMANDS.items():
        versions[name] = re.sub(r"^(v|go)(?=\d)", "", output(command))
    return {name: {"version": version} for name, version in versions.items()}


def python_libraries():
    found = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions()}
    return [{"name": n, "version": found[n]} for n in sorted(found, key=str.lower) if n]


def node_libraries():
    found = {}
    for path in glob.glob("/usr/share/nodejs/*/package.json") + glob.glob("/usr/share/nodejs/@*/*/package.json"):
        with open(path, encoding="utf-8") as f:
            package = json.load(f)
        found[package.get("name", "")] = package.get("version", "")
    return [{"name": n, "version": found[n]} for n in sorted(found) if n]


def system_packages():
    lines = output(["dpkg-query", "-W", "-f", "${Package} ${Version}\n"]).splitlines()
    versions = dict(line.split(" ", 1) for line in lines)
    return [{"name": n, "version": versions[n]} for n in NOTABLE if n in versions]


print(
    json.dumps(
        {
            "runtimes": runtimes(),
            "libraries": {"python": python_libraries(), "node": node_libraries(), "system": system_packages()},
        },
        indent=1,
    )
)
