package rewrite

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// The tables that a transaction writes are read from its statements, and what cannot be read is no transaction.
func TestTransactionsNameTheTablesThatTheyWrite(t *testing.T) {
	const begin, end = "BEGIN TRANSACTION ", "; COMMIT TRANSACTION"
	for text, want := range map[string][][2]string{
		begin + "SELECT a FROM ks.t WHERE k = 1" + end: nil,
		begin + "LET x = (SELECT a FROM ks.t WHERE k = 'UPDATE a'); IF x.a = 1 THEN UPDATE Other SET a = 1 WHERE k = 2; END IF COMMIT TRANSACTION;": {{"", "other"}},
		"begin /* */ transaction insert into \"Ks\".\"T\" (k) values (1); DELETE a, b[FROM_THERE] FROM /**/ ks . t WHERE k = 1" + end:               {{"Ks", "T"}, {"ks", "t"}},
		begin + "UPDATE ks.a SET v += 1 WHERE k = 1; UPDATE ks.b SET v = (UPDATE c) WHERE k = 1" + end:                                              {{"ks", "a"}, {"ks", "b"}, {"", "c"}},
	} {
		written, ok := TransactionWrites([]byte(text))
		assert.True(t, ok, text)
		assert.Equal(t, want, written, text)
	}
	for _, text := range []string{
		"BEGIN BATCH UPDATE t SET a = 1 WHERE k = 1 APPLY BATCH", begin + "UPDATE", begin + "INSERT t (k) VALUES (1)" + end, begin + "DELETE a", begin + "DELETE FROM 'x'" + end, begin + "SELECT 'x", begin + "UPDATE 5 SET a = 1" + end,
		"UPDATE t SET a = 1 WHERE k = 1", "", "EXPLAIN " + begin + "SELECT a FROM t" + end,
	} {
		_, ok := TransactionWrites([]byte(text))
		assert.False(t, ok, text)
	}
}
