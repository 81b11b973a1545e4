"""A program over the object mapper cqlengine of cassandra-driver. Arguments: setup or run, host, keyspace."""
import json
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from cassandra.cqlengine import columns, connection
from cassandra.cqlengine.management import sync_table
from cassandra.cqlengine.models import Model
from cassandra.cqlengine.query import BatchQuery, BatchType, LWTException
from cassandra.cluster import Cluster

PHASE, HOST, KEYSPACE = sys.argv[1:]


class Person(Model):
    __keyspace__ = KEYSPACE
    name = columns.Text(primary_key=True)
    age = columns.Integer()
    tags = columns.Set(columns.Text)
    notes = columns.List(columns.Text)
    props = columns.Map(columns.Text, columns.Integer)


class Event(Model):
    __keyspace__ = KEYSPACE
    stream = columns.Text(partition_key=True)
    id = columns.Integer(primary_key=True, clustering_order="DESC")
    total = columns.Integer(static=True)
    body = columns.Text()
    stamp = columns.UUID(default=uuid.uuid4)


def events(stream):
    return [(e.id, e.body) for e in Event.objects.filter(stream=stream)]


def refused(call):
    try:
        call()
    except LWTException as error:
        return error.existing
    raise AssertionError("it was applied")


def sync_again():
    sync_table(Person)
    sync_table(Event)


def create_and_get():
    Person.create(name="anna", age=30)
    assert Person.get(name="anna").age == 30


def change_and_save():
    anna = Person.get(name="anna")
    anna.age = 31
    anna.save()
    anna.update(age=32)
    assert Person.get(name="anna").age == 32


def if_not_exists():
    Person.if_not_exists().create(name="ben", age=1)
    assert refused(lambda: Person.if_not_exists().create(name="ben", age=2))["age"] == 1


def iff():
    Person.objects(name="ben").iff(age=1).update(age=2)
    assert refused(lambda: Person.objects(name="ben").iff(age=1).update(age=3))["age"] == 2
    ben = Person.get(name="ben")
    ben.iff(age=2).update(age=4)
    assert Person.get(name="ben").age == 4


def if_exists():
    refused(lambda: Person.objects(name="nobody").if_exists().update(age=1))
    Person.objects(name="ben").if_exists().update(age=5)
    assert Person.get(name="ben").age == 5


def delete_iff():
    refused(lambda: Person.objects(name="ben").iff(age=1).delete())
    Person.objects(name="ben").iff(age=5).delete()
    assert Person.objects(name="ben").count() == 0


def ttl():
    Person.ttl(1).create(name="carl", age=1)
    end = time.monotonic() + 30
    while Person.objects(name="carl").count():
        assert time.monotonic() < end, "it is still there"


def timestamp():
    Person.timestamp(datetime.now()).create(name="dora", age=1)
    assert Person.get(name="dora").age == 1


def collections():
    eva = Person.create(name="eva", tags={"x"}, notes=["1"], props={"a": 1})
    Person.objects(name="eva").update(tags__add={"y"}, notes__append=["2"], props__update={"b": 2})
    Person.objects(name="eva").update(tags__remove={"x"}, notes__prepend=["0"], props__remove={"a"})
    eva = Person.get(name="eva")
    assert (eva.tags, eva.notes, eva.props) == ({"y"}, ["0", "1", "2"], {"b": 2}), (eva.tags, eva.notes, eva.props)


def set_to_none():
    eva = Person.get(name="eva")
    eva.age, eva.notes = None, []
    eva.save()
    assert Person.get(name="eva").notes == []


def static_column():
    Event.create(stream="s", id=1, total=7, body="x")
    Event.objects(stream="s").update(total=8)
    assert Event.get(stream="s", id=1).total == 8


def batch_of_one_partition():
    with BatchQuery() as b:
        for id in range(3):
            Event.batch(b).create(stream="b", id=id, body="x")
    assert events("b") == [(2, "x"), (1, "x"), (0, "x")]


def batch_of_several(kind):
    with BatchQuery(batch_type=kind) as b:
        Event.batch(b).create(stream="c", id=1, body="x")
        Event.batch(b).create(stream="d", id=1, body="y")
        Person.batch(b).create(name="frank", age=9)
        Event.objects(stream="b", id=1).batch(b).delete()
    assert (events("c"), events("d"), Person.get(name="frank").age) == ([(1, "x")], [(1, "y")], 9)


def batch_with_if():
    with BatchQuery() as b:
        Event.batch(b).if_not_exists().create(stream="e", id=1, body="x")
        Event.batch(b).if_not_exists().create(stream="e", id=2, body="y")

    def again():
        with BatchQuery() as b:
            Event.batch(b).if_not_exists().create(stream="e", id=2, body="z")
            Event.batch(b).if_not_exists().create(stream="e", id=3, body="z")
    refused(again)
    assert events("e") == [(2, "y"), (1, "x")]


def batch_with_timestamp():
    with BatchQuery(timestamp=datetime.now()) as b:
        Event.batch(b).create(stream="t", id=1, body="x")
    assert events("t") == [(1, "x")]


def delete_row_and_partition():
    Event.objects(stream="e", id=1).delete()
    Event.objects(stream="d").delete()
    assert (events("e"), events("d")) == ([(2, "y")], [])


def delete_range():
    for id in range(5):
        Event.create(stream="r", id=id, body="x")
    Event.objects.filter(stream="r", id__gt=0, id__lte=3).delete()
    assert [id for id, _ in events("r")] == [4, 0]


def many_create_one():
    def create(age):
        try:
            Person.if_not_exists().create(name="race", age=age)
            return 1
        except LWTException:
            return 0
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(create, range(8))) == 1


TESTS = {
    "sync_table finds nothing to change": sync_again,
    "create and get": create_and_get,
    "change and save": change_and_save,
    "if_not_exists": if_not_exists,
    "iff": iff,
    "if_exists": if_exists,
    "delete with iff": delete_iff,
    "ttl": ttl,
    "timestamp": timestamp,
    "collections": collections,
    "set to None": set_to_none,
    "static column": static_column,
    "batch of one partition": batch_of_one_partition,
    "logged batch of several partitions and tables": lambda: batch_of_several(None),
    "unlogged batch of several partitions and tables": lambda: batch_of_several(BatchType.Unlogged),
    "batch with IF": batch_with_if,
    "batch with a timestamp": batch_with_timestamp,
    "delete a row and a partition": delete_row_and_partition,
    "delete a range": delete_range,
    "eight create one": many_create_one,
}


def main():
    cluster = Cluster([HOST])
    session = cluster.connect()
    session.default_timeout = 60
    connection.set_session(session)
    if PHASE == "setup":
        sync_again()
    else:
        for name, test in TESTS.items():
            told = {"Action": "pass", "Test": name}
            try:
                test()
            except Exception as error:
                told.update(Action="fail", Output="%s: %s\n" % (type(error).__name__, error))
            print(json.dumps(told), flush=True)
    cluster.shutdown()


main()
