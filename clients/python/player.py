"""Does what it is told on its standard input, a line each, with the locks of package music: see integration/clients. With the argument asyncio it is
the player of music.aio."""
import asyncio
import os
import queue
import re
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from cassandra.cluster import Cluster
from cassandra.policies import ConstantReconnectionPolicy
from cassandra.query import BatchStatement, BatchType

import music
from music import _core, aio

UPDATE = "UPDATE {} USING LOCK ? SET balance = ? WHERE branch = ? AND id = ?"
READ = "SELECT balance FROM {} WHERE branch = ? AND id = ? USING LOCK ?"
PLAIN = "UPDATE {} SET balance = ? WHERE branch = ? AND id = ?"
THREADS = 100  # of asyncio's loop


class Failed(Exception):
    pass


def connect(address):
    host, port = address.split(":")
    cluster = Cluster([host], port=int(port), protocol_version=4, schema_metadata_enabled=False, token_metadata_enabled=False,
                      reconnection_policy=ConstantReconnectionPolicy(0.05, None), connect_timeout=10, idle_heartbeat_interval=0)
    session = cluster.connect()
    session.default_timeout = 2
    return session


def outcome(error):
    error, text = _core.reason(error), str(error)
    if isinstance(error, Failed):
        return "failed"
    if isinstance(error, music.NoProxy):
        return "no proxy"
    if isinstance(error, (asyncio.CancelledError, KeyboardInterrupt)):
        return "cancelled"
    if isinstance(error, music.Lost) or "MUSIC_LOST" in text:
        return "lost"
    if isinstance(error, music.NotAcquired):
        return "not acquired"
    if "USING LOCK ?" in text:
        return "no marker"
    word = re.search("MUSIC_[A-Z_]+|UNAVAILABLE|UNAUTHORIZED", text)
    return "error " + word[0] if word else "error"


def asked(table, args):
    ask = {"table": table, "branch": "zurich"}
    for arg in args:
        name, value = arg.split("=")
        ask[{"as": "as_"}.get(name, name)] = int(value) / 1000 if name in ("wait", "lease") else value
    return ask


def died(lock):
    return " after a death" if lock.owner_died else ""


def bound(story, lock, verb, value):
    """The statement of a verb, bound under a lock."""
    def statement(text):
        return _core.prepare(story.session, text.format(story.table))

    if verb == "read":
        return lock.bind(statement(READ), ("zurich", "x"))
    if verb == "batch":
        batch, update = BatchStatement(BatchType.UNLOGGED), statement(UPDATE)
        batch.add(lock.bind(update, (value, "zurich", "x")))
        batch.add(lock.bind(update, (value + 1, "zurich", "y")))
        return batch
    return lock.bind(statement(PLAIN if "plain" in verb else UPDATE), (value, "zurich", "x"))


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


first = queue.Queue()  # the actor that the main thread is: it alone can be interrupted


class Actor:
    """Does one thing after another, in a thread of its own."""

    def __init__(self, story, name):
        self.story, self.name, self.lock, self.does = story, name, None, queue.Queue()
        if len(stories) == 1 and not story.actors:
            first.put(self)
        else:
            threading.Thread(target=self.act, daemon=True).start()

    def cancel(self):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    def say(self, what):
        say(self.story.id, self.name, what)

    def act(self):
        while True:
            verb, *args = self.does.get()
            try:
                if verb == "open":
                    self.story.session, self.story.table = connect(args[0]), args[1]
                    self.say("open")
                elif verb in ("hold", "try"):
                    self.section(verb, args)
                elif verb == "once":
                    ran = music.once(self.story.session, *args[:2], lambda lock: self.works(args[2:]))
                    self.say("ran" if ran else "not run")
                else:
                    self.say(self.under(self.lock, verb, *args))
            except (Exception, KeyboardInterrupt) as error:
                self.say(outcome(error))

    def works(self, tries):
        self.say("works")
        if tries:
            with music.try_hold(self.story.session, self.story.table, branch="zurich"):
                pass

    def section(self, verb, args):
        hold = music.hold if verb == "hold" else music.try_hold
        lock = None
        try:
            with hold(self.story.session, **asked(self.story.table, args)) as lock:
                self.lock = lock
                self.say(f"held {lock.token}{died(lock)}")
                while True:
                    verb, *args = self.does.get()
                    if verb == "release":
                        break
                    if verb == "fail":
                        raise Failed()
                    try:
                        self.say(self.under(lock, verb, *args))
                    except Exception as error:
                        self.say(outcome(error))
        except Failed as failed:
            self.say(outcome(failed))
        if lock:
            self.say("released" if lock.released else "left")

    def under(self, lock, verb, *args):
        session = self.story.session
        if verb == "lost":
            lock.lost.wait()
            return "lost"
        if verb == "check":
            return "lost" if lock.is_lost() else "not lost"
        lock = self.story.actors[args[1]].lock if len(args) > 1 else lock
        value = int(args[0])

        def read():
            return session.execute(bound(self.story, lock, "read", 0)).one().balance

        if verb in ("settle", "settle-plain"):
            landed = lock.settle(lambda: session.execute(bound(self.story, lock, verb, value)), lambda: read() == value)
            return "landed" if landed else "not landed"
        if verb == "read":
            return f"reads {read()}"
        session.execute(bound(self.story, lock, verb, value))
        return "written"


