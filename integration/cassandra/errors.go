package cassandra

import "errors"

// ErrMissing says that a program has to be installed by hand; the message around it names the program and how to get it.
var ErrMissing = errors.New("missing on this machine")

// ErrInUse means that another process uses a port or a cluster's directory.
var ErrInUse = errors.New("in use")

// ErrNotRunning says that a node is down, whether it was stopped or died; waiting for it is in vain.
var ErrNotRunning = errors.New("not running")

// ErrRunning says that a node that should be started runs already.
var ErrRunning = errors.New("running already")

// ErrClosed says that the cluster was closed: its nodes will not start again.
var ErrClosed = errors.New("cluster closed")

// ErrOnce says that a node was to be started again that cannot be: it has forgotten its schema. See Once.
var ErrOnce = errors.New("its schema was not flushed")
