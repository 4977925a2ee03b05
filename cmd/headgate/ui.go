package main

// Output of the commands:
//
//   - The result goes to standard output, for machines with --json.
//   - Everything else goes to standard error: "error: …", then an excerpt if
//     there is one, then "hint: …". Lower case, no full stop.
//   - Colour only on a terminal, and never with NO_COLOR set or TERM=dumb.
//
// Exit codes: 0 success; 1 failure or wrong input; 2 wrong usage, including wrong
// flag values; 130 stopped by a second signal.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/replay/offline"
)

const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	exitForced = 130
)

// streams are where a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// usageError is a wrong command line.
type usageError struct{ message, hint string }

func (e *usageError) Error() string { return e.message }

// hintedError is an error with a hint.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

// Hint returns what to do about the error.
func (e *hintedError) Hint() string { return e.hint }

// failedError sets the exit code; the error has been printed already.
type failedError struct{ code int }

func (e *failedError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// report prints err and returns the exit code.
func report(w io.Writer, err error) int {
	var usage *usageError
	var failed *failedError
	p := newPaint(w)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &failed):
		return failed.code
	case errors.Is(err, app.ErrForced):
		p.line("error", err.Error())
		return exitForced
	case errors.As(err, &usage):
		p.line("error", usage.message)
		p.line("hint", usage.hint)
		return exitUsage
	}
	p.diagnoses(offline.Diagnose(err))
	if source, ok := errors.AsType[*config.SourceError](err); ok && strings.HasPrefix(source.Source, "--") {
		return exitUsage
	}
	return exitFailed
}

// paint writes diagnostics, in colour if enabled.
type paint struct {
	w      io.Writer
	colour bool
}

func newPaint(w io.Writer) paint {
	return paint{w, isTerminal(w) && !config.Colourless()}
}

// line prints "label: text", or nothing if there is no text.
func (p paint) line(label, text string) {
	if text == "" {
		return
	}
	colours := map[string]string{"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "hint": "\x1b[1;36m"}
	if p.colour {
		label = colours[label] + label + "\x1b[0m"
	}
	_, _ = fmt.Fprintf(p.w, "%s: %s\n", label, inert(text))
}

// inert escapes the control characters in untrusted text, such as a file name.
// Further lines are indented, so that they cannot pass for our own.
func inert(text string) string {
	if !strings.ContainsFunc(text, isObeyed) && !strings.Contains(text, "\n") {
		return text
	}
	var b strings.Builder
	for _, r := range strings.TrimRight(text, "\n") {
		switch quoted := strconv.QuoteToASCII(string(r)); {
		case r == '\n':
			b.WriteString("\n  ")
		case isObeyed(r):
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// isObeyed reports whether a terminal acts on r rather than shows it: control
// characters except tabs, and characters that change the text direction.
func isObeyed(r rune) bool {
	return unicode.IsControl(r) && r != '\t' && r != '\n' || unicode.Is(unicode.Bidi_Control, r)
}

// painted is our own or inert text, with colours.
type painted string

// in returns text in a colour.
func (p paint) in(colour, text string) painted {
	if text = inert(text); !p.colour {
		return painted(text)
	}
	return painted(colour + text + "\x1b[0m")
}

// printf writes a text. String arguments are made inert.
func (p paint) printf(format string, args ...any) {
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = inert(text)
		}
	}
	_, _ = fmt.Fprintf(p.w, format, args...)
}

// diagnoses prints each diagnosis with its excerpt and hint.
func (p paint) diagnoses(list []offline.Diagnosis) {
	for _, d := range list {
		text := d.Message
		if d.Position != "" {
			text = d.Position + ": " + text
		}
		p.line(d.Severity, text)
		for line := range strings.Lines(d.Excerpt) {
			_, _ = fmt.Fprintf(p.w, "  %s\n", inert(line))
		}
		p.line("hint", d.Hint)
	}
}

// skipped prints which files were not read.
func (p paint) skipped(list []string) {
	for _, text := range list {
		p.line("skipped", text)
	}
}

// overwritten is a line on a terminal that is rewritten in place.
type overwritten struct {
	paint
	width int
}

func (o *overwritten) write(line string) {
	_, _ = fmt.Fprintf(o.w, "\r%-*s", o.width, line)
	o.width = len([]rune(line))
}

// clear removes the line.
func (o *overwritten) clear() {
	if o.width > 0 {
		_, _ = fmt.Fprintf(o.w, "\r%*s\r", o.width, "")
		o.width = 0
	}
}

// printJSON prints v as indented JSON.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	return isScreen(f)
}
