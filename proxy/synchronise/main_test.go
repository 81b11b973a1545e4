package synchronise

import (
	"testing"

	"music/integration/cassandra/cassandratest"
)

func TestMain(m *testing.M) { cassandratest.Main(m, "../../.run/synchronise", "127.0.10.2") }
