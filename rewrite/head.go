package rewrite

// Head is what the beginning of a statement says. Its names are spans of the text that it was read
// from.
type Head struct {
	Verb Verb
	// AfterSelect says that SELECT is written before LOCK, UNLOCK or LIST LOCKS.
	AfterSelect bool
	// Complete is false if the text ended before verb and table were known: then the
	// other fields mean nothing. After a first part, the caller reads more of the
	// text; a whole text like this is not CQL.
	Complete bool
	// Keyspace is absent for an unqualified table. For USE, and for CREATE,
	// ALTER and DROP KEYSPACE, it is the keyspace that the statement names.
	Keyspace Name
	// Table is the table that the statement reads, writes or changes; an index, a trigger
	// or a new view changes the table it is on. It is absent for a batch, USE, LIST
	// LOCKS without ON, and if the text does not say it (DROP INDEX).
	Table Name
	// Schema is filled for Verb Schema only.
	Schema SchemaHead
}

// SchemaHead is what the beginning of CREATE, ALTER, DROP, COMMENT ON or SECURITY LABEL says.
type SchemaHead struct {
	Action SchemaAction
	Kind   SchemaKind
	// Object is the view, index, trigger, type or function that is created,
	// changed or dropped. It is absent for tables and keyspaces, for an
	// index without a name, and for roles.
	Object Name
}

// ReadHead reads the beginning of one statement, stops as soon as verb and table are known, and
// does not allocate. whole=false means that text is only the first part of a statement: a token
// that touches its end may be longer, and is not used.
//
// If a text is not CQL up to the table, Verb is Unknown and Complete true.
func ReadHead(text []byte, whole bool) (h Head) {
	r := headReader{lex: NewLexer(text), whole: whole}
	r.next()
	h.Complete = r.statement(&h)
	if h.Complete {
		return h
	}
	if r.tok.Kind == TokenEOF {
		return Head{Verb: h.Verb}
	}
	return Head{Complete: true}
}

// headReader is a reader with a current token. Its methods report whether they found what they look
// for; if not, the current token is the one that did not fit, or TokenEOF if the text was too
// short.
type headReader struct {
	lex   Lexer
	whole bool
	tok   Token
}

// next moves to the next token.
func (r *headReader) next() { r.tok = r.trust(r.lex.Next()) }

// peek returns the token after the current one.
func (r *headReader) peek() Token {
	ahead := r.lex
	return r.trust(ahead.Next())
}

// trust returns t, or the end of the text instead of a token that more text could lengthen.
func (r *headReader) trust(t Token) Token {
	if t.End == len(r.lex.text) && !r.whole {
		t.Kind = TokenEOF
	}
	return t
}

// is reports whether the current token is word, a keyword in capitals.
func (r *headReader) is(word string) bool { return isWord(r.lex.text, r.tok, word) }

// skip moves past word if it is the current token, and reports whether it is.
func (r *headReader) skip(word string) bool {
	if !r.is(word) {
		return false
	}
	r.next()
	return true
}

// statement reads up to the table that a statement reads or changes.
func (r *headReader) statement(h *Head) bool {
	h.Verb = r.verb()
	switch h.Verb {
	case Select:
		return r.selection(h)
	case Schema:
		return r.schema(h)
	case Batch:
		return r.batch(h)
	case ListLocks:
		return r.list(h)
	case Unknown:
		return false
	}
	r.next()
	switch h.Verb {
	case Insert:
		return r.skip("INTO") && r.table(h)
	case Update, Lock, Unlock:
		return r.table(h)
	case Delete:
		return r.from() && r.table(h)
	case Truncate:
		_ = r.skip("TABLE") || r.skip("COLUMNFAMILY")
		return r.table(h)
	case Use:
		return r.name(&h.Keyspace)
	}
	return h.Verb == Other
}

// verb returns what the first word says: LIST is ListLocks and BEGIN is Batch until the second word
// says otherwise. Frequent words come first.
func (r *headReader) verb() Verb {
	switch {
	case r.is("SELECT"):
		return Select
	case r.is("INSERT"):
		return Insert
	case r.is("UPDATE"):
		return Update
	case r.is("DELETE"):
		return Delete
	case r.is("BEGIN"):
		return Batch
	case r.is("LOCK"):
		return Lock
	case r.is("UNLOCK"):
		return Unlock
	case r.is("LIST"):
		return ListLocks
	case r.is("USE"):
		return Use
	case r.is("TRUNCATE"):
		return Truncate
	case r.is("CREATE"), r.is("ALTER"), r.is("DROP"), r.is("COMMENT"), r.is("SECURITY"):
		return Schema
	case r.is("GRANT"), r.is("REVOKE"), r.is("DESCRIBE"), r.is("DESC"), r.is("ADD"):
		return Other
	}
	return Unknown
}

// selection reads
//
//	SELECT LOCK … | SELECT UNLOCK … | SELECT LIST LOCKS …
//	SELECT anything FROM table
//
// The first line is the proxy's because no two names stand side by side in a selection
// of plain CQL. FROM is reserved: outside brackets it is never a name.
func (r *headReader) selection(h *Head) bool {
	r.next()
	if r.lockVerb() {
		h.AfterSelect = true
		return r.statement(h)
	}
	return r.from() && r.table(h)
}

// lockVerb reports whether LOCK, UNLOCK or LIST LOCKS follows SELECT.
func (r *headReader) lockVerb() bool {
	switch {
	case r.is("LIST"):
		return isWord(r.lex.text, r.peek(), "LOCKS")
	case r.is("LOCK") || r.is("UNLOCK"):
		next := r.peek()
		_, name := nameOf(r.lex.text, next)
		return name && !isWord(r.lex.text, next, "FROM") && !isWord(r.lex.text, next, "AS")
	}
	return false
}

// from moves past the FROM that is outside of brackets.
func (r *headReader) from() bool {
	depth := 0
	for {
		switch r.tok.Kind {
		case TokenEOF:
			return false
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		case TokenIdent:
			if depth == 0 && r.is("FROM") {
				r.next()
				return true
			}
		}
		r.next()
	}
}

// table reads [keyspace .] table. It must see the token after a name: before a dot, the name is a
// keyspace.
func (r *headReader) table(h *Head) bool { return r.qualified(&h.Keyspace, &h.Table) }

// qualified reads [keyspace .] name.
func (r *headReader) qualified(keyspace, name *Name) bool {
	if !r.name(name) {
		return false
	}
	if r.tok.Kind == TokenEOF && !r.whole {
		return false
	}
	if r.tok.Kind != '.' {
		return true
	}
	*keyspace = *name
	r.next()
	return r.name(name)
}

// name reads an identifier.
func (r *headReader) name(n *Name) bool {
	name, ok := nameOf(r.lex.text, r.tok)
	if !ok {
		return false
	}
	*n = name
	r.next()
	return true
}

// batch reads BEGIN [UNLOGGED|COUNTER] BATCH | BEGIN TRANSACTION.
func (r *headReader) batch(h *Head) bool {
	r.next()
	if r.is("TRANSACTION") {
		h.Verb = Transaction
		return true
	}
	return r.is("BATCH") || r.is("UNLOGGED") || r.is("COUNTER")
}

// list reads LIST LOCKS [ON table]; LIST of anything else is Cassandra's.
func (r *headReader) list(h *Head) bool {
	r.next()
	if r.tok.Kind == TokenEOF {
		return false
	}
	if !r.skip("LOCKS") {
		h.Verb = Other
		return true
	}
	if r.skip("ON") {
		return r.table(h)
	}
	return r.tok.Kind != TokenEOF || r.whole
}
