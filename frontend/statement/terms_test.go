package statement

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/rewrite"
)

// A wait or a lease that is out of range is refused with the range.
func TestADurationOutOfRange(t *testing.T) {
	marker := rewrite.Term{Kind: rewrite.TermMarker}
	for ms, says := range map[int64]string{
		-1: "WAIT of -1 ms is out of range: bind 0 to 86400000 milliseconds", 86400001: "WAIT of 86400001 ms is out of range", 0: "", 86400000: "",
	} {
		s := Statement{Values: [][]byte{binary.BigEndian.AppendUint64([]byte{0, 0, 0, 8}, uint64(ms))}}
		d, f := s.Duration(marker, "WAIT")
		if says == "" {
			require.Nil(t, f)
			assert.Equal(t, ms, d.Milliseconds())
			continue
		}
		require.NotNil(t, f)
		assert.Contains(t, f.Text, says)
	}
}
