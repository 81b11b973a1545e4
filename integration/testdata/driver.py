"""Executes statements for the tests: one JSON object a line in, one out. Arguments: host, keyspace, and for TLS the files of
the signers, of a certificate and of its key."""
import json
import re
import ssl
import sys

from cassandra.cluster import Cluster

CODE = re.compile(r'code=([0-9a-f]{4}) \[[^]]*\] message="(.*)"', re.S)


def show(value):
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def carry_out(session, request):
    values = request.get("values")
    statement = session.prepare(request["cql"]) if values else request["cql"]
    result = session.execute(statement, values, timeout=30)
    warnings = result.response_future.warnings or []
    return {"warnings": warnings, "columns": list(result.column_names or []), "rows": [[show(v) for v in row] for row in result]}


def encrypted(signers, certificate, key):
    context = ssl.create_default_context(cafile=signers)
    context.load_cert_chain(certificate, key)
    return context


def main(host, keyspace, *files):
    cluster = Cluster([host], connect_timeout=60, control_connection_timeout=60, ssl_context=encrypted(*files) if files else None, ssl_options={"server_hostname": host} if files else None)
    session = cluster.connect(keyspace or None)
    session.default_timeout = 60
    from cassandra.query import tuple_factory
    session.row_factory = tuple_factory
    print(json.dumps({"hosts": sorted(h.address for h in cluster.metadata.all_hosts()), "version": cluster.protocol_version}), flush=True)
    for line in sys.stdin:
        try:
            answer = carry_out(session, json.loads(line))
        except Exception as err:  # whatever the driver raises is an answer
            found = CODE.search(str(err))
            answer = {"code": int(found.group(1), 16), "text": found.group(2)} if found else {"code": 0, "text": repr(err)}
        print(json.dumps(answer), flush=True)
    cluster.shutdown()


main(*sys.argv[1:])
