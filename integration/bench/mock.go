package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// preparedID is the mock's id of every statement; a proxy may give it another one.
const preparedID = "0123456789abcdef"

// mock is a CQL server without a database: it answers at once, always the same, in every dialect. A
// client's name in STARTUP says how many bytes of rows it wants.
type mock struct{ running sync.WaitGroup }

// serve answers each connection, until the listener is closed.
func (m *mock) serve(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			m.running.Wait()
			return err
		}
		m.running.Go(func() {
			defer func() { _ = c.Close() }()
			if err := m.client(newLine(c, dialect{})); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
				fmt.Fprintln(os.Stderr, "mock:", err)
			}
		})
	}
}

// client serves one connection.
func (m *mock) client(l *line) error {
	answers, err := m.handshake(l)
	if err != nil {
		return err
	}
	var out []byte
	for {
		request, err := l.next()
		if err != nil {
			return err
		}
		answer := answers[primitive.OpCode(request[4])]
		if answer == nil {
			return fmt.Errorf("opcode %d is not played", request[4])
		}
		at := len(out)
		out = append(out, answer...)
		copy(out[at+2:at+4], request[2:4]) // the stream
		if !l.dry() && len(out) < maxPayload {
			continue
		}
		if _, err := l.Write(l.framed(out)); err != nil {
			return err
		}
		out = out[:0]
	}
}

// handshake answers up to READY, and returns the answers to later requests, by opcode.
func (m *mock) handshake(l *line) (map[primitive.OpCode][]byte, error) {
	for {
		request, err := l.next()
		if err != nil {
			return nil, err
		}
		l.version = primitive.ProtocolVersion(request[0])
		stream := int16(binary.BigEndian.Uint16(request[2:]))
		if primitive.OpCode(request[4]) != primitive.OpCodeStartup {
			if _, err := l.Write(dialect{version: l.version}.envelope(stream, supported())); err != nil {
				return nil, err
			}
			continue
		}
		m, err := decoded(request)
		if err != nil {
			return nil, err
		}
		options := m.(*message.Startup)
		l.lz4 = options.GetCompression() == primitive.CompressionLz4
		if _, err := l.Write(dialect{version: l.version}.envelope(stream, &message.Ready{})); err != nil {
			return nil, err
		}
		l.begin()
		return answersOf(l.dialect, options.GetDriverName()), nil
	}
}

// supported returns the answer to OPTIONS.
func supported() *message.Supported {
	return &message.Supported{Options: map[string][]string{"CQL_VERSION": {"3.4.7"}, "COMPRESSION": {"lz4", "snappy"}}}
}

// wantRows returns the name of a client whose statements are to return so many bytes of rows; 0: no
// rows.
func wantRows(bytes int) string { return fmt.Sprintf("bench %d", bytes) }

// answersOf returns the answers in a dialect to a client of that name.
func answersOf(d dialect, name string) map[primitive.OpCode][]byte {
	var size int
	_, _ = fmt.Sscanf(name, "bench %d", &size) // any other client gets no rows
	result := message.Message(&message.VoidResult{})
	blob := &message.ColumnMetadata{Keyspace: "ks", Table: "t", Name: "v", Type: datatype.Blob}
	if size > 0 {
		result = &message.RowsResult{
			Metadata: &message.RowsMetadata{ColumnCount: 1, Columns: []*message.ColumnMetadata{blob}},
			Data:     message.RowSet{message.Row{noise(0, size)}},
		}
	}
	statement := &message.PreparedResult{
		PreparedQueryId: []byte(preparedID), ResultMetadataId: []byte(preparedID),
		VariablesMetadata: &message.VariablesMetadata{Columns: []*message.ColumnMetadata{blob}},
		ResultMetadata:    &message.RowsMetadata{ColumnCount: 1, Columns: []*message.ColumnMetadata{blob}},
	}
	return map[primitive.OpCode][]byte{
		primitive.OpCodeOptions:  d.envelope(0, supported()),
		primitive.OpCodeRegister: d.envelope(0, &message.Ready{}),
		primitive.OpCodePrepare:  d.envelope(0, statement),
		primitive.OpCodeQuery:    d.envelope(0, result),
		primitive.OpCodeExecute:  d.envelope(0, result),
	}
}
