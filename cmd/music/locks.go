package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"music/client"
)

// The forms of output.
const (
	outText = "text"
	outJSON = "json"
)

// What is wrong with the flags.
var (
	errOutput = errors.New("-o is text or json")
	errEvery  = errors.New("--every is below 0.1s")
)

// mostOften is the shortest time between two listings: each asks all proxies.
const mostOften = 100 * time.Millisecond

// locksView is one call of `music locks`.
type locksView struct {
	login  login
	form   string
	watch  bool
	every  time.Duration
	out    io.Writer
	beside io.Writer // for warnings where out is for a program
	screen bool      // out is a terminal
}

func (p program) locksCommand() *cobra.Command {
	v := &locksView{out: p.stdout, beside: p.stderr, screen: terminal(p.stdout)}
	command := &cobra.Command{
		Use: "locks [ON] [TABLE [KEY...]]", Short: "List who holds locks and who waits",
		Long: "List who holds locks and who waits for them, at all proxies: of all tables, of one, or of one key.\n" +
			"KEY is the value of the partition key, or column=value for each column of the key.",
		Example: "  music locks\n  music locks bank.accounts --watch\n  music locks bank.accounts branch=zurich -o json",
		RunE: func(_ *cobra.Command, args []string) error {
			if v.form != outText && v.form != outJSON {
				return errOutput
			}
			if v.every < mostOften {
				return errEvery
			}
			if len(args) > 0 && strings.EqualFold(args[0], "on") {
				args = args[1:]
			}
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return v.run(ctx, args)
		},
	}
	v.login.flags(command.Flags())
	command.Flags().StringVarP(&v.form, "output", "o", outText, "text, or json: an array, with --watch one a line")
	command.Flags().BoolVarP(&v.watch, "watch", "w", false, "show them again and again, until interrupted")
	command.Flags().DurationVar(&v.every, "every", time.Second, "with --watch: how often")
	return command
}

// run lists once, or until ctx ends.
func (v *locksView) run(ctx context.Context, args []string) error {
	s, err := v.login.open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	var k client.Key
	if len(args) == 1 {
		k.Table = args[0]
	} else if len(args) > 1 {
		if k, err = keyWords(ctx, s, args); err != nil {
			return err
		}
	}
	for {
		err := v.show(ctx, s, k)
		if ctx.Err() != nil && v.watch {
			return nil
		}
		if err != nil && (!v.watch || client.Answered(err)) {
			return failed{err}
		}
		if !v.watch {
			return nil
		}
		if err != nil {
			err = s.Next(ctx) // another proxy lists the same
		}
		if err != nil && !v.screen {
			return failed{err}
		}
		if !client.Pause(ctx, v.every) {
			return nil
		}
	}
}

// show reads the locks once and writes them.
func (v *locksView) show(ctx context.Context, s *client.Session, k client.Key) error {
	all, warnings, err := s.List(ctx, k)
	if err != nil {
		return err
	}
	return v.write(all, warnings, s.Address())
}

// write writes the locks that the proxy at an address has listed, and its warnings: without these, locks that are not shown would
// be taken for none.
func (v *locksView) write(all []client.Listing, warnings []string, address string) error {
	if v.form == outJSON {
		for _, warning := range warnings {
			_, _ = fmt.Fprintf(v.beside, "music: warning: %s\n", printable(warning))
		}
		return v.writeJSON(all)
	}
	var text strings.Builder
	if v.watch && v.screen {
		text.WriteString("\x1b[H\x1b[2J")
	}
	text.WriteString(lockTable(all, widthOf(v.out)))
	for _, warning := range warnings {
		fmt.Fprintf(&text, "warning: %s\n", printable(warning))
	}
	if v.watch {
		fmt.Fprintf(&text, "%d at %s, by %s\n", len(all), time.Now().Format(time.TimeOnly), address)
	}
	_, err := io.WriteString(v.out, text.String())
	return err
}

// writeJSON writes one array on a line.
func (v *locksView) writeJSON(all []client.Listing) error {
	if all == nil {
		all = []client.Listing{}
	}
	encoder := json.NewEncoder(v.out)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(all)
}

// lockTable returns a line for each lock, or several short ones if lines would be wider than width
// (0 = any).
func lockTable(all []client.Listing, width int) string {
	if len(all) == 0 {
		return "no locks\n"
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "TABLE\tKEY\tPOSITION\tSTATE\tHOLDER\tAGE\tLEASE\tNUMBER")
	for _, l := range all {
		_, _ = fmt.Fprintln(table, strings.Join(lockCells(l), "\t"))
	}
	_ = table.Flush()
	for line := range strings.Lines(text.String()) {
		if width > 0 && len([]rune(strings.TrimRight(line, " \n"))) > width {
			return lockList(all)
		}
	}
	return text.String()
}

// lockList returns a few lines for each lock.
func lockList(all []client.Listing) string {
	var text strings.Builder
	for _, l := range all {
		c := lockCells(l)
		fmt.Fprintf(&text, "%s %s\n  %s, position %s, number %s\n", c[0], c[1], c[3], c[2], c[7])
		fmt.Fprintf(&text, "  by %s\n  since %s, lease %s\n", c[4], c[5], c[6])
	}
	return text.String()
}

// lockCells returns a lock as text.
func lockCells(l client.Listing) []string {
	holder, number, lease := "-", "-", "-"
	if l.Holder != nil {
		holder = printable(*l.Holder)
	}
	if l.Number != nil {
		number = strconv.FormatInt(*l.Number, 10)
	}
	if l.Position == 0 {
		lease = shortTime(l.LeaseMS)
	}
	return []string{printable(l.Table), printable(l.Key), strconv.Itoa(l.Position), l.State, holder, shortTime(l.AgeMS), lease, number}
}

// shortTime returns a number of milliseconds as text.
func shortTime(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	if d >= time.Minute {
		return d.Round(time.Second).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// printable returns a text, quoted if not all of its characters can be printed: clients choose the
// names that are shown here.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// widthOf returns the number of columns of a terminal; 0 if out is not one.
func widthOf(out io.Writer) int {
	if !terminal(out) {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(out.(*os.File).Fd()), unix.TIOCGWINSZ) //nolint:forcetypeassert // terminal has looked
	if err != nil {
		return 0
	}
	return int(size.Col)
}
