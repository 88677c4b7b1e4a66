"""sys.stdout and sys.stderr of the kernel.

Differences to ipykernel's stream:
* What C code and child processes write to the file descriptors is decoded across reads, and is in order with what
  Python prints before and after.
* A printed line leaves the process at once (as long as lines come slowly enough): output must not be lost because the
  next statement holds the interpreter lock for a minute or kills the process.
* A forked child writes to the file descriptor and never touches the sockets.
* It has buffer, fileno() and reconfigure(), as programs expect of sys.stdout.
"""

import codecs
import fcntl
import io
import os
import select
import termios
import threading
import time

from ipykernel.iostream import OutStream

READ_SIZE = 1 << 16
SLICE_CHARS = 1 << 18  # largest text of one message
BACKLOG_CHARS = 1 << 20  # unsent text after which a printing program waits

# Lines sent at once: a budget that refills, because each costs about 0.1 ms.
LINES_BURST = 25
LINES_PER_SECOND = 50


_MAIN_THREAD = threading.main_thread().ident
_ZERO = bytes(4)  # a C int


class _Bytes(io.RawIOBase):
    """sys.stdout.buffer: goes to the file descriptor, where the stream picks it up in order."""

    def __init__(self, fd):
        self._fd = fd

    def writable(self):
        return True

    def fileno(self):
        return self._fd

    def write(self, data):
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            done += os.write(self._fd, view[done : done + READ_SIZE])
        return done


class Stream(OutStream):
    flush_interval = 0.05
    errors = "backslashreplace"

    def __init__(self, *args, **kwargs):
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pipe_lock = threading.RLock()
        self._send_lock = threading.RLock()
        self._backlog = 0
        self._timer_set = False
        self._lines = LINES_BURST
        self._lines_at = time.monotonic()
        self._child_text = ""
        self._bytes = None
        self._parent = self._key = None
        super().__init__(*args, **kwargs)

    # ---- the file descriptor ----

    def fileno(self):
        return self._original_stdstream_fd

    @property
    def buffer(self):
        if self._bytes is None:
            self._bytes = _Bytes(self.fileno())
        return self._bytes

    def reconfigure(self, **_kwargs):
        """Accepted: the encoding is always UTF-8."""

    def _waiting(self):
        return fcntl.ioctl(self._fid, termios.FIONREAD, _ZERO) != _ZERO

    def _take_pipe(self):
        """Moves what is in the pipe to the buffer."""
        with self._pipe_lock:
            while self._waiting():
                self._append(self._decoder.decode(os.read(self._fid, READ_SIZE)))

    def _watch_pipe_fd(self):
        poll = select.poll()
        poll.register(self._fid, select.POLLIN)
        while self._should_watch:
            try:
                poll.poll()
                self._take_pipe()
            except OSError:
                return
            except Exception:  # a text nobody could take must not end the reading: writers would wait for ever
                continue

    def settle(self):
        """End of a cell: everything written so far is on its way when this returns."""
        if not self._is_master_process():
            return
        self._take_pipe()
        with self._pipe_lock:
            rest = self._decoder.decode(b"", final=True)
        if rest:
            self._append(rest)
        self._send()

    # ---- text ----

    def _append(self, text):
        if not text:
            return
        parent = self.parent_header
        if parent is not self._parent:
            self._parent, self._key = parent, frozenset(parent.items())
        with self._buffer_lock:
            self._buffers[self._key].write(text)
        self._backlog += len(text)
        if self._backlog > BACKLOG_CHARS:
            self._hand_over()  # not flush(): that takes from the pipe, which may be what we are doing
        elif not self._timer_set:
            self._schedule_flush()

    def _line_budget(self):
        now = time.monotonic()
        self._lines = min(LINES_BURST, self._lines + (now - self._lines_at) * LINES_PER_SECOND)
        self._lines_at = now
        if self._lines < 1:
            return False
        self._lines -= 1
        return True

    def write(self, string):
        if not isinstance(string, str):
            raise TypeError(f"write() argument must be str, not {type(string).__name__}")
        if not self._is_master_process():
            return self._write_in_child(string)
        if self._waiting():
            self._take_pipe()
        self._append(string)
        if string.endswith("\n") and threading.get_ident() == _MAIN_THREAD and self._line_budget():
            self.flush()
        return len(string)

    def _send(self):
        """Hands the buffer over, in this thread: messages sent after it stay behind it."""
        with self._send_lock:
            self._backlog = 0
            super()._flush()

    def _schedule_flush(self):
        self._timer_set = True
        self.pub_thread.schedule(lambda: self._io_loop.call_later(self.flush_interval, self._flush))

    def _flush(self):
        """The timer, in the thread of the socket."""
        self._timer_set = False
        if self._is_master_process():
            self._send()

    def flush(self):
        """Waits until the text is with libzmq, which sends it without the interpreter lock."""
        if not self._is_master_process():
            self._write_in_child("", everything=True)
            return
        if self.pub_thread is None or not (self._buffers or self._waiting()):
            return
        self._take_pipe()
        self._hand_over()

    def close(self):
        """A cell that closes its output closes it for itself at most: the next one prints again."""
        self.flush()

    def _hand_over(self):
        self._send()
        thread = self.pub_thread.thread
        if thread.is_alive() and thread is not threading.current_thread():
            sent = threading.Event()
            self.pub_thread.schedule(sent.set)
            sent.wait(self.flush_timeout)

    def _flush_buffers(self):
        for parent, text in super()._flush_buffers():
            for at in range(0, len(text), SLICE_CHARS):
                yield parent, text[at : at + SLICE_CHARS]

    def _write_in_child(self, string, everything=False):
        self._child_text += string
        end = len(self._child_text) if everything else self._child_text.rfind("\n") + 1
        if end:
            ready, self._child_text = self._child_text[:end], self._child_text[end:]
            self.buffer.write(ready.encode("utf-8", "backslashreplace"))
        return len(string)

    def forget_in_child(self):
        """After a fork: what the parent had not sent is the parent's to send, and its locks mean nothing here."""
        self._child_text = ""
        self._bytes = None
