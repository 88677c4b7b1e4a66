"""asyncio in cells.

The kernel itself runs in an event loop, so that "await" works at the top of a cell. asyncio.run() and
loop.run_until_complete() refuse to work inside a running loop. Here they work: another loop is run in place (in the
same thread, so that an interrupt reaches it), the kernel's own loop is pumped until the future is done.
"""

import asyncio
import contextlib
import functools
from asyncio import events, runners, tasks


@contextlib.contextmanager
def _suspended(loop):
    """For the time of the block no loop runs in this thread, as far as asyncio knows."""
    task = tasks.current_task(loop)
    if task is not None:
        tasks._leave_task(loop, task)
    events._set_running_loop(None)
    try:
        yield
    finally:
        events._set_running_loop(loop)
        events.set_event_loop(loop)
        if task is not None:
            tasks._enter_task(loop, task)


def _pump(loop, future):
    """Runs the loop that is running already until the future is done; other tasks go on meanwhile."""
    __tracebackhide__ = True
    future = asyncio.ensure_future(future, loop=loop)
    # The round of the loop which called us still expects to find this many handles.
    expected = len(loop._ready)
    task = tasks.current_task(loop)
    if task is not None:
        tasks._leave_task(loop, task)
    try:
        while not future.done():
            loop._run_once()
    except BaseException:
        if not future.done():
            future.cancel()
        raise
    finally:
        while len(loop._ready) < expected:
            loop.call_soon(int)
        if task is not None:
            tasks._enter_task(loop, task)
    return future.result()


def _nestable(function):
    """For functions that start a loop of their own: asyncio.run, Runner.run."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        __tracebackhide__ = True
        running = events._get_running_loop()
        if running is None:
            return function(*args, **kwargs)
        with _suspended(running):
            return function(*args, **kwargs)

    return wrapper


def install():
    loop_class = asyncio.BaseEventLoop
    run_forever, run_until_complete = loop_class.run_forever, loop_class.run_until_complete

    @functools.wraps(run_forever)
    def forever(self):
        __tracebackhide__ = True
        running = events._get_running_loop()
        if running is None or running is self:
            return run_forever(self)
        with _suspended(running):
            return run_forever(self)

    @functools.wraps(run_until_complete)
    def until_complete(self, future):
        __tracebackhide__ = True
        running = events._get_running_loop()
        if running is self:
            return _pump(self, future)
        if running is None:
            return run_until_complete(self, future)
        with _suspended(running):
            return run_until_complete(self, future)

    loop_class.run_forever = forever
    loop_class.run_until_complete = until_complete
    runners.Runner.run = _nestable(runners.Runner.run)
    runners.run = asyncio.run = _nestable(runners.run)
