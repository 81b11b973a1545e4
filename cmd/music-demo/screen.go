package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
	"golang.org/x/sys/unix"
)

// style is how a piece of text looks, as the terminal's own code for it.
type style string

// The styles of the screen, one for each kind of thing that is told.
const (
	plain  style = ""
	bold   style = "1"
	dim    style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
	cyan   style = "36"
)

// The measures of the screen, in characters.
const (
	narrowest = 72  // of a terminal that gets two columns
	widest    = 120 // lines that are longer are hard to read
	plainLine = 76  // length of a line of words where there are no columns
	gap       = 2   // between the columns
)

// screen tells the story. At a terminal words stand in the left column and what is sent in the
// right one; elsewhere it writes plain lines, words above what is sent. Its methods may be called
// by several goroutines.
type screen struct {
	out         io.Writer
	colour      bool
	live        bool // there is a line that changes in place
	left, right int  // widths of the columns; 0, 0 = none

	mu       sync.Mutex
	pending  []string // lines of the left column that have nothing beside them yet
	changing bool     // the cursor stands in the line that changes
}

// newScreen returns a screen that fits its output.
func newScreen(out *os.File) *screen {
	if !isatty.IsTerminal(out.Fd()) {
		return &screen{out: out}
	}
	s := &screen{out: out, live: true, colour: os.Getenv("NO_COLOR") == ""}
	if size, err := unix.IoctlGetWinsize(int(out.Fd()), unix.TIOCGWINSZ); err == nil {
		s.split(int(size.Col))
	}
	return s
}

// split makes two columns of a width, if it is wide enough. The last place of a line stays free:
// some terminals go on to the next line when it is written.
func (s *screen) split(width int) {
	if width < narrowest {
		return
	}
	width = min(width, widest) - 1
	s.left = width * 35 / 100
	s.right = width - gap - s.left
}

// title begins a step.
func (s *screen) title(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flush()
	s.line("\n" + s.paint(bold, text))
}

// say tells what happens next, in words. What is sent then stands beside them.
func (s *screen) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flush()
	text := fmt.Sprintf(format, args...)
	if s.right > 0 {
		s.pending = wrap(text, s.left)
		return
	}
	for _, line := range wrap(text, plainLine) {
		s.line("   " + line)
	}
}

// beside writes a text of one or more lines into the right column, a prompt before it.
func (s *screen) beside(look style, prompt, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for line := range strings.SplitSeq(text, "\n") {
		s.besideLine(look, prompt, line)
		prompt = strings.Repeat(" ", utf8.RuneCountInString(prompt))
	}
}

// besideLine writes one line of such a text. Where there are no columns it is not wrapped: it may
// be copied.
func (s *screen) besideLine(look style, prompt, text string) {
	if s.right == 0 {
		s.line("     " + s.paint(look, prompt) + " " + text)
		return
	}
	for _, part := range wrap(text, s.right-utf8.RuneCountInString(prompt)-1) {
		s.row(s.paint(look, prompt) + " " + part)
		prompt = strings.Repeat(" ", utf8.RuneCountInString(prompt))
	}
}

// row writes a line of the right column beside the next one of the left.
func (s *screen) row(right string) {
	words := ""
	if len(s.pending) > 0 {
		words, s.pending = s.pending[0], s.pending[1:]
	}
	s.line(words + strings.Repeat(" ", s.left+gap-utf8.RuneCountInString(words)) + right)
}

// verdict says that a step showed what it should.
func (s *screen) verdict(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flush()
	for _, line := range wrap(fmt.Sprintf(format, args...), max(s.left+gap+s.right, plainLine)-3) {
		s.line("   " + s.paint(green, line))
	}
}

// note writes a line that stands for itself.
func (s *screen) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flush()
	s.line(fmt.Sprintf(format, args...))
}

// change shows a text in the line that changes in place, until something else is written. Where
// there is none it does nothing.
func (s *screen) change(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.live {
		return
	}
	s.flush()
	text := []rune("   " + fmt.Sprintf(format, args...))
	if width := s.left + gap + s.right; s.right > 0 && len(text) > width {
		text = text[:width]
	}
	s.write("\r\x1b[K" + s.paint(yellow, string(text)))
	s.changing = true
}

// rest leaves the cursor at the start of a line, for the next writer.
func (s *screen) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flush()
	if s.changing {
		s.write("\r\x1b[K")
		s.changing = false
	}
}

// Write notes lines of progress that others tell.
func (s *screen) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		s.note("%s", s.paint(dim, strings.TrimRight(line, "\n")))
	}
	return len(p), nil
}

// flush writes the words that are still to come of the left column.
func (s *screen) flush() {
	for len(s.pending) > 0 {
		s.row("")
	}
}

// line writes a line. What changes in place makes room for it.
func (s *screen) line(text string) {
	if s.changing {
		s.write("\r\x1b[K")
		s.changing = false
	}
	s.write(strings.TrimRight(text, " ") + "\n")
}

// write writes text. An error is ignored: the steps are checked even if no one reads.
func (s *screen) write(text string) { _, _ = io.WriteString(s.out, text) }

// paint gives a text its look, where there are colours.
func (s *screen) paint(look style, text string) string {
	if !s.colour || look == plain {
		return text
	}
	return "\x1b[" + string(look) + "m" + text + "\x1b[0m"
}

// wrap breaks a text into lines of at most width, between words; only a word that is longer than a
// line is cut. A text's own indent is kept by all its lines.
func wrap(text string, width int) []string {
	words := strings.TrimLeft(text, " ")
	indent := strings.Repeat(" ", min(len(text)-len(words), width/2))
	width -= len(indent)
	var lines []string
	line := ""
	for _, word := range strings.Fields(words) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width {
			line += " " + word
			continue
		}
		if line != "" {
			lines = append(lines, indent+line)
		}
		for utf8.RuneCountInString(word) > width {
			head := string([]rune(word)[:width])
			lines, word = append(lines, indent+head), word[len(head):]
		}
		line = word
	}
	return append(lines, indent+line)
}
