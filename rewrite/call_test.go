package rewrite

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Cast and Call recognise the terms that the proxy evaluates by itself: a cast of a literal, and
// functions such as uuid() and toTimestamp(now()).
func TestTermsThatStandForAConstant(t *testing.T) {
	for term, want := range map[string][3]string{
		"(text) 'x'": {"text", "'x'", ""}, "( TEXT )/**/'it''s'": {"text", "'it''s'", ""}, "(int)-5": {"int", "-5", ""}, "(boolean) true": {"boolean", "true", ""},
		"UUID ( )": {"", "", "uuid()"}, "now()": {"", "", "now()"}, "toTimestamp(/**/Now ( ) )": {"", "", "totimestamp(now())"},
		"(int) 5 + 1": {}, "(int)(5)": {}, "(frozen<int>) 5": {}, "(1, 2)": {}, "(int) ?": {}, "(int) f()": {}, "ks.now()": {}, "f(1)": {}, `"now"()`: {}, "now() + 1d": {}, "- now()": {}, "f(g(1))": {}, "f(g(), h())": {}, "f(g() + 1)": {}, "f(null)": {}, "f(ks.g())": {},
	} {
		text := "INSERT INTO t (k) VALUES (" + term + ")"
		s := parsed(t, text)
		typ, literal, _ := Cast([]byte(text), s.Where[0].Value)
		require.Equal(t, want, [3]string{typ, literal, Call([]byte(text), s.Where[0].Value)}, term)
	}
}
