package rewrite

// locking reads the proxy's own statements, each with an optional SELECT in front:
//
//	LOCK table WHERE … clause*
//	UNLOCK table WHERE … ( USING LOCK reference | FORCE [REASON string] )
//	LIST LOCKS [ON table [WHERE …]]
func (p *parser) locking(s *Statement) {
	if s.AfterSelect {
		p.need("SELECT")
	}
	switch s.Verb {
	case Lock:
		p.need("LOCK")
		p.table(s)
		p.where(s)
		p.clauses(s, p.lockClause)
	case Unlock:
		p.need("UNLOCK")
		p.table(s)
		p.where(s)
		p.clauses(s, p.unlockClause)
		p.checkUnlock(s)
	default:
		p.listing(s)
	}
	if s.TTL.Kind != NoTerm || s.Timestamp.Kind != NoTerm {
		p.fail(s.Table.Span, s.Verb.String()+" takes USING LOCK only, no TTL and no TIMESTAMP")
	}
	s.Cut = nil
}

// listing reads LIST LOCKS [ON table [WHERE …]].
func (p *parser) listing(s *Statement) {
	p.need("LIST")
	p.need("LOCKS")
	if !p.take("ON") {
		if !p.ended() {
			p.wants("ON <table>, or the end of the statement,")
		}
		return
	}
	p.table(s)
	if p.is("WHERE") {
		p.where(s)
	}
}

// clauses reads as many clauses as one of them is found.
func (p *parser) clauses(s *Statement, clause func(*Statement) bool) {
	start := p.tok.Span
	for p.err == nil && clause(s) {
	}
	if p.err != nil {
		return
	}
	how := 0
	for _, set := range []bool{s.Wait.Kind != NoTerm, s.NoWait, s.SkipLocked} {
		if set {
			how++
		}
	}
	if how > 1 {
		p.fail(start, "WAIT, NOWAIT and SKIP LOCKED exclude each other")
	}
}

// lockClause reads one of
//
//	WAIT duration | NOWAIT | SKIP LOCKED | LEASE duration
//	AS string | TOKEN uuid | LIMIT integer | USING LOCK reference
//
// any value of which may be a marker.
func (p *parser) lockClause(s *Statement) bool {
	switch {
	case p.is("AS"):
		p.value(&s.Owner, TermString, "AS takes who asks, as a string such as 'worker-7', or a bind marker")
	case p.is("TOKEN"):
		p.value(&s.Token, TermUUID, "TOKEN takes a uuid without quotes, or a bind marker")
	case p.is("LIMIT"):
		p.value(&s.Limit, TermInteger, "LIMIT takes a number or a bind marker")
	case p.is("USING"):
		p.using(s)
	default:
		return p.waitClause(s)
	}
	return true
}

// waitClause reads those clauses of LOCK that FOR UPDATE has too.
func (p *parser) waitClause(s *Statement) bool {
	switch {
	case p.is("WAIT"):
		p.value(&s.Wait, TermDuration, "WAIT takes a duration such as 5s, or a bind marker with milliseconds")
	case p.is("LEASE"):
		p.value(&s.Lease, TermDuration, "LEASE takes a duration such as 30s, or a bind marker with milliseconds")
	case p.is("NOWAIT"):
		p.flag(&s.NoWait)
	case p.is("SKIP"):
		p.next()
		if !p.is("LOCKED") {
			p.wants("LOCKED")
		}
		p.flag(&s.SkipLocked)
	default:
		return false
	}
	return true
}

// unlockClause reads one of
//
//	USING LOCK reference | FORCE | REASON string
func (p *parser) unlockClause(s *Statement) bool {
	switch {
	case p.is("USING"):
		p.using(s)
	case p.is("FORCE"):
		p.flag(&s.Force)
	case p.is("REASON"):
		p.value(&s.Reason, TermString, "REASON takes a string, or a bind marker")
	default:
		return false
	}
	return true
}

