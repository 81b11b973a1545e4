package proxy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/musiccore"
)

// A lock for one statement is released in the ordinary way in a table of several data centres.
func TestALockOfOneStatementIsOrdinaryFarAway(t *testing.T) {
	c := newCluster()
	s := startStation(t, c)
	for name, step := range map[string]struct {
		far      bool
		once     musiccore.Kind
		released bool
	}{
		"near": {false, musiccore.BlindPut, true},
		"far":  {true, musiccore.BlindPut, false},
		"read": {true, musiccore.Get, false},
	} {
		k := keyOf(name)
		s.tables.set(map[[16]byte]*dataTable{k.Table: {keyspace: "bank", name: "accounts", replicaPlaces: replicaPlaces{severalCentres: step.far}}})
		a := s.lock(k, musiccore.Request{Once: step.once})
		require.Equal(t, musiccore.StateHeld, a.Grant.State, name)
		assert.Equal(t, step.released, c.row(k).Empty(), name)
	}
}
