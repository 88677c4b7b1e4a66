"""The interactive shell: how cells run, end and fail."""

import asyncio
import os
import selectors
import subprocess
import sys
import traceback

from ipykernel.zmqshell import ZMQInteractiveShell
from IPython.core.autocall import IPyAutocall
from IPython.core.compilerop import CachingCompiler
from traitlets import Instance, default

from carrel_kernel.hints import install_hint


OWN_CODE = os.path.dirname(__file__) + os.sep


class Exit(IPyAutocall):
    """exit and quit: they end the cell, not the kernel."""

    rewrite = False

    def __call__(self, code=None):
        raise SystemExit(code)

    def __repr__(self):
        return "exit() ends this cell; variables stay"


class Compiler(CachingCompiler):
    """Names the code of a cell. (ipykernel's compiler hashes each cell in pure Python: seconds for a large one.)"""

    def get_code_name(self, raw_code, transformed_code, number):
        name = f"<cell {number}>"
        again = 1
        while name in self._filename_map:  # cells outside the history do not count up
            again += 1
            name = f"<cell {number}-{again}>"
        return name


def exit_code(error):
    """What the process would have returned; a message goes to standard error, as in a program."""
    code = error.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def cut_own_end(tb):
    """Ends the traceback at the user's line where the error comes from input() or the like, which is our code."""
    last = None
    while tb is not None:
        if not tb.tb_frame.f_code.co_filename.startswith(OWN_CODE):
            last = tb
        tb = tb.tb_next
    if last is not None:
        last.tb_next = None


def _has_group(error):
    seen = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, BaseExceptionGroup):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


class Shell(ZMQInteractiveShell):
    exiter = Instance(Exit)
    exited = None  # exit code of the cell that ended by SystemExit
    interrupted = False
    awaiting = False  # a statement with "await" is running
    home_pid = os.getpid()

    @default("exiter")
    def _default_exiter(self):
        return Exit()

    def init_environment(self):
        """No colours: output goes to files and language models, not to terminals."""
        os.environ.update(PAGER="cat", GIT_PAGER="cat", TERM="dumb", NO_COLOR="1")

    def init_builtins(self):
        super().init_builtins()
        # IPython hides exit and quit from code of imported modules; programs call them there too.
        import builtins

        for name in ("exit", "quit"):
            self.builtin_trap.auto_builtins.pop(name, None)
            setattr(builtins, name, self.exiter)

    def ask_exit(self):
        """The kernel outlives every cell."""

    # ---- running ----

    async def run_code(self, code_obj, result=None, *, async_=False):
        """Runs one statement of a cell; True: it failed, and the rest of the cell is not run."""
        __tracebackhide__ = "__ipython_bottom__"
        before, sys.excepthook = sys.excepthook, self.excepthook
        self.sys_excepthook = before
        try:
            try:
                if async_:
                    await self._interruptible(eval(code_obj, self.user_global_ns, self.user_ns))
                else:
                    exec(code_obj, self.user_global_ns, self.user_ns)
                return False
            finally:
                sys.excepthook = before
        except SystemExit as e:
            self.exited = exit_code(e)
            self._note(result, e)
        except self.custom_exceptions as e:
            self._note(result, e)
            self.CustomTB(*sys.exc_info())
        except BaseException as e:
            self._note(result, e)
            cut_own_end(e.__traceback__)
            self.showtraceback(running_compiled_code=True)
        return True

    def _note(self, result, error):
        if result is not None:
            result.error_in_exec = error

    async def _interruptible(self, awaitable):
        """An interrupt reaches a waiting cell as a cancellation; say what it was."""
        __tracebackhide__ = True
        self.awaiting = True
        if self.in_child():
            asyncio._set_running_loop(self.kernel.io_loop.asyncio_loop)
        try:
            return await awaitable
        except asyncio.CancelledError as e:
            if not self.interrupted:
                raise
            raise KeyboardInterrupt().with_traceback(e.__traceback__) from None
        finally:
            self.awaiting = False

    async def run_ast_nodes(self, *args, **kwargs):
        failed = await super().run_ast_nodes(*args, **kwargs)
        if self.in_child():
            self._end_child(self.exited if self.exited is not None else int(bool(failed)))
        return failed

    def system(self, cmd):
        """!command: both streams as they are, no terminal in between; "&" leaves it running in the background."""
        self.user_ns["_exit_code"] = code = self._run_command(self.var_expand(cmd, depth=1))
        if code > 255:
            self.user_ns["_exit_code"] = 128 + code - 256

    system_piped = system_raw = system

    def _run_command(self, cmd):
        sys.stdout.flush()
        sys.stderr.flush()
        with subprocess.Popen(["/bin/bash", "-c", cmd]) as process:
            try:
                return process.wait()
            except BaseException:
                process.kill()
                raise

    # ---- failing ----

    def showtraceback(self, exc_tuple=None, *args, **kwargs):
        error = (exc_tuple or sys.exc_info())[1]
        if error is None or not _has_group(error) or hasattr(error, "_render_traceback_"):
            super().showtraceback(exc_tuple, *args, **kwargs)
            return
        # IPython prints exception groups to stderr and reports no error for them.
        tb = error.__traceback__
        while tb is not None and not self._is_cell(tb):
            tb = tb.tb_next
        lines = traceback.format_exception(type(error), error, tb or error.__traceback__)
        self._showtraceback(type(error), error, "".join(lines).splitlines())

    def _is_cell(self, tb):
        return tb.tb_frame.f_code.co_filename in self.compile._filename_map

    def _showtraceback(self, etype, evalue, stb):
        if issubclass(etype, SystemExit):
            return
        stb = list(stb)
        if issubclass(etype, ModuleNotFoundError):
            hint = install_hint(getattr(evalue, "name", None))
            if hint:
                stb.append(hint)
        if self.in_child():
            print("\n".join(stb), file=sys.stderr)
            self._end_child(1)
        super()._showtraceback(etype, Printable(evalue), stb)

    # ---- forks ----

    def in_child(self):
        return os.getpid() != self.home_pid

    def after_fork_in_child(self):
        """A child made by os.fork() in a cell may finish the cell, but is no kernel: the file descriptors of the
        event loop and of the sockets belong to the parent, an epoll object is even shared with it."""
        for stream in (sys.stdout, sys.stderr):
            forget = getattr(stream, "forget_in_child", None)
            if forget:
                forget()
        loop = self.kernel.io_loop.asyncio_loop
        loop._selector = selectors.SelectSelector()
        for handle in (*loop._ready, *loop._scheduled):
            handle.cancel()
        if self.awaiting:
            asyncio._set_running_loop(loop)  # asyncio forgets it when the process id changes
        self.displayhook.session = self.displayhook.msg = None
        self.display_pub.publish = lambda *args, **kwargs: None

    def _end_child(self, code):
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                pass
        os._exit(code)


class Printable:
    """The text of an exception whose own __str__ may fail."""

    def __init__(self, error):
        self._error = error

    def __str__(self):
        try:
            return str(self._error)
        except BaseException:
            return f"<{type(self._error).__name__} without a printable text>"
