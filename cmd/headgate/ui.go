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
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
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
	p.diagnoses(app.Diagnose(err))
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
	_, _ = fmt.Fprintf(p.w, "%s: %s\n", label, text)
}

// diagnoses prints each with its excerpt and hint.
func (p paint) diagnoses(list []app.Diagnosis) {
	for _, d := range list {
		text := d.Message
		if d.Position != "" {
			text = d.Position + ": " + text
		}
		p.line(d.Severity, text)
		for line := range strings.Lines(d.Excerpt) {
			_, _ = fmt.Fprint(p.w, "  ", line)
		}
		p.line("hint", d.Hint)
	}
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
