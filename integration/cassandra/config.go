package cassandra

import (
	"encoding/xml"
	"fmt"
	"maps"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// storagePort is where nodes of a cluster talk to each other, on each node's own address.
const storagePort = 7000

// logbackTemplate sends all to one file; without a file of ours a node prints DEBUG to its stdout.
const logbackTemplate = `<configuration>
  <appender name="F" class="ch.qos.logback.core.FileAppender">
    <file>%s</file>
    <encoder><pattern>%%d %%-5level [%%thread] %%logger{0} %%msg%%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="F"/></root>
</configuration>
`

// layout names the files of node k of the cluster that o describes.
type layout struct {
	o       Options
	k       int
	dir     string
	joining *Joining // nil for a node that the cluster began with
}

// layoutOf returns the layout of node k.
func layoutOf(o Options, k int) layout {
	return layout{o: o, k: k, dir: filepath.Join(o.Dir, "n"+strconv.Itoa(k))}
}

// path returns the path of one of the node's files.
func (l layout) path(name string) string { return filepath.Join(l.dir, name) }

// url returns the same as a URL, which is what Cassandra wants.
func (l layout) url(name string) string {
	return (&url.URL{Scheme: "file", Path: l.path(name)}).String()
}

// write makes the node's directory and the files that it starts from; lib is the directory of the jars.
func (l layout) write(lib string) error {
	if err := os.MkdirAll(l.dir, 0o750); err != nil {
		return fmt.Errorf("make node %d: %w", l.k, err)
	}
	for name, text := range map[string]string{
		"cassandra.yaml": l.yaml(),
		"rackdc":         l.rackdc(),
		"logback.xml":    l.logback(),
		"args":           l.args(lib),
	} {
		if err := os.WriteFile(l.path(name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("make node %d: %w", l.k, err)
		}
	}
	return nil
}

// yaml returns the text of cassandra.yaml.
func (l layout) yaml() string {
	var b strings.Builder
	settings := override(l.settings(), l.o.Yaml)
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s: %s\n", key, settings[key])
	}
	return b.String()
}

// settings returns our cassandra.yaml by key: small memory, steady routes, quick starts.
func (l layout) settings() map[string]string {
	address := l.o.Address(l.k)
	settings := map[string]string{
		"cluster_name": "t",
		"partitioner":  "org.apache.cassandra.dht.Murmur3Partitioner",
		"num_tokens":   "1",
		// Who is there from the beginning is a seed, does not bootstrap, and may start with all others.
		"auto_bootstrap":        "false",
		"seed_provider":         fmt.Sprintf(`[{class_name: org.apache.cassandra.locator.SimpleSeedProvider, parameters: [{seeds: %q}]}]`, l.seeds()),
		"listen_address":        address,
		"rpc_address":           address,
		"storage_port":          strconv.Itoa(storagePort),
		"native_transport_port": strconv.Itoa(l.o.Port),

		"start_native_transport": "true",
		"endpoint_snitch":        "GossipingPropertyFileSnitch",
		"dynamic_snitch":         "false",
		"commitlog_sync":         "periodic",
		"commitlog_sync_period":  "10s",
		"internode_compression":  "none",
		"hinted_handoff_enabled": "true",
		"auto_snapshot":          "false",
		"paxos_variant":          "v2",
		"paxos_state_purging":    "legacy",
		"sstable":                "{selected_format: big}",

		"memtable_allocation_type":     "offheap_objects",
		"commitlog_segment_size":       "8MiB",
		"commitlog_total_space":        "256MiB",
		"memtable_heap_space":          "64MiB",
		"memtable_offheap_space":       "64MiB",
		"file_cache_size":              "32MiB",
		"networking_cache_size":        "32MiB",
		"key_cache_size":               "4MiB",
		"counter_cache_size":           "0MiB",
		"row_cache_size":               "0MiB",
		"concurrent_reads":             "16",
		"concurrent_writes":            "16",
		"concurrent_compactors":        "1",
		"native_transport_max_threads": "64",

		// Where it is full, Cassandra may forget a statement before its first EXECUTE.
		"prepared_statements_cache_size": "64MiB",
	}
	if l.joining != nil {
		settings["auto_bootstrap"] = strconv.FormatBool(l.joining.Bootstrap)
		return settings
	}
	settings["initial_token"] = strconv.Quote(strconv.FormatInt(l.token(), 10))
	return settings
}

// token returns the place of a node that the cluster began with.
func (l layout) token() int64 {
	parts := uint64(dcs)
	if l.o.Nodes > dcs {
		parts = maxNodes
	}
	return math.MinInt64 + int64(math.MaxUint64/parts*uint64(l.k-1)) //nolint:gosec // G115: it goes once around the ring
}

// dcs is how many data centres a cluster of MultiDC has at most.
const dcs = 3

// seeds lists every node of the cluster.
func (l layout) seeds() string {
	var list []string
	for k := 1; k <= l.o.Nodes; k++ {
		list = append(list, l.o.Address(k)+":"+strconv.Itoa(storagePort))
	}
	return strings.Join(list, ",")
}

// rackdc returns the text of the snitch's file.
func (l layout) rackdc() string {
	dc := 1
	switch {
	case l.joining != nil:
		dc = l.joining.DC
	case l.o.MultiDC:
		dc = 1 + (l.k-1)%dcs
	}
	return fmt.Sprintf("dc=dc%d\nrack=r1\n", dc)
}

// logback returns the text of logback.xml.
func (l layout) logback() string {
	var file strings.Builder
	xml.Escape(&file, []byte(l.path("system.log")))
	return fmt.Sprintf(logbackTemplate, file.String())
}

// properties returns our system properties by name: where the files are, and no waits that a small cluster can do without.
func (l layout) properties() map[string]string {
	all := map[string]string{
		"cassandra.config":            l.url("cassandra.yaml"),
		"cassandra.storagedir":        l.dir,
		"cassandra-rackdc.properties": l.url("rackdc"),
		"logback.configurationFile":   l.url("logback.xml"),
		"java.io.tmpdir":              l.dir,
		"cassandra-foreground":        "yes", // or it closes stdout and stderr, which tell of an early death
		"jdk.attach.allowAttachSelf":  "true",
		// By default a multiple of the ring delay. At 0, nodes that hear of each other before they have joined may forget
		// each other at once, and for ever: "FatClient has been silent for 0ms, removing from gossip".
		"cassandra.gossip_quarantine_delay_ms":      "60000",
		"cassandra.ring_delay_ms":                   "0",
		"cassandra.shutdown_announce_in_ms":         "0",
		"cassandra.superuser_setup_delay_ms":        "0",
		"cassandra.skip_wait_for_gossip_to_settle":  "0",
		"cassandra.auth_bcrypt_gensalt_log2_rounds": "4",
		"io.netty.tryReflectionSetAccessible":       "true",
		"io.netty.allocator.useCacheForAllThreads":  "true",
		"io.netty.allocator.maxOrder":               "11",
	}
	if l.o.Faults {
		maps.Copy(all, l.faultProperties())
	}
	if l.o.Access.JMX > 0 {
		all["cassandra.jmx.local.port"] = strconv.Itoa(l.o.Access.JMX + l.k)
	}
	if l.joining != nil {
		maps.Copy(all, l.joining.properties())
	}
	return all
}

// args returns the text of the file of JVM arguments, one a line.
func (l layout) args(lib string) string {
	args := []string{
		"-javaagent:" + filepath.Join(lib, "jamm-0.4.0.jar"),
		"-Xms" + l.o.Heap, "-Xmx" + l.o.Heap, "-Xss256k",
		"-XX:+UseSerialGC", "-XX:MaxDirectMemorySize=256m", "-XX:+PerfDisableSharedMem", "-XX:-UsePerfData",
	}
	if l.o.FastJIT {
		args = append(args, "-XX:TieredStopAtLevel=1")
	}
	classPath, main := filepath.Join(lib, "*"), "org.apache.cassandra.service.CassandraDaemon"
	if l.o.Faults {
		classPath, main = l.o.classes()+":"+classPath, "FaultyCassandra"
	}
	properties := override(l.properties(), l.o.Properties)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		args = append(args, "-D"+name+"="+properties[name])
	}
	args = append(args, moduleArgs()...)
	args = append(args, "-cp", classPath, main)
	return quoteArgs(args)
}

