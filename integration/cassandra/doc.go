// Package cassandra runs real Cassandra nodes as children of this process, for the demo, the tests and the benchmarks.
//
// There is no binary distribution to unpack: the jars come from Maven, and each node is a plain `java @args` with
// files that this package writes. [Start] does everything and returns when the cluster can be used; [Cluster.Close]
// ends it. No node outlives the process that started it, however that process ends (see [spawn]).
//
// Below the run directory lie
//
//	cassandra-5.0.8/lib   the jars, fetched once
//	venv                  Python with cqlsh and the driver, made once
//	DIR/nK                files, logs and storage of node K of the cluster whose Options.Dir is DIR
//
// Linux only: it relies on the parent-death signal, and on every address of 127.0.0.0/8 being this machine.
package cassandra
