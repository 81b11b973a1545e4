package frontend

import (
	"context"
	"errors"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

const (
	maxLiterals    = 10_000          // remembered
	literalTimeout = 2 * time.Second // for asking Cassandra
)

// errAskCassandra tells that a literal has to be asked of Cassandra, which takes a while.
var errAskCassandra = &Failure{Text: "the literal is not known yet"}

// literals are values of literals whose types only Cassandra reads (a timestamp, a decimal), as it has told them.
type literals struct {
	cache *lru.Cache[[2]string, []byte]
	read  func(ctx context.Context, cqlType, literal string) ([]byte, error)
}

// known gives a value without asking, or errAskCassandra.
func (l *literals) known(cqlType, literal string) ([]byte, *Failure) {
	if value, ok := l.cache.Get([2]string{cqlType, literal}); ok {
		return value, nil
	}
	return nil, errAskCassandra
}

// ask gives a value and remembers it. It blocks for at most literalTimeout.
func (l *literals) ask(cqlType, literal string) ([]byte, *Failure) {
	if value, f := l.known(cqlType, literal); f == nil {
		return value, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), literalTimeout)
	defer cancel()
	value, err := l.read(ctx, cqlType, literal)
	switch {
	case errors.Is(err, ErrLiteral):
		return nil, invalid("MUSIC_KEY: %s cannot be read as %s: %v", literal, cqlType, err)
	case err != nil:
		return nil, invalid("MUSIC_UNAVAILABLE: Cassandra did not say what %s means as %s; nothing was done: try again, or bind the value", literal, cqlType)
	}
	l.cache.Add([2]string{cqlType, literal}, value)
	return value, nil
}

// ErrLiteral tells that a literal is not one of its type.
var ErrLiteral = errors.New("not a literal of this type")
