module music/integration/apps/shop/go

go 1.23.0

require (
	github.com/apache/cassandra-gocql-driver/v2 v2.1.2
	music/clients/go v0.0.0
)

require gopkg.in/inf.v0 v0.9.1 // indirect

replace music/clients/go => ../../../../clients/go
