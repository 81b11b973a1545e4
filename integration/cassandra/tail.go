package cassandra

import (
	"bytes"
	"io"
	"os"
)

// lastLines returns the last n lines of text.
func lastLines(text []byte, n int) []byte {
	text = bytes.TrimRight(text, "\n")
	at := len(text)
	for ; n > 0 && at >= 0; n-- {
		at = bytes.LastIndexByte(text[:at], '\n')
	}
	return text[at+1:]
}

// tail returns the last n lines of the file at path, as far as its last 16 KiB hold them; nothing if it cannot be read.
func tail(path string, n int) []byte {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	_, _ = file.Seek(-16<<10, io.SeekEnd) // refused for a shorter file, which is then read from its start
	text, _ := io.ReadAll(file)
	return lastLines(text, n)
}
