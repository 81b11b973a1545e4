"""What threads and asyncio share: which statements come of a call, and what their answers mean.

Functions whose name begins with steps_ are generators that do no I/O. They yield what is to be done, a number of seconds to sleep or a Request,
and are sent the answer of a Request, or thrown its error.
"""
import re
import time
import uuid
import weakref
from typing import NamedTuple, Optional

from cassandra import InvalidRequest, Unauthorized, Unavailable
from cassandra.cluster import NoHostAvailable
from cassandra.protocol import ErrorMessage, SyntaxException
from cassandra.query import PreparedStatement

RENEW, LOST, TICK = 1 / 3, 1 / 5, 1 / 20  # parts of a lease: when it is renewed, what is left when it is told as lost, between two looks
PACE = 30  # seconds: a longer lease is renewed as often as this one, since others give a lock away some seconds after its proxy has ended
WAIT, ASK, PAUSE, GIVE_UP = 10, 1.5, 0.2, 2  # seconds: of a hold, of a LOCK, between two of them, to leave and to give back


class NotAcquired(Exception):
    """The lock was not acquired: somebody else has it."""


class Lost(Exception):
    """The lock is lost: nothing more succeeds under it."""


class NoProxy(Exception):
    """What answers is no MUSIC proxy: connect to a proxy, not to Cassandra itself."""


class Request(NamedTuple):
    text: str
    values: tuple
    timeout: Optional[float] = None  # None = the session's


class Answer(NamedTuple):
    applied: bool
    ref: Optional[int]
    state: str
    position: int
    holder: Optional[str]
    lease_ms: int
    owner_died: bool


def now():
    return time.monotonic(), time.time()


def elapsed(since):
    """Seconds by the clock that nobody sets, or by the wall clock, which goes on while the machine sleeps."""
    return max(b - a for a, b in zip(since, now()))


def answer(rows):
    """The row of LOCK or UNLOCK, whatever the session makes of rows."""
    rows = list(rows or [])
    cells = list(rows[0].values() if isinstance(rows[0], dict) else rows[0]) if len(rows) == 1 else []
    if len(cells) != len(Answer._fields):
        raise NoProxy(NoProxy.__doc__)
    return Answer(*cells)


def reason(error):
    """What a node has answered, where the driver tells that all of them failed."""
    if isinstance(error, NoHostAvailable) and isinstance(error.errors, dict) and len(error.errors) == 1:
        return next(iter(error.errors.values()))
    return error


def certain(error):
    """An answer that is so, or values that the driver does not send: to ask again would not help, and nothing was done."""
    return isinstance(error, (InvalidRequest, Unauthorized, SyntaxException, ValueError, TypeError)) and "MUSIC_UNAVAILABLE" not in str(error)


def answered(error):
    return isinstance(error, (InvalidRequest, Unauthorized, Unavailable, ErrorMessage))


def ended(error):
    return "MUSIC_LOST" in str(error) or "MUSIC_NOT_HELD" in str(error)


def uncertain(error):
    """Whether an error leaves open if a write under a lock was carried out."""
    error = reason(error)
    if isinstance(error, InvalidRequest):
        return "MUSIC_LOST" in str(error) and "unknown" in str(error)
    return not isinstance(error, (Unavailable, Unauthorized, SyntaxException, Lost, NoProxy, ValueError, TypeError))


_prepared = weakref.WeakKeyDictionary()  # session -> text -> statement


def prepared(session, text):
    """A statement, if it is prepared already."""
    return _prepared.setdefault(session, {}).get(text)


def prepare(session, text):
    """A statement that is prepared once for a session."""
    mine = _prepared.setdefault(session, {})
    if text not in mine:
        mine[text] = session.prepare(text)
    return mine[text]


def ask_error(error):
    """The error of a Request, as steps are thrown it."""
    error = reason(error)
    return NoProxy(NoProxy.__doc__, error) if isinstance(error, SyntaxException) else error


