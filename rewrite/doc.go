// Package rewrite reads CQL text: what a statement does to which table, where
// its key and the proxy's own clauses are, and how to remove those clauses.
//
// It takes bytes and returns spans. It never prints a statement: Cassandra gets the
// client's text without the spans of Statement.Cut.
//
// It has three readers, each as cheap as possible:
//
//   - Lexer returns tokens and nothing else.
//   - ReadHead returns verb and table from one pass without allocations; a
//     statement on an ordinary table needs nothing else.
//   - Parse reads a whole statement, for statements on critical tables and for the
//     proxy's own verbs.
//
// They must obey one rule: in every text that Cassandra accepts, they find the same verb,
// table, key and bind markers as Cassandra. They may accept texts that Cassandra
// refuses: then Cassandra refuses them later, and nothing is written. The grammar is
// that of Lexer.g and Parser.g in Cassandra 5.0, also where a rule here looks odd.
//
// The proxy's words (LOCK, UNLOCK, WAIT, LEASE, …) are not reserved: a table or
// a column may have any of these names.
package rewrite
