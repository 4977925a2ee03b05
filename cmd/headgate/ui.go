package main

// What the commands print:
//
//   - Data, what somebody asked for, goes to standard output; --json makes it
//     fit for machines.
//   - Everything else goes to standard error: "error: …", then the excerpt if
//     there is one, then "hint: …". No capitals at the beginning, no periods at
//     the end.
//   - Colour only on a terminal, and never with NO_COLOR set.
//
// Exit codes: 0 done; 1 the input is wrong, or it failed; 2 wrong usage, also a
// wrong value of a flag; 130 cut short by a second signal.

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

// usageError is a command line that makes no sense.
type usageError struct{ message, hint string }

func (e *usageError) Error() string { return e.message }

// hintedError is an error with what to do about it.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

// Hint says what to do about it.
func (e *hintedError) Hint() string { return e.hint }

// failedError says that everything has been said already and the exit code is
// what is left.
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

// paint writes diagnostics, in colour if that is wanted.
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

// inert is text of others, such as the name of a file, in which what a terminal
// would obey is written out. Further lines are indented, so that none looks like
// one of ours.
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

// isObeyed reports whether terminals do something at r but to show it: control
// characters but tabs, and what changes the direction of writing.
func isObeyed(r rune) bool {
	return unicode.IsControl(r) && r != '\t' && r != '\n' || unicode.Is(unicode.Bidi_Control, r)
}

// painted is text that is ours, or has been made inert, with our colours.
type painted string

// in returns text in a colour.
func (p paint) in(colour, text string) painted {
	if text = inert(text); !p.colour {
		return painted(text)
	}
	return painted(colour + text + "\x1b[0m")
}

// printf writes a text. Arguments that are strings may be of others, and are made
// inert.
func (p paint) printf(format string, args ...any) {
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = inert(text)
		}
	}
	_, _ = fmt.Fprintf(p.w, format, args...)
}

// diagnoses prints each with its excerpt and hint.
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

// skipped says which files were not read.
func (p paint) skipped(list []string) {
	for _, text := range list {
		p.line("skipped", text)
	}
}

// overwritten is a line on a terminal that is written again and again.
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

// printJSON prints v for machines and for people.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// isTerminal reports whether w is a device that people look at.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && info.Name() != "null"
}