class Key:
    """Of a lock: the part of a statement that names it, and its values."""

    def __init__(self, table, columns):
        if not re.fullmatch(r'("([^"]|"")+"|\w+)\.("([^"]|"")+"|\w+)', table) or not columns:
            raise ValueError(f"{table!r}: write keyspace.table, and a value for each column of its key")
        names = sorted(columns)
        quoted = [n if re.fullmatch("[a-z][a-z0-9_]*", n) else '"' + n.replace('"', '""') + '"' for n in names]
        self.where = table + " WHERE " + " AND ".join(n + " = ?" for n in quoted)
        self.values = tuple(columns[n] for n in names)

    def ask(self, verb, clauses, *values, timeout=None):
        return Request(f"{verb} {self.where}{clauses}", self.values + values, timeout)

    def again(self, ref, wait, timeout=None):
        """The LOCK of a reference that waits, or holds: then it begins the lease anew."""
        return self.ask("LOCK", " USING LOCK ? WAIT ?", ref, int(wait * 1000), timeout=timeout)


def steps_unlock(key, ref):
    """Gives a reference back; its error is a Lost, or the lock is left to the end of its lease."""
    begun = now()
    while True:
        try:
            told = yield key.ask("UNLOCK", " USING LOCK ?", ref, timeout=max(0.01, GIVE_UP - elapsed(begun)))
            if told.applied:
                return
            raise Lost(told.state)
        except Exception as error:
            if ended(error):
                raise Lost(str(error)) from error
            if isinstance(error, Lost) or certain(error) or elapsed(begun) >= GIVE_UP:
                raise
        yield PAUSE


class Asking:
    """One hold on its way."""

    def __init__(self, key, wait, lease, name, nowait):
        self.key, self.wait, self.lease, self.name, self.nowait = key, GIVE_UP if nowait else wait, lease, name, nowait
        self.token, self.ref, self.open = uuid.uuid4(), None, False  # open: the token may have a place that we do not know the reference of

    def lock(self, wait, timeout=None):
        clauses, values = (" NOWAIT", ()) if self.nowait else (" WAIT ?", (int(wait * 1000),))
        for clause, value in ((" LEASE ?", self.lease and int(self.lease * 1000)), (" AS ?", self.name), (" TOKEN ?", self.token)):
            if value:
                clauses, values = clauses + clause, values + (value,)
        return self.key.ask("LOCK", clauses, *values, timeout=timeout)

    def steps_next(self, wait, timeout=None):
        """The LOCK that comes next; it notes what is known of the reference then."""
        if self.ref is not None:
            told = yield self.key.again(self.ref, wait, timeout)
        else:
            self.open = True
            try:
                told = yield self.lock(wait, timeout)
            except Exception as error:
                self.open = not answered(error) and not isinstance(error, NoProxy)
                raise
            self.open = told.state == "QUEUED" and told.ref is None
        self.ref = told.ref if told.ref is not None else self.ref
        if told.state == "LOST":
            self.ref, self.token = None, uuid.uuid4()
        return told

    def steps_hold(self):
        """Asks until the lock is had, and returns from when it counts, and the answer. Else nothing is left behind."""
        start = now()
        try:
            while True:
                begun, error, told = now(), None, None
                try:
                    told = yield from self.steps_next(max(0.001, min(ASK, self.wait - elapsed(start))))
                except NoProxy:
                    raise
                except Exception as failed:
                    if certain(failed):
                        raise
                    error = failed
                late = elapsed(start) >= self.wait
                if told and told.state == "HELD" and elapsed(begun) < told.lease_ms / 1000 * (1 - LOST):
                    return begun, told
                if late and error:
                    raise NotAcquired(NotAcquired.__doc__) from error
                if told and (late or told.state == "BUSY"):
                    raise NotAcquired(f"it is held by {told.holder or 'somebody else'}")
                if elapsed(begun) < PAUSE:
                    yield PAUSE
        except GeneratorExit:
            raise
        except BaseException:
            yield from self.steps_leave()
            raise

    def steps_leave(self):
        """Gives up the place in the queue. Where its reference is not known, that is asked for first."""
        begun = now()
        while self.open and self.ref is None and elapsed(begun) < GIVE_UP:
            try:
                yield from self.steps_next(0, GIVE_UP)
            except Exception as error:
                if certain(error):
                    return
            if self.open:
                yield PAUSE
        left, self.ref = self.ref, None
        try:
            if left is not None:
                yield from steps_unlock(self.key, left)
        except Exception:
            pass  # a place of which the proxy does not hear is passed over


