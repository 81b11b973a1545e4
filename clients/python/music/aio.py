"""The same as package music, for asyncio.

    async with aio.hold(session, "bank.accounts", branch="zurich", wait=5) as lock:
        await aio.execute(session, lock.bind(update, (70, "zurich", "x")))
"""
import asyncio
import contextlib
import inspect
import weakref
from concurrent.futures import ThreadPoolExecutor

from . import _core
from ._core import WAIT, Lost, NoProxy, NotAcquired, uncertain

__all__ = ["hold", "try_hold", "once", "execute", "uncertain", "Lock", "Lost", "NoProxy", "NotAcquired"]


def execute(session, statement, *args, **options):
    """An awaitable of what session.execute returns: the first page of the rows."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def told(tell, value):
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(lambda: future.done() or tell(value))

    session.execute_async(statement, *args, **options).add_callbacks(
        lambda rows: told(future.set_result, rows), lambda error: told(future.set_exception, error))
    return future


_threads = weakref.WeakKeyDictionary()  # session -> an executor


async def _prepare(session, text):
    """Not by the threads of the loop: all of them may be busy, also waiting for this lock, and UNLOCK and renewals are not to wait for them."""
    statement = _core.prepared(session, text)
    if statement is not None:
        return statement
    if session not in _threads:
        _threads[session] = ThreadPoolExecutor(4, "music-prepare")
    return await asyncio.get_running_loop().run_in_executor(_threads[session], _core.prepare, session, text)


async def _ask(session, request):
    options = {} if request.timeout is None else {"timeout": request.timeout}
    return _core.answer(await execute(session, await _prepare(session, request.text), request.values, **options))


async def _run(session, steps):
    """Carries out steps to their end, and returns their result."""
    send, value = steps.send, None
    while True:
        try:
            step = send(value)
        except StopIteration as end:
            return end.value
        try:
            if isinstance(step, (int, float)):
                value = await asyncio.sleep(step)
            else:
                value = step() if callable(step) else await _ask(session, step)
                value = await value if inspect.isawaitable(value) else value
            send = steps.send
        except BaseException as error:  # CancelledError, too: the place in the queue is given back
            send, value = steps.throw, _core.ask_error(error) if isinstance(step, _core.Request) else error


class Lock(_core.Lease):
    """A lock that is held: token, owner_died, bind, settle, lost (an asyncio.Event)."""

    def __init__(self, session, key, begun, told):
        super().__init__(key, begun, told, asyncio.Event())
        self._session = session
        self._keeper = asyncio.ensure_future(self._keep())

    async def _keep(self):
        renewal = None
        try:
            while not self.lost.is_set():
                await asyncio.sleep(self._pace() * _core.TICK)
                if self._look():
                    renewal = asyncio.ensure_future(_run(self._session, self.steps_renew()))
        finally:
            if renewal:
                renewal.cancel()

    async def settle(self, write, landed):
        """Awaits write(); where its fate is unknown, landed(), which reads under the lock. Reports whether it landed."""
        return await _run(self._session, self.steps_settle(write, landed))

    async def release(self):
        """Gives the lock back. Raises Lost where it was lost before."""
        self._keeper.cancel()
        await asyncio.shield(asyncio.ensure_future(_run(self._session, self.steps_release())))  # a cancelled task gives it back, too


async def _hold(session, asking):
    """A grant. Who is cancelled leaves nothing behind, also where it is cancelled again and again until it has ended."""
    holding = asyncio.ensure_future(_run(session, asking.steps_hold()))
    try:
        return await asyncio.shield(holding)
    except asyncio.CancelledError:
        if not holding.cancel():  # it has been granted at this moment
            holding = asyncio.ensure_future(_run(session, asking.steps_leave()))
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await asyncio.shield(holding)
        raise


@contextlib.asynccontextmanager
async def _section(session, table, key, wait, lease, as_, nowait):
    asking = _core.Asking(_core.Key(table, key), wait, lease, as_, nowait)
    lock = Lock(session, asking.key, *await _hold(session, asking))
    try:
        yield lock
    except BaseException:
        with contextlib.suppress(Exception):
            await lock.release()
        raise
    await lock.release()


def hold(session, table, key=None, *, wait=WAIT, lease=None, as_=None, **columns):
    """Waits for the lock of a key, at most wait seconds, and is a context manager of it. Columns may be given as key={…}, too."""
    return _section(session, table, {**(key or {}), **columns}, wait, lease, as_, False)


def try_hold(session, table, key=None, *, lease=None, as_=None, **columns):
    """Takes a lock that nobody holds or waits for; else NotAcquired at once."""
    return _section(session, table, {**(key or {}), **columns}, 0, lease, as_, True)


async def once(session, name, run, work):
    """Awaits work(lock) unless this run of name is done or under way. Reports whether it did."""
    async with contextlib.AsyncExitStack() as held:
        try:
            lock = await held.enter_async_context(try_hold(session, "music.named", name=name))
        except NotAcquired as busy:
            if busy.__cause__:
                raise  # no proxy has said that it is under way
            return False
        read, mark = await _prepare(session, _core.READ_RUN), await _prepare(session, _core.MARK_RUN)

        async def marked():
            return _core.done_before(await execute(session, lock.bind(read, (name,))), run)

        if await marked():
            return False
        await work(lock)
        while not await lock.settle(lambda: execute(session, lock.bind(mark, (run, name))), marked):
            pass
        return True