// moduleArgs opens to Cassandra the parts of the JDK that its own start script opens.
func moduleArgs() []string {
	var args []string
	for _, pkg := range []string{
		"java.base/jdk.internal.misc", "java.base/java.lang.ref",
		"java.management.rmi/com.sun.jmx.remote.internal.rmi", "java.rmi/sun.rmi.registry", "java.rmi/sun.rmi.server",
		"java.sql/java.sql", "jdk.unsupported/sun.misc", "jdk.compiler/com.sun.tools.javac.file", "jdk.attach/sun.tools.attach",
	} {
		args = append(args, "--add-exports="+pkg+"=ALL-UNNAMED")
	}
	for _, pkg := range []string{
		"java.base/java.lang", "java.base/java.lang.module", "java.base/java.lang.reflect", "java.base/java.io", "java.base/java.util",
		"java.base/sun.nio.ch", "java.base/jdk.internal.loader", "java.base/jdk.internal.ref", "java.base/jdk.internal.reflect",
		"java.base/jdk.internal.math", "java.base/jdk.internal.module", "java.base/jdk.internal.util.jar",
		"jdk.management/com.sun.management.internal", "jdk.compiler/com.sun.tools.javac",
	} {
		args = append(args, "--add-opens="+pkg+"=ALL-UNNAMED")
	}
	return args
}

// quoteArgs writes an argument file of java: there a blank ends an argument and a # starts a comment, unless quoted.
func quoteArgs(args []string) string {
	var b strings.Builder
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	for _, arg := range args {
		b.WriteString(`"` + escape.Replace(arg) + "\"\n")
	}
	return b.String()
}

// override returns base with the entries of over put in, where an empty one takes the key out.
func override(base, over map[string]string) map[string]string {
	maps.Copy(base, over)
	maps.DeleteFunc(base, func(key, value string) bool { return value == "" && over[key] == value })
	return base
}