class Lease:
    """Of a lock: what is known of it, and the values of statements under it."""

    def __init__(self, key, begun, told, lost):
        self.key, self.token, self.owner_died = key, told.ref, told.owner_died
        self.released = False  # UNLOCK was answered RELEASED
        self.lost = lost  # an Event: the lock is lost, or may be soon
        self._begun, self._lease = begun, told.lease_ms / 1000
        self._next = self._pace() * RENEW  # from _begun on
        self._renewing = self._done = False

    def _pace(self):
        return min(self._lease, PACE)

    def _left(self):
        return self._lease - elapsed(self._begun)

    def is_lost(self):
        return self.lost.is_set() or self._left() <= 0

    def bind(self, statement, values=()):
        """A prepared statement with its values; USING LOCK ? gets the token."""
        if self.is_lost():
            raise Lost(Lost.__doc__)
        if not isinstance(statement, PreparedStatement):
            raise TypeError("prepare the statement")
        names = [column.name for column in statement.column_metadata]
        if "[lock]" not in names:
            raise ValueError("the statement has no USING LOCK ?")
        if isinstance(values, dict):
            return statement.bind({**values, "[lock]": self.token})
        at = names.index("[lock]")
        return statement.bind([*values[:at], self.token, *values[at:]])

    def _look(self):
        """One tick: tells what is lost, and reports whether a renewal is due."""
        if not self.lost.is_set() and self._left() <= self._lease * LOST:
            self.lost.set()
        due = not self.lost.is_set() and not self._renewing and elapsed(self._begun) >= self._next
        self._renewing = self._renewing or due
        return due

    def steps_renew(self):
        """Begins the lease anew."""
        begun, limit = now(), self._pace() / 4
        try:
            told = yield self.key.again(self.token, min(ASK, limit), timeout=limit)
            if told.state == "HELD":
                self._begun, self._lease = begun, told.lease_ms / 1000
                self._next = self._pace() * RENEW
                return
            if told.state == "LOST" and not self._done:
                self.lost.set()
        except Exception as error:
            if ended(error) and not self._done:
                self.lost.set()
        finally:
            self._renewing = False
        self._next = elapsed(self._begun) + self._pace() * TICK

    def steps_release(self):
        """Gives the lock back, once; a Lost where it was lost before."""
        if self._done:
            return
        self._done = True
        try:
            yield from steps_unlock(self.key, self.token)
            self.released = True
        except Lost:
            raise
        except Exception as error:
            if self.is_lost():
                raise Lost(Lost.__doc__) from error  # else it is left to the end of its lease

    def steps_settle(self, write, landed):
        """Carries out a write, and reports whether it landed; yields what is to be called."""
        try:
            yield write
            return True
        except Exception as error:
            if not uncertain(error):
                raise
            unknown = error
        while not self.is_lost():
            try:
                return (yield landed)
            except Exception as error:
                error = reason(error)
                if "MUSIC_LOST" in str(error):
                    break
                if certain(error):
                    raise
            yield PAUSE
        raise Lost("and whether this was written is unknown") from unknown


def done_before(rows, run):
    row = next(iter(rows or []), None)
    return row is not None and list(row.values() if isinstance(row, dict) else row)[0] == run


READ_RUN = "SELECT value FROM music.named WHERE name = ? USING LOCK ?"
MARK_RUN = "UPDATE music.named USING LOCK ? SET value = ? WHERE name = ?"