class AsyncActor:
    """Does one thing after another, as a task."""

    def __init__(self, story, name):
        self.story, self.name, self.lock, self.does, self.task = story, name, None, asyncio.Queue(), None
        self.life = asyncio.ensure_future(self.act())

    def cancel(self):
        self.task.cancel()

    def say(self, what):
        say(self.story.id, self.name, what)

    async def works(self, tries):
        self.say("works")
        if tries:
            async with aio.try_hold(self.story.session, self.story.table, branch="zurich"):
                pass

    async def act(self):
        while True:
            verb, *args = await self.does.get()
            try:
                if verb == "open":
                    self.story.table = args[1]
                    self.story.session = await asyncio.get_running_loop().run_in_executor(None, connect, args[0])
                    self.say("open")
                elif verb in ("hold", "try"):
                    self.task = asyncio.ensure_future(self.section(verb, args))
                    await asyncio.wait([self.task])
                    self.task.result()
                elif verb == "once":
                    self.say("ran" if await aio.once(self.story.session, *args[:2], lambda lock: self.works(args[2:])) else "not run")
                else:
                    self.say(await self.under(self.lock, verb, *args))
            except (Exception, asyncio.CancelledError) as error:
                self.say(outcome(error))

    async def section(self, verb, args):
        hold = aio.hold if verb == "hold" else aio.try_hold
        lock = None
        try:
            async with hold(self.story.session, **asked(self.story.table, args)) as lock:
                self.lock = lock
                self.say(f"held {lock.token}{died(lock)}")
                while True:
                    verb, *args = await self.does.get()
                    if verb == "release":
                        break
                    if verb == "fail":
                        raise Failed()
                    try:
                        self.say(await self.under(lock, verb, *args))
                    except Exception as error:
                        self.say(outcome(error))
        except Failed as failed:
            self.say(outcome(failed))
        if lock:
            self.say("released" if lock.released else "left")

    async def under(self, lock, verb, *args):
        session = self.story.session
        if verb == "lost":
            await lock.lost.wait()
            return "lost"
        if verb == "check":
            return "lost" if lock.is_lost() else "not lost"
        if verb == "busy":
            for _ in range(THREADS):
                asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
            return "busy"
        lock = self.story.actors[args[1]].lock if len(args) > 1 else lock
        value = int(args[0])
        for text in () if lock.is_lost() else (UPDATE, READ, PLAIN):
            await asyncio.get_running_loop().run_in_executor(None, _core.prepare, session, text.format(self.story.table))

        async def read():
            return (await aio.execute(session, bound(self.story, lock, "read", 0)))[0].balance

        async def landed():
            return await read() == value

        if verb in ("settle", "settle-plain"):
            landed = await lock.settle(lambda: aio.execute(session, bound(self.story, lock, verb, value)), landed)
            return "landed" if landed else "not landed"
        if verb == "read":
            return f"reads {await read()}"
        await aio.execute(session, bound(self.story, lock, verb, value))
        return "written"


class Story:
    def __init__(self, id, kind):
        self.id, self.kind, self.session, self.actors = id, kind, None, {}

    def take(self, name, words):
        if words[0] == "cancel":
            self.actors[name].cancel()
            return
        if name not in self.actors:
            self.actors[name] = self.kind(self, name)
        self.actors[name].does.put_nowait(words)


stories = {}


def take(line, kind):
    id, name, *words = line.split()
    if id not in stories:
        stories[id] = Story(id, kind)
    stories[id].take(name, words)


def read(take):
    for line in sys.stdin:
        take(line)
    os._exit(0)


if sys.argv[1:] == ["asyncio"]:
    loop = asyncio.new_event_loop()
    loop.set_default_executor(ThreadPoolExecutor(THREADS))
    threading.Thread(target=read, args=(lambda line: loop.call_soon_threadsafe(take, line, AsyncActor),), daemon=True).start()
    loop.run_forever()
else:
    threading.Thread(target=read, args=(lambda line: take(line, Actor),), daemon=True).start()
    first.get().act()
