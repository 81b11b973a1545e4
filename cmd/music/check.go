package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"music/check"
)

func (p program) checkCommand() *cobra.Command {
	var from login
	form := outText
	command := &cobra.Command{
		Use: "check", Short: "Look at proxies and nodes, and say what is fine and what is not",
		Long: "Look at proxies and nodes, and say of each thing on a line whether it is fine, or what is wrong and what to type. Nothing is changed.\n" +
			"All proxies that are known are asked. A superuser sees most; what a login may not see is said.\n\n" +
			"Ends with status 0 where all is fine, 1 with warnings, 2 with faults.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if form != outText && form != outJSON {
				return errOutput
			}
			o, err := from.options()
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			var findings []check.Finding
			if facts, err := check.Look(ctx, o); err == nil {
				findings = check.Judge(facts)
			} else {
				findings = []check.Finding{check.NoAnswer(err)}
			}
			if err := writeFindings(p.stdout, form, findings); err != nil {
				return failed{err}
			}
			return ended(check.Status(findings))
		},
	}
	from.flags(command.Flags())
	command.Flags().StringVarP(&form, "output", "o", outText, "text, or json: an array")
	return command
}

// findingIndent is where the text of a finding begins.
const findingIndent = 9

// writeFindings writes a line for each finding, and below it what to do.
func writeFindings(out io.Writer, form string, all []check.Finding) error {
	if form == outJSON {
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(all)
	}
	var text strings.Builder
	width := widthOf(out)
	for _, f := range all {
		line := strings.ReplaceAll(f.Topic+": "+f.Text, "\n", "; ")
		fmt.Fprintf(&text, "%-*s%s\n", findingIndent, f.Level, wrapped(printable(line), width))
		if f.Do != "" {
			fmt.Fprintf(&text, "%*s→ %s\n", findingIndent, "", wrapped(f.Do, width))
		}
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// wrapped returns a text on lines that fit a terminal after the indent; width 0 = one line. A
// longer word is not broken.
func wrapped(text string, width int) string {
	room := width - findingIndent - 2
	if width == 0 || room < 10 {
		return text
	}
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > room {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return strings.Join(append(lines, line), "\n"+strings.Repeat(" ", findingIndent+2))
}
