package rewrite

// TransactionWrites returns the keyspaces and tables that a transaction of Cassandra 6 writes, BEGIN
// TRANSACTION … COMMIT TRANSACTION; a keyspace that is not written is empty. ok is false if the text
// is no transaction, or a table cannot be read. It relies on UPDATE, INSERT, INTO, DELETE and FROM
// being reserved words.
func TransactionWrites(text []byte) (written [][2]string, ok bool) {
	p := newParser(text)
	if !p.take("BEGIN") || !p.take("TRANSACTION") {
		return nil, false
	}
	for p.err == nil && p.tok.Kind != TokenEOF {
		switch {
		case p.take("UPDATE"):
		case p.take("INSERT"):
			p.need("INTO")
		case p.take("DELETE"):
			for p.tok.Kind != TokenEOF && !p.is("FROM") {
				p.next()
			}
			p.need("FROM")
		default:
			p.next()
			continue
		}
		var s Statement
		p.table(&s)
		written = append(written, [2]string{string(s.Keyspace.AppendTo(nil, text)), string(s.Table.AppendTo(nil, text))})
	}
	return written, p.err == nil
}
