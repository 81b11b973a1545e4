package synchronise

import (
	"errors"
	"strings"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// init tells the driver of classes that it does not know, as its registry of types provides for. The
// registry of a session would not do: the driver looks up what is inside a vector in the global one.
// Cassandra names a vector by its class, and with it the classes of its elements. Without FrozenType
// the driver reads no answer that has a vector of lists or the like, not even as bytes.
func init() {
	for _, class := range []string{"FrozenType", "CompositeType", "DynamicCompositeType", "EmptyType", "LegacyTimeUUIDType"} {
		if err := gocql.GlobalTypes.RegisterCustom(class, rawType{}); err != nil {
			panic(err)
		}
	}
}

// Foreign reports whether a type in system_schema has a class that did not come with Cassandra,
// whose values the driver does not read, or the one of Cassandra's own that takes no bound value.
func Foreign(typeName string) bool {
	const own = "org.apache.cassandra.db.marshal."
	for i, part := range strings.Split(typeName, "'") {
		if i%2 == 1 && (!strings.HasPrefix(part, own) || strings.HasPrefix(part, own+"PartitionerDefinedOrder")) {
			return true
		}
	}
	return false
}

// rawType is a type whose values are read and written as bytes only.
type rawType struct{}

// errRawType is the error for values of a rawType that are not bytes.
var errRawType = errors.New("a value of a class of Cassandra's own is bytes only")

// Params implements gocql.CQLType.
func (rawType) Params(int) []any { return nil }

// TypeInfoFromParams implements gocql.CQLType.
func (t rawType) TypeInfoFromParams(int, []any) (gocql.TypeInfo, error) { return t, nil }

// TypeInfoFromString implements gocql.CQLType.
func (t rawType) TypeInfoFromString(int, string) (gocql.TypeInfo, error) { return t, nil }

// Type implements gocql.TypeInfo.
func (rawType) Type() gocql.Type { return gocql.TypeCustom }

// Zero implements gocql.TypeInfo.
func (rawType) Zero() any { return []byte(nil) }

// Marshal implements gocql.TypeInfo.
func (rawType) Marshal(any) ([]byte, error) { return nil, errRawType }

// Unmarshal implements gocql.TypeInfo.
func (rawType) Unmarshal([]byte, any) error { return errRawType }
