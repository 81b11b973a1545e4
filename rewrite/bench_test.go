package rewrite

import "testing"

// typical are statements as applications send them.
func typical() map[string][]byte {
	return map[string][]byte{
		"select":    []byte("SELECT id, balance, updated FROM bank.accounts WHERE branch = ? AND id = ?"),
		"insert":    []byte("INSERT INTO bank.accounts (branch, id, balance) VALUES (?, ?, ?)"),
		"update":    []byte("UPDATE bank.accounts SET balance = ?, updated = ? WHERE branch = ? AND id = ?"),
		"delete":    []byte("DELETE FROM bank.accounts WHERE branch = 'zurich' AND id = 'x'"),
		"batch":     []byte("BEGIN BATCH UPDATE a SET v = 1 WHERE k = 1; UPDATE a SET v = 2 WHERE k = 2; APPLY BATCH"),
		"fenced":    []byte("UPDATE bank.accounts USING LOCK ? SET balance = ? WHERE branch = ? AND id = ?"),
		"lock":      []byte("SELECT LOCK bank.accounts WHERE branch = ? AND id = ? WAIT 5s"),
		"system":    []byte("SELECT host_id, rpc_address, data_center, rack, tokens FROM system.local WHERE key='local'"),
		"formatted": []byte("\n\t\tSELECT id,\n\t\t       balance -- in cents\n\t\tFROM bank.accounts\n\t\tWHERE branch = ?"),
	}
}

// BenchmarkReadHead measures the look that every QUERY and PREPARE gets.
func BenchmarkReadHead(b *testing.B) {
	for name, text := range typical() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ReadHead(text, true)
			}
		})
	}
}

// BenchmarkLexer measures the tokens of a whole statement.
func BenchmarkLexer(b *testing.B) {
	for name, text := range typical() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				lexer := NewLexer(text)
				for lexer.Next().Kind != TokenEOF {
				}
			}
		})
	}
}

// BenchmarkParse measures Parse, which reads statements on critical tables.
func BenchmarkParse(b *testing.B) {
	for name, text := range typical() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = Parse(text)
			}
		})
	}
}