// checkUnlock refuses what cannot stand together, and an UNLOCK that names no
// reference.
func (p *parser) checkUnlock(s *Statement) {
	switch {
	case p.err != nil:
	case s.Force && s.Lock.Kind != NoTerm:
		p.fail(s.Lock.Span, "UNLOCK takes USING LOCK or FORCE, not both")
	case s.Reason.Kind != NoTerm && !s.Force:
		p.fail(s.Reason.Span, "REASON goes with FORCE")
	case !s.Force && s.Lock.Kind == NoTerm:
		p.wants("USING LOCK <reference>, or FORCE,")
	}
}

// forUpdate reads
//
//	FOR UPDATE [WAIT duration | NOWAIT | SKIP LOCKED] [LEASE duration]
func (p *parser) forUpdate(s *Statement) {
	start := p.tok
	if s.ForUpdate {
		p.fail(start.Span, "FOR UPDATE stands twice")
		return
	}
	s.ForUpdate = true
	p.next()
	p.next()
	p.clauses(s, p.waitClause)
	s.Cut = append(s.Cut, Span{start.Start, p.last.End})
}

// using reads
//
//	USING item (AND item)*      item: LOCK reference | TTL number | TIMESTAMP number
//
// and cuts the LOCK item out: with USING if it is alone, else with the AND that ties
// it to another.
func (p *parser) using(s *Statement) {
	lead, first := p.tok, true
	if !s.UsingClause.Empty() {
		p.fail(lead.Span, "USING stands twice")
	}
	s.UsingClause.Start = lead.Start
	for p.err == nil {
		p.next()
		item := p.tok
		lock := p.usingItem(s)
		s.UsingClause.End = p.last.End
		if !p.is("AND") {
			p.cut(s, lock, Span{lead.Start, p.last.End})
			return
		}
		switch {
		case lock && first:
			p.cut(s, true, Span{item.Start, p.tok.End})
		case lock:
			p.cut(s, true, Span{lead.Start, p.last.End})
		}
		lead, first = p.tok, false
	}
}

// optionalUsing reads a clause where one may stand.
func (p *parser) optionalUsing(s *Statement) {
	if p.is("USING") {
		p.using(s)
		return
	}
	s.UsingClause = Span{p.last.End, p.last.End}
}

// cut adds a span to Cut if it is a LOCK item.
func (p *parser) cut(s *Statement, lock bool, span Span) {
	if lock && p.err == nil {
		s.Cut = append(s.Cut, span)
	}
}

// usingItem reads one item of USING; lock reports whether it was LOCK.
func (p *parser) usingItem(s *Statement) (lock bool) {
	switch {
	case p.is("LOCK"):
		p.value(&s.Lock, TermInteger, "USING LOCK takes a lock reference: a number, or a bind marker")
		return true
	case p.is("TTL"):
		p.value(&s.TTL, TermInteger, "TTL takes a number of seconds, or a bind marker")
	case p.is("TIMESTAMP"):
		p.value(&s.Timestamp, TermInteger, "TIMESTAMP takes a number of microseconds, or a bind marker")
	default:
		p.wants("LOCK, TTL or TIMESTAMP")
	}
	return false
}

// value reads a keyword and its value, which is of kind or a marker.
func (p *parser) value(into *Term, kind TermKind, message string) {
	if into.Kind != NoTerm {
		p.fail(p.tok.Span, p.quote(p.tok)+" stands twice")
		return
	}
	p.next()
	switch {
	case p.tok.Kind == '?' || p.tok.Kind == ':':
		*into = p.marker()
	case literalKind(p.tok.Kind) == kind:
		*into = Term{Kind: kind, Span: p.tok.Span, Marker: -1}
		p.next()
	default:
		p.fail(p.tok.Span, message+", not "+p.quote(p.tok))
	}
}

// flag reads a keyword that has no value.
func (p *parser) flag(set *bool) {
	if *set {
		p.fail(p.tok.Span, p.quote(p.tok)+" stands twice")
		return
	}
	*set = true
	p.next()
}
