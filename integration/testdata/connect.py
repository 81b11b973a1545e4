"""Connects to a cluster once for each line on stdin, and prints the result, a line each."""
import sys

from cassandra.cluster import Cluster

for _ in sys.stdin:
    cluster = Cluster([sys.argv[1]], connect_timeout=3)
    try:
        cluster.connect().execute("SELECT key FROM system.local")
        print("connected", flush=True)
    except Exception as failed:
        print(type(failed).__name__, str(failed).replace("\n", " "), flush=True)
    finally:
        cluster.shutdown()
