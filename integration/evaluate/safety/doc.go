// Package safety is the table of systems and faults: which of them keep entry consistency under failures,
// which do not, and which let nobody in. Clients, proxies and nodes are processes of their own in an
// emulated network; the faults are those of machines, messages and clocks; package judge says what came
// of it.
//
// The trials of all systems under one fault are under way at the same time, each with a key and clients
// of its own, since what strikes a node or a site strikes all of them. It needs root and /dev/net/tun.
package safety
