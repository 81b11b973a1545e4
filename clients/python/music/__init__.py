"""Locks of MUSIC proxies over cassandra-driver, for threads; music.aio is the same for asyncio. docs/clients.md has the rules.

    with music.hold(session, "bank.accounts", branch="zurich", wait=5, lease=30) as lock:
        session.execute(lock.bind(update, (70, "zurich", "x")))      # UPDATE bank.accounts USING LOCK ? SET …
"""
import contextlib
import threading
import time

from . import _core
from ._core import WAIT, Lost, NoProxy, NotAcquired, uncertain

__all__ = ["hold", "try_hold", "once", "uncertain", "Lock", "Lost", "NoProxy", "NotAcquired"]


def _ask(session, request):
    options = {} if request.timeout is None else {"timeout": request.timeout}
    return _core.answer(session.execute(_core.prepare(session, request.text), request.values, **options))


def _run(session, steps):
    """Carries out steps to their end, and returns their result."""
    send, value = steps.send, None
    while True:
        try:
            step = send(value)
        except StopIteration as end:
            return end.value
        try:
            if isinstance(step, (int, float)):
                value = time.sleep(step)
            else:
                value = step() if callable(step) else _ask(session, step)
            send = steps.send
        except BaseException as error:  # KeyboardInterrupt, too: the place in the queue is given back
            send, value = steps.throw, _core.ask_error(error) if isinstance(step, _core.Request) else error


class Lock(_core.Lease):
    """A lock that is held: token, owner_died, bind, settle, lost (a threading.Event). It may be used by several threads."""

    def __init__(self, session, key, begun, told):
        super().__init__(key, begun, told, threading.Event())
        self._session, self._stop = session, threading.Event()
        threading.Thread(target=self._keep, name="music-lock", daemon=True).start()

    def _keep(self):
        while not self._stop.wait(self._pace() * _core.TICK) and not self.lost.is_set():
            if self._look():
                threading.Thread(target=_run, args=(self._session, self.steps_renew()), name="music-renew", daemon=True).start()

    def settle(self, write, landed):
        """Calls write; where its fate is unknown, landed, which reads under the lock. Reports whether it landed."""
        return _run(self._session, self.steps_settle(write, landed))

    def release(self):
        """Gives the lock back. Raises Lost where it was lost before."""
        self._stop.set()
        _run(self._session, self.steps_release())


@contextlib.contextmanager
def _section(session, table, key, wait, lease, as_, nowait):
    asking = _core.Asking(_core.Key(table, key), wait, lease, as_, nowait)
    lock = Lock(session, asking.key, *_run(session, asking.steps_hold()))
    try:
        yield lock
    except BaseException:
        with contextlib.suppress(Exception):
            lock.release()
        raise
    lock.release()


def hold(session, table, key=None, *, wait=WAIT, lease=None, as_=None, **columns):
    """Waits for the lock of a key, at most wait seconds, and is a context manager of it. Columns may be given as key={…}, too."""
    return _section(session, table, {**(key or {}), **columns}, wait, lease, as_, False)


def try_hold(session, table, key=None, *, lease=None, as_=None, **columns):
    """Takes a lock that nobody holds or waits for; else NotAcquired at once."""
    return _section(session, table, {**(key or {}), **columns}, 0, lease, as_, True)


def once(session, name, run, work):
    """Calls work(lock) unless this run of name is done or under way. Reports whether it did."""
    with contextlib.ExitStack() as held:
        try:
            lock = held.enter_context(try_hold(session, "music.named", name=name))
        except NotAcquired as busy:
            if busy.__cause__:
                raise  # no proxy has said that it is under way
            return False
        read, mark = _core.prepare(session, _core.READ_RUN), _core.prepare(session, _core.MARK_RUN)

        def marked():
            return _core.done_before(session.execute(lock.bind(read, (name,))), run)

        if marked():
            return False
        work(lock)
        while not lock.settle(lambda: session.execute(lock.bind(mark, (run, name))), marked):
            pass
        return True
