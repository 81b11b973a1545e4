package rewrite

// schema reads the beginning of CREATE, ALTER and DROP:
//
//	CREATE|ALTER|DROP [OR REPLACE] [CUSTOM] kind [IF [NOT] EXISTS] name …
func (r *headReader) schema(h *Head) bool {
	switch {
	case r.is("CREATE"):
		h.Schema.Action = Create
	case r.is("ALTER"):
		h.Schema.Action = Alter
	default:
		h.Schema.Action = Drop
	}
	r.next()
	if r.skip("OR") && !r.skip("REPLACE") {
		return false
	}
	r.skip("CUSTOM")
	if r.tok.Kind != TokenIdent {
		return false
	}
	h.Schema.Kind = schemaKind(r.lex.text, r.tok)
	if r.skip("MATERIALIZED") && !r.is("VIEW") {
		return false
	}
	r.next()
	if h.Schema.Kind == SchemaOther {
		return true
	}
	return r.ifExists() && r.schemaName(h)
}

// schemaKind returns the kind that a word after CREATE, ALTER or DROP names.
func schemaKind(text []byte, t Token) SchemaKind {
	switch {
	case isWord(text, t, "TABLE"), isWord(text, t, "COLUMNFAMILY"):
		return SchemaTable
	case isWord(text, t, "KEYSPACE"), isWord(text, t, "SCHEMA"):
		return SchemaKeyspace
	case isWord(text, t, "MATERIALIZED"):
		return SchemaView
	case isWord(text, t, "INDEX"):
		return SchemaIndex
	case isWord(text, t, "TRIGGER"):
		return SchemaTrigger
	case isWord(text, t, "TYPE"):
		return SchemaType
	case isWord(text, t, "FUNCTION"):
		return SchemaFunction
	case isWord(text, t, "AGGREGATE"):
		return SchemaAggregate
	}
	return SchemaOther
}

// ifExists steps over [IF [NOT] EXISTS].
func (r *headReader) ifExists() bool {
	if !r.skip("IF") {
		return true
	}
	r.skip("NOT")
	return r.skip("EXISTS")
}

// schemaName reads what CREATE, ALTER or DROP of a kind names.
func (r *headReader) schemaName(h *Head) bool {
	switch h.Schema.Kind {
	case SchemaTable:
		return r.table(h)
	case SchemaKeyspace:
		return r.name(&h.Keyspace)
	case SchemaView:
		return r.view(h)
	case SchemaIndex:
		return r.index(h)
	case SchemaTrigger:
		return r.name(&h.Schema.Object) && r.skip("ON") && r.table(h)
	case SchemaType, SchemaFunction, SchemaAggregate:
		return r.qualified(&h.Keyspace, &h.Schema.Object)
	}
	return true
}

// view reads [keyspace .] view [AS SELECT … FROM table]. A table without a
// keyspace is in the view's, not in that of the connection.
func (r *headReader) view(h *Head) bool {
	if !r.qualified(&h.Keyspace, &h.Schema.Object) {
		return false
	}
	if h.Schema.Action != Create {
		return true
	}
	return r.skip("AS") && r.skip("SELECT") && r.from() && r.table(h)
}

// index reads, of CREATE, [index] ON table, and of DROP, [keyspace .] index.
func (r *headReader) index(h *Head) bool {
	if h.Schema.Action != Create {
		return r.qualified(&h.Keyspace, &h.Schema.Object)
	}
	if !r.is("ON") && !r.name(&h.Schema.Object) {
		return false
	}
	return r.skip("ON") && r.table(h)
}
