"""Prints what the Python driver shows of ordinary CQL. Arguments: host, keyspace. The output must not depend on the host."""
import sys
import uuid
from collections import namedtuple

from cassandra import ConsistencyLevel
from cassandra.cluster import Cluster
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.query import BatchStatement, BatchType, SimpleStatement, dict_factory, named_tuple_factory

Address = namedtuple("Address", "street number")


def tell(name, *values):
    print(name, *values, sep=" | ")


def attempt(name, session, *args, **kwargs):
    try:
        tell(name, list(session.execute(*args, **kwargs)))
    except Exception as err:  # the errors are compared too
        tell(name, type(err).__name__, str(err))


def connect(host, keyspace):
    cluster = Cluster([host], connect_timeout=60, control_connection_timeout=60)
    session = cluster.connect()
    session.default_timeout = 60
    tell("cluster", cluster.metadata.cluster_name, cluster.metadata.partitioner, cluster.protocol_version, len(cluster.metadata.all_hosts()))
    known = cluster.metadata.all_hosts()[0]
    tell("host", known.datacenter, known.rack, known.release_version, known.host_id, known.is_up, known.address == host)
    session.execute(f"DROP KEYSPACE IF EXISTS {keyspace}")
    session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
    session.set_keyspace(keyspace)
    return cluster, session


def schema(cluster, session, keyspace):
    session.execute("CREATE TYPE address (street text, number int)")
    session.execute("CREATE TABLE people (id int, part int, name text, home frozen<address>, tags set<text>, PRIMARY KEY (id, part)) WITH comment = 'plain'")
    session.execute("CREATE INDEX people_name ON people (name)")
    session.execute("CREATE TABLE counts (id int PRIMARY KEY, n counter)")
    cluster.refresh_schema_metadata()
    tell("schema", cluster.metadata.keyspaces[keyspace].export_as_string())
    tell("replicas", len(cluster.metadata.get_replicas(keyspace, b"\x00\x00\x00\x01")))
    cluster.register_user_type(keyspace, "address", Address)


def simple(session):
    attempt("insert", session, "INSERT INTO people (id, part, name) VALUES (%s, %s, %s)", (1, 1, "Ümläut ' quote"))
    attempt("named", session, "INSERT INTO people (id, part, name, tags) VALUES (%(i)s, %(p)s, %(n)s, %(t)s)", {"i": 1, "p": 2, "n": "b", "t": {"x", "y"}})
    attempt("select", session, "SELECT id, part, name FROM people")
    attempt("syntax", session, "SELEC 1")
    attempt("missing", session, "SELECT * FROM nosuch")
    attempt("exists", session, "CREATE TABLE people (id int PRIMARY KEY)")
    attempt("other keyspace", session, "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = 'system'")
    session.row_factory = dict_factory
    attempt("dict", session, "SELECT id, name FROM people WHERE id = 1 AND part = 2")
    session.row_factory = named_tuple_factory


def prepared(session):
    insert = session.prepare("INSERT INTO people (id, part, name, home) VALUES (?, ?, ?, ?)")
    tell("markers", [(c.name, str(c.type)) for c in insert.column_metadata], insert.routing_key_indexes)
    attempt("bound", session, insert, (2, 1, "c", Address("Weg", 5)))
    attempt("unset", session, insert, (2, 2))
    by_name = session.prepare("SELECT name, home FROM people WHERE id = :id AND part = :part")
    attempt("bound by name", session, by_name.bind({"part": 1, "id": 2}))
    attempt("prepared LWT", session, session.prepare("UPDATE people SET name = ? WHERE id = 2 AND part = 1 IF name = ?"), ("d", "c"))
    attempt("prepared LWT refused", session, session.prepare("UPDATE people SET name = ? WHERE id = 2 AND part = 1 IF name = ?"), ("e", "c"))


def batches(session):
    insert = session.prepare("INSERT INTO people (id, part, name) VALUES (?, ?, ?)")
    for kind in (BatchType.LOGGED, BatchType.UNLOGGED):
        batch = BatchStatement(kind)
        batch.add(insert, (3, kind.value, "batch"))
        batch.add("INSERT INTO people (id, part, name) VALUES (%s, %s, %s)", (3, 10 + kind.value, "text"))
        attempt("batch", session, batch)
    batch = BatchStatement(BatchType.COUNTER)
    batch.add("UPDATE counts SET n = n + 3 WHERE id = 1")
    attempt("counter batch", session, batch)
    attempt("batched", session, "SELECT id, part, name FROM people WHERE id = 3")
    attempt("counted", session, "SELECT n FROM counts WHERE id = 1")
    attempt("conditional batch", session, "BEGIN BATCH INSERT INTO people (id, part) VALUES (4, 1) IF NOT EXISTS APPLY BATCH")


def many(session):
    insert = session.prepare("INSERT INTO people (id, part, name) VALUES (?, ?, ?)")
    done = execute_concurrent_with_args(session, insert, [(100 + i % 3, i, "n" * i) for i in range(60)])
    tell("concurrent", all(ok for ok, _ in done))
    futures = [session.execute_async("SELECT count(*) FROM people WHERE id = %s", (100 + i % 4,)) for i in range(40)]
    tell("async", [f.result().one()[0] for f in futures])
    for size in (1, 7, 1000):
        result = session.execute(SimpleStatement("SELECT part FROM people WHERE id IN (100, 101)", fetch_size=0))
        paged = session.execute(SimpleStatement("SELECT part FROM people WHERE id = 100", fetch_size=size))
        first = len(paged.current_rows)
        tell("pages", size, first, paged.has_more_pages, [r.part for r in paged], len(list(result)))


def extras(session):
    traced = session.execute(SimpleStatement("SELECT id FROM people WHERE id = 1"), trace=True)
    tell("trace", traced.get_query_trace(max_wait_sec=10).request_type)
    large = "x" * 6000
    future = session.execute_async(f"BEGIN UNLOGGED BATCH INSERT INTO people (id, part, name) VALUES (7, 1, '{large}') INSERT INTO people (id, part, name) VALUES (8, 1, 'y') APPLY BATCH")
    future.result()
    tell("warnings", future.warnings)
    attempt("payload", session, "SELECT id FROM people WHERE id = 1 LIMIT 1", custom_payload={"key": b"value"})
    attempt("LWT", session, "INSERT INTO people (id, part) VALUES (9, 1) IF NOT EXISTS")
    attempt("LWT refused", session, "INSERT INTO people (id, part) VALUES (9, 1) IF NOT EXISTS")
    attempt("serial", session, SimpleStatement("SELECT id FROM people WHERE id = 9 AND part = 1", consistency_level=ConsistencyLevel.SERIAL))
    attempt("uuid", session, "SELECT id FROM people WHERE name = %s", (str(uuid.UUID(int=5)),))


def main(host, keyspace):
    cluster, session = connect(host, keyspace)
    schema(cluster, session, keyspace)
    simple(session)
    prepared(session)
    batches(session)
    many(session)
    extras(session)
    cluster.shutdown()


main(*sys.argv[1:])
