package proxy

import (
	"testing"

	"music/integration/cassandra/cassandratest"
)

func TestMain(m *testing.M) { cassandratest.Main(m, "../.run/proxy", "127.0.10.1") }
