// Package rewrite reads CQL text: what a statement does to which table, where
// its key and the proxy's own clauses stand, and how to cut those out.
//
// Bytes in, spans out. Nothing is ever printed anew: what Cassandra gets is the
// client's text less the spans of Statement.Cut.
//
// Three readers, each as cheap as its question allows:
//
//   - Lexer gives tokens and nothing else.
//   - ReadHead gives verb and table from one pass that allocates nothing; it is
//     all that a statement on an ordinary table ever costs.
//   - Parse reads a statement whole, for those on critical tables and for the
//     proxy's own verbs.
//
// The rule they are held to: on every text that Cassandra accepts, verb, table,
// key and bind markers are what Cassandra takes them for. On what Cassandra
// refuses they may be lax: a text that is read too kindly is refused one hop
// later, and nothing is written. Cassandra's grammar is Lexer.g and Parser.g of
// 5.0; where a rule here looks odd, it is theirs.
//
// The proxy's words (LOCK, UNLOCK, WAIT, LEASE, …) stay ordinary identifiers: a table or
// a column may bear any of them.
package rewrite
