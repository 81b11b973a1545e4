"""Reserves pieces of stock.left, many at once, and prints how many it has promised. Arguments: host, how, workers, reservations of each worker."""
import sys
from concurrent.futures import ThreadPoolExecutor

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile

import music

ITEM = "lamp"


def main(host, how, workers, each):
    profile = ExecutionProfile(consistency_level=ConsistencyLevel.QUORUM, request_timeout=30)
    cluster = Cluster([host], execution_profiles={EXEC_PROFILE_DEFAULT: profile})
    session = cluster.connect()
    read = session.prepare("SELECT left FROM shop.stock WHERE item = ?")

    def left():
        return session.execute(read, (ITEM,)).one().left

    def plain():
        session.execute(write, (left() - 1, ITEM))

    def conditional():
        while True:
            seen = left()
            if session.execute(write, (seen - 1, ITEM, seen)).was_applied:
                return

    def locked():
        with music.hold(session, "shop.stock", item=ITEM, wait=60) as lock:
            seen = session.execute(lock.bind(held, (ITEM,))).one().left
            session.execute(lock.bind(write, (seen - 1, ITEM)))

    reserve, update = {
        "plain": (plain, "UPDATE shop.stock SET left = ? WHERE item = ?"),
        "if": (conditional, "UPDATE shop.stock SET left = ? WHERE item = ? IF left = ?"),
        "lock": (locked, "UPDATE shop.stock USING LOCK ? SET left = ? WHERE item = ?"),
    }[how]
    write = session.prepare(update)
    held = session.prepare("SELECT left FROM shop.stock WHERE item = ? USING LOCK ?") if how == "lock" else None

    def work(_):
        promised = 0
        for _ in range(int(each)):
            try:
                reserve()
                promised += 1
            except Exception as error:
                print(error, file=sys.stderr)
        return promised

    with ThreadPoolExecutor(int(workers)) as pool:
        print(sum(pool.map(work, range(int(workers)))))
    cluster.shutdown()


main(*sys.argv[1:])
