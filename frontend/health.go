package frontend

// looks is how often in BackendTimeout the server looks whether anything moves on a connection.
const looks = 8

// health is what was seen of a connection at the last look, and for how many looks in a row nothing has moved. It belongs to the
// goroutine that looks.
type health struct {
	reads, writes             uint64
	backendStill, clientStill int
}

// look ends the connection if for the time of so many looks the backend owes an answer and has sent nothing, or the client has not
// taken what is being written to it: a peer that is stopped or cut off says nothing, not even that it is gone.
func (c *conn) look() {
	h := &c.health
	reads, writes := c.down.Arrivals(), c.down.Out.Progress()
	stuck := writes == h.writes && writes%2 == 1
	owed := c.streams.Any() || c.down.Out.Full()
	h.clientStill = stillFor(h.clientStill, stuck)
	h.backendStill = stillFor(h.backendStill, owed && !stuck && reads == h.reads)
	h.reads, h.writes = reads, writes
	switch {
	case h.clientStill > looks:
		c.end(errClientSlow)
	case h.backendStill > looks:
		c.end(errBackendSlow)
	}
}

// lookLate ends the connection if the rest of a message has been waited for too long: whoever begins messages and does not finish them
// makes the proxy hold them.
func (c *conn) lookLate() {
	if c.up.Late(c.server.MessageTimeout) {
		c.end(errClientLate)
	}
}

// stillFor counts looks in a row.
func stillFor(n int, still bool) int {
	if still {
		return n + 1
	}
	return 0
}
