package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes, written as 16MiB, 64KiB or plainly as 4096.
type Size int64

// The units that sizes are written in.
const (
	kibibyte Size = 1 << 10
	mebibyte Size = 1 << 20
	gibibyte Size = 1 << 30
)

// errSize says how sizes are written; parseSize adds the text that is none.
var errSize = errors.New("not a size like 16MiB, 64KiB or 4096")

// unit is a suffix of sizes and what it stands for.
type unit struct {
	suffix string
	bytes  Size
}

// units returns the known suffixes, the largest first and the plain byte last.
func units() []unit {
	return []unit{{"GiB", gibibyte}, {"MiB", mebibyte}, {"KiB", kibibyte}, {"B", 1}}
}

// String returns the size in the largest unit that divides it: "16MiB", "4097".
func (s Size) String() string {
	for _, u := range units() {
		if s != 0 && u.bytes > 1 && s%u.bytes == 0 {
			return strconv.FormatInt(int64(s/u.bytes), 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// parseSize reads what String writes, and a B after plain bytes. MB and M are refused: half of
// those who write them mean 10^6.
func parseSize(text string) (Size, error) {
	digits, factor := text, Size(1)
	for _, u := range units() {
		if rest, ok := strings.CutSuffix(text, u.suffix); ok {
			digits, factor = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/int64(factor) {
		return 0, fmt.Errorf("%w: %q", errSize, text)
	}
	return Size(n) * factor, nil
}
