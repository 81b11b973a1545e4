package rewrite

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Cast and Call recognise the terms that the proxy evaluates by itself: a cast of a literal, uuid()
// and now().
func TestTermsThatStandForAConstant(t *testing.T) {
	for term, want := range map[string][3]string{
		"(text) 'x'": {"text", "'x'", ""}, "( TEXT )/**/'it''s'": {"text", "'it''s'", ""}, "(int)-5": {"int", "-5", ""}, "(boolean) true": {"boolean", "true", ""},
		"UUID ( )": {"", "", "uuid"}, "now()": {"", "", "now"},
		"(int) 5 + 1": {}, "(int)(5)": {}, "(frozen<int>) 5": {}, "(1, 2)": {}, "(int) ?": {}, "(int) f()": {}, "ks.now()": {}, "f(1)": {}, `"now"()`: {}, "now() + 1d": {}, "- now()": {},
	} {
		text := "INSERT INTO t (k) VALUES (" + term + ")"
		s := parsed(t, text)
		typ, literal, _ := Cast([]byte(text), s.Where[0].Value)
		function, _ := Call([]byte(text), s.Where[0].Value)
		require.Equal(t, want, [3]string{typ, literal, function}, term)
	}
}
