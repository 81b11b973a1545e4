"""Prints which node, by its host id, answers for each of a number of keys, as a JSON object. Arguments: host, nodes to wait for, keys."""
import json
import sys
import time

from cassandra.cluster import Cluster, ExecutionProfile, EXEC_PROFILE_DEFAULT
from cassandra.policies import RoundRobinPolicy, TokenAwarePolicy

host, nodes, keys = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
profile = ExecutionProfile(load_balancing_policy=TokenAwarePolicy(RoundRobinPolicy()), request_timeout=30)
cluster = Cluster([host], connect_timeout=60, control_connection_timeout=60, execution_profiles={EXEC_PROFILE_DEFAULT: profile})
session = cluster.connect("spread")
deadline = time.time() + 60
while len(session.get_pools()) < nodes and time.time() < deadline:
    time.sleep(0.05)
select = session.prepare("SELECT v FROM t WHERE k = ?")
answered = {}
for key in range(keys):
    future = session.execute_async(select, [key])
    future.result()
    answered[str(key)] = str(future.coordinator_host.host_id)
print(json.dumps({"hosts": sorted(h.address for h in cluster.metadata.all_hosts()), "answered": answered}))
cluster.shutdown()
