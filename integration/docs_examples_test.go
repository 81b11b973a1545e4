package integration

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// markers prepares each statement of a part and compares what PREPARE declares with the line below it.
func (p *docPlayer) markers(part docPart) {
	p.t.Helper()
	w := openWire(p.t, p.proxy, primitive.ProtocolVersion4, primitive.CompressionNone)
	for i := 0; i+1 < len(part.lines); i += 2 {
		text, want := p.say(part.lines[i]), strings.TrimSpace(part.lines[i+1])
		e, err := w.ask(&message.Prepare{Query: text})
		require.NoError(p.t, err)
		f, err := w.decode(e)
		require.NoError(p.t, err)
		prepared, ok := f.Body.Message.(*message.PreparedResult)
		require.True(p.t, ok, "%s:%d: %s: %v", p.page.path, part.first+i+1, text, f.Body.Message)
		var got []string
		for _, c := range prepared.VariablesMetadata.Columns {
			got = append(got, c.Name+" "+strings.Replace(c.Type.AsCql(), "varchar", "text", 1))
		}
		assert.Equal(p.t, want, strings.Join(got, ", "), "%s:%d: %s", p.page.path, part.first+i+1, text)
	}
}

// python runs a program of the page, which must end without an error. A session is defined for it,
// and 127.0.0.1 stands for the proxy.
func (p *docPlayer) python(part docPart) {
	p.t.Helper()
	const before = "import sys\nfrom cassandra.cluster import Cluster\nsession = Cluster([sys.argv[1]]).connect()\n"
	path := filepath.Join(p.t.TempDir(), "page.py")
	host := hostOf(p.t, p.proxy)
	text := strings.ReplaceAll(p.say(strings.Join(part.lines, "\n")), "127.0.0.1", host)
	require.NoError(p.t, os.WriteFile(path, []byte(before+text+"\n"), 0o600))
	cmd, _ := program(p.t, needPython(p.t).Python, path, host)
	output(p.t, cmd, false)
}
