"""Standard input of one cell: the text passed with the execution, or nothing."""

import builtins
import contextlib
import getpass
import os
import sys


def _input(prompt="", /):
    __tracebackhide__ = True
    if prompt != "":
        sys.stdout.write(str(prompt))
        sys.stdout.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError("input() has no data to read: pass the text as stdin of the call")
    return line.rstrip("\n")


def _getpass(prompt="Password: ", stream=None):
    return _input(prompt)


def _open(text):
    if not text:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    fd = os.memfd_create("stdin", os.MFD_CLOEXEC)
    data = memoryview(text.encode("utf-8", "surrogatepass"))
    while data:
        data = data[os.write(fd, data) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def set_text(text):
    """Gives fd 0 (child processes) and sys.stdin (this one) the text; a stream left closed by user code is no problem."""
    fd = _open(text)
    os.dup2(fd, 0)
    os.close(fd)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)


@contextlib.contextmanager
def for_cell(text):
    set_text(text)
    builtins.input, getpass.getpass = _input, _getpass
    try:
        yield
    finally:
        if text:
            set_text(None)
