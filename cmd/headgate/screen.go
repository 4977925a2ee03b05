package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
)

// screen is where top draws: over itself on a terminal, else one block after
// the other.
type screen struct {
	w        io.Writer
	redraws  bool
	coloured bool
}

// newScreen returns a screen. A plain one never moves the cursor.
func newScreen(w io.Writer, plain bool) *screen {
	terminal := isTerminal(w)
	return &screen{w: w, redraws: terminal && !plain, coloured: terminal && !config.Colourless()}
}

// open takes the terminal's other screen, so that what stood there comes back.
func (s *screen) open() {
	if s.redraws {
		_, _ = fmt.Fprint(s.w, "\x1b[?1049h\x1b[?25l")
	}
}

func (s *screen) close() {
	if s.redraws {
		_, _ = fmt.Fprint(s.w, "\x1b[?25h\x1b[?1049l")
	}
}

func (s *screen) paint(code, text string) string {
	if !s.coloured {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// draw shows v.
func (s *screen) draw(v *sight, by string) error {
	var b bytes.Buffer
	per := func(n uint64) string { return perSecond(n, v.Seconds) }
	fmt.Fprintf(&b, "%s  last %ds  requests/s: %s allowed, %s refused, %s delayed, %s queued, %s shadow banned, %s shadow refused\n",
		v.T.Format("15:04:05"), v.Seconds, per(v.Totals.Allowed), per(v.Totals.Refused), per(v.Totals.Delayed),
		per(v.Totals.Queued), per(v.Totals.ShadowBanned), per(v.Totals.ShadowRefused))
	fmt.Fprintf(&b, "store: circuit %s, %d keys\n\n", v.Store.Circuit, v.Store.Keys)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "DOMAIN\tRULE\tALLOWED/s\tREFUSED/s\tDELAYED/s\tQUEUED/s\tBANNED/s\tSHADOW/s\tNEAR/s")
	for i := range v.Rules {
		r := &v.Rules[i]
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", printable(r.Domain), printable(r.Rule), per(r.Allowed),
			per(r.Refused), per(r.Delayed), per(r.Queued), per(r.ShadowBanned), per(r.ShadowRefused), per(r.Near))
	}
	if len(v.Rules) == 0 {
		_, _ = fmt.Fprintln(t, "(no requests)")
	}
	_ = t.Flush() // a buffer takes everything
	for i := range v.Top {
		s.keys(&b, &v.Top[i], by)
	}
	return s.put(b.String())
}

// put shows a text.
func (s *screen) put(text string) error {
	text = s.headings(text)
	if s.redraws {
		text = "\x1b[H" + strings.ReplaceAll(text, "\n", "\x1b[K\n") + "\x1b[J"
	} else {
		text += "\n"
	}
	_, err := io.WriteString(s.w, text)
	return err
}

// keys lists the keys of one rule.
func (s *screen) keys(b *bytes.Buffer, r *app.TopRule, by string) {
	fmt.Fprintf(b, "\nKEYS of %s %s by %s, of %d in the last 5 to 10 minutes\n", printable(r.Domain), printable(r.Rule), by, r.Total)
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for i := range r.Keys {
		k := &r.Keys[i]
		count := fmt.Sprint(k.Count)
		if k.Error > 0 {
			count = fmt.Sprintf("%d (at most %d too many)", k.Count, k.Error)
		}
		_, _ = fmt.Fprintf(t, "  %s\t%.1f%%\t%s\n", count, 100*k.Share, shownKey(k))
	}
	_ = t.Flush() // a buffer takes everything
}

// headings paints the lines that begin a table.
func (s *screen) headings(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "DOMAIN ") || strings.HasPrefix(line, "CHANGE ") || strings.HasPrefix(line, "KEYS of ") {
			b.WriteString(s.paint("1", strings.TrimSuffix(line, "\n")) + "\n")
			continue
		}
		b.WriteString(line)
	}
	return b.String()
}

// shownKey writes a key for people. It comes from anybody, so nothing in it may
// move the cursor.
func shownKey(k *app.TopKey) string {
	if k.KeyHash != "" {
		return "#" + k.KeyHash
	}
	var parts []string
	for _, p := range k.Key {
		if p == nil {
			parts = append(parts, "(absent)")
			continue
		}
		parts = append(parts, printable(*p))
	}
	return strings.Join(parts, "  ")
}

// printable is text without what a terminal would obey, and not too long.
func printable(text string) string {
	const most = 80
	out := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, text)
	if runes := []rune(out); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return out
}

// perSecond writes a rate.
func perSecond(n uint64, seconds int) string {
	switch rate := float64(n) / float64(max(seconds, 1)); {
	case n == 0:
		return "0"
	case rate < 100:
		return fmt.Sprintf("%.1f", rate)
	default:
		return fmt.Sprintf("%.0f", rate)
	}
}
