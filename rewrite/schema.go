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
	case r.is("COMMENT"), r.is("SECURITY"):
		return r.comment(h)
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

// comment reads
//
//	COMMENT ON what name IS … | SECURITY LABEL [FOR provider] ON what name IS …
//
// Of a keyspace, a type or a field it does not read the name.
func (r *headReader) comment(h *Head) bool {
	h.Schema.Action = Comment
	label := r.is("SECURITY")
	r.next()
	if label && !r.label() || !r.skip("ON") {
		return false
	}
	switch {
	case r.skip("COLUMN"):
		return r.column(h)
	case r.skip("TABLE"), r.skip("COLUMNFAMILY"):
		if !label {
			h.Schema.Kind = SchemaTable
		}
		return r.table(h)
	}
	return r.is("KEYSPACE") || r.is("SCHEMA") || r.is("TYPE") || r.is("FIELD")
}

// label reads LABEL [FOR provider].
func (r *headReader) label() bool {
	var provider Name
	return r.skip("LABEL") && (!r.skip("FOR") || r.name(&provider))
}

// column reads [keyspace .] table . column.
func (r *headReader) column(h *Head) bool {
	if !r.qualified(&h.Keyspace, &h.Table) || r.tok.Kind == TokenEOF && !r.whole {
		return false
	}
	if r.tok.Kind != '.' {
		h.Keyspace, h.Table = Name{}, h.Keyspace
		return !h.Table.Empty()
	}
	var column Name
	r.next()
	return r.name(&column)
}
