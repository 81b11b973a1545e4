package proxy

import (
	"context"
	"errors"
	"fmt"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/frontend"
)

// literal asks Cassandra for the wire form of a literal, by a type hint on a row that every node has. The literal is one
// token of a statement that has been read, so it cannot be more than a value.
func (x *executor) literal(ctx context.Context, cqlType, text string) ([]byte, error) {
	var value rawBytes
	err := x.session.Query("SELECT ("+cqlType+") "+text+" FROM system.local").Consistency(gocql.One).ScanContext(ctx, &value)
	var refused gocql.RequestError
	if errors.As(err, &refused) && (refused.Code() == gocql.ErrCodeInvalid || refused.Code() == gocql.ErrCodeSyntax) {
		return nil, fmt.Errorf("%w: %s", frontend.ErrLiteral, refused.Message())
	}
	if err != nil {
		return nil, fmt.Errorf("ask Cassandra for a literal: %w", err)
	}
	return value, nil
}
