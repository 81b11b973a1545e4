package frontend

import "testing"

// Where Cassandra checks values, it may refuse that of a write which another one of the group would replace: each is sent.
func TestNoGroupWhereValuesAreChecked(t *testing.T) {
	y := newGroupRig(t, dialect{version: v4}, [2]int32{2, 1})
	now := *y.server.Tables.Of("bank", "accounts").Critical()
	now.Checked = true
	y.server.Tables.Set("bank", "accounts", &now)
	for range 2 {
		other := y.other(dialect{version: v4}, number(3), []byte("x"), number(2))
		other.execute()
		other.prepares(readOfGroup)
		other.prepares(writeOfUpdate)
		<-y.locks.asked
	}
}
