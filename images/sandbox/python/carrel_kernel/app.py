"""The kernel and the application around it."""

import asyncio
import contextlib
import io
import os
import shutil
import signal
import sys
import traceback
import warnings
from pathlib import Path

import zmq
from ipykernel.iostream import IOPubThread
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from traitlets import Type
from traitlets.config import Config

from carrel_kernel import afterimport, loops, stdin
from carrel_kernel.shell import Compiler, Printable, Shell

PROGRAM_NAME = "main.py"  # sys.argv[0] of a cell
FONT_CACHE = Path("/usr/share/carrel/matplotlib")


class Kernel(IPythonKernel):
    shell_class = Type(Shell)
    _execute_sleep = 0.0
    warmed_up = False

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.shell.compile = Compiler()
        self.shell.compiler_class = Compiler

    async def do_execute(self, code, silent, store_history=True, user_expressions=None, allow_stdin=False,
                         *, cell_meta=None, cell_id=None):  # fmt: skip
        """cell_meta is the request's metadata: {"argv": [..], "stdin": text}."""
        self._warm_up()
        meta = cell_meta if isinstance(cell_meta, dict) else {}
        argv = meta.get("argv") or []
        text = meta.get("stdin")
        sys.argv = [PROGRAM_NAME, *(str(a) for a in argv)]
        shell = self.shell
        shell.exited, shell.interrupted, shell._last_traceback = None, False, None
        shell.last_execution_result = None
        with stdin.for_cell(text if isinstance(text, str) else None):
            try:
                reply = await super().do_execute(code, silent, store_history, user_expressions, False)
            except Exception as e:  # an exception that cannot be turned into text, for one
                reply = self._failure(e)
        if shell.exited is not None:
            reply.update(status="error", ename="SystemExit", evalue=str(shell.exited), traceback=[])
        for stream in (sys.stdout, sys.stderr):
            settle = getattr(stream, "settle", None)
            if settle:
                settle()
        return reply

    def _failure(self, surprise):
        last = self.shell.last_execution_result
        error = (last and (last.error_in_exec or last.error_before_exec)) or surprise
        if self.shell._last_traceback is None:
            text = traceback.format_exception_only(type(error), error)
            self.shell._showtraceback(type(error), error, "".join(text).splitlines())
        return {
            "status": "error",
            "ename": type(error).__name__,
            "evalue": str(Printable(error)),
            "traceback": self.shell._last_traceback or [],
            "execution_count": self.shell.execution_count - 1,
            "user_expressions": {},
            "payload": [],
        }

    def _forward_input(self, allow_stdin=False):
        """input() is stdin.py's."""

    def _restore_input(self):
        pass

    @contextlib.contextmanager
    def _cancel_on_sigint(self, future):
        """An interrupt of a cell with "await": raised where code is running, a cancellation where the cell waits."""
        loop = asyncio.get_running_loop()

        def interrupt(*_args):
            __tracebackhide__ = True
            self.shell.interrupted = True
            if asyncio.current_task(loop) is not None:
                raise KeyboardInterrupt
            loop.call_soon_threadsafe(future.cancel)

        before = signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    async def kernel_info_request(self, stream, ident, parent):
        await super().kernel_info_request(stream, ident, parent)
        self.io_loop.call_later(0.005, self._warm_up)

    def _warm_up(self):
        """Imports now what the first cell and the first traceback need, while nobody waits."""
        if self.warmed_up:
            return
        self.warmed_up = True
        quiet = io.StringIO()
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            shell = self.shell
            try:
                compile("x = 1\n", "<warm>", "exec")
                shell.transform_cell("%lsmagic\nx = 1\n!ls")
                shell.display_formatter.format(1)
                exec(compile("1 / 0", "<warm>", "exec"), {})
            except ZeroDivisionError:
                shell.InteractiveTB.structured_traceback(*sys.exc_info())
        # From now on the user's own modules come first, as for any Python program.
        sys.path.insert(0, "")


class App(IPKernelApp):
    kernel_class = Type(Kernel)
    name = "carrel-kernel"

    def _settings(self):
        c = Config()
        c.Session.packer = "carrel_kernel.wire.pack"
        c.InteractiveShell.colors = "NoColor"
        c.InteractiveShell.automagic = False
        c.HistoryManager.enabled = False
        c.Completer.use_jedi = False
        c.InteractiveShellApp.ignore_cwd = True  # _warm_up adds it
        c.IPKernelApp.outstream_class = "carrel_kernel.streams.Stream"
        c.Application.log_level = 50
        return c

    def load_config_file(self, *args, **kwargs):
        """No configuration files: what is in HOME belongs to the user."""

    def initialize(self, argv=None):
        self.update_config(self._settings())
        if "-f" in argv:
            directory = Path(argv[argv.index("-f") + 1]).resolve().parent / "ipython"
            directory.mkdir(exist_ok=True)
            self.ipython_dir = str(directory)
        os.environ.setdefault("MPLBACKEND", "module://carrel_mpl")  # of programs started from cells
        afterimport.install()
        loops.install()
        stdin.set_text(None)
        super().initialize(argv)
        os.register_at_fork(after_in_child=self.kernel.shell.after_fork_in_child)
        warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork.*")
        self._seed_font_cache()

    def init_crash_handler(self):
        pass

    def write_connection_file(self):
        """The runner wrote it."""

    def init_gui_pylab(self):
        """afterimport chooses the backend."""

    def init_iopub(self, context):
        """As ipykernel's, but without limit on waiting messages (the default drops the end of a burst, the "idle" of the
        cell with it), and without the TCP port through which forked children would send."""
        socket = context.socket(zmq.PUB)
        socket.linger = 1000
        socket.sndhwm = 0
        self.iopub_port = self._bind_socket(socket, self.iopub_port)
        self.configure_tornado_logger()
        self.iopub_thread = IOPubThread(socket, pipe=False)
        self.iopub_thread.start()
        self.iopub_socket = self.iopub_thread.background_socket

    def _seed_font_cache(self):
        """The list of fonts that matplotlib would otherwise make at its first import, for about a second."""
        cache = Path.home() / ".cache" / "matplotlib"
        for source in FONT_CACHE.glob("fontlist-*.json"):
            target = cache / source.name
            try:
                if not target.exists():
                    cache.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(source, target)
            except OSError:
                pass

    def start(self):
        """Runs until the kernel is killed. SystemExit and KeyboardInterrupt raised in a task leave the loop: go back."""
        self.kernel.start()
        self.io_loop = self.kernel.io_loop
        while True:
            try:
                self.io_loop.start()
                return
            except (KeyboardInterrupt, SystemExit):
                pass
            finally:
                if self.kernel.shell.in_child():
                    os._exit(1)
