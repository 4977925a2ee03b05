package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/plain"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/observe/top"
)

// screen shows updates: it redraws on a terminal, and otherwise prints one block
// after another.
type screen struct {
	w        io.Writer
	redraws  bool
	coloured bool
	size     func() (columns, rows int) // 0 if unknown

	mu   sync.Mutex
	last func(columns int) string // what is shown, to redraw when the size changes
	// below is what a note is above, or nil without one.
	below func(columns int) string
	done  bool
}

// newScreen returns a screen. A plain one never moves the cursor, nor does one of a terminal
// that cannot.
func newScreen(w io.Writer, plain bool) *screen {
	terminal := isTerminal(w)
	s := &screen{w: w, redraws: terminal && !plain && !config.Dumb(), coloured: terminal && !config.Colourless()}
	if f, ok := w.(*os.File); ok && s.redraws {
		s.size = func() (int, int) { return terminalSize(f) }
	}
	return s
}

// open switches to the terminal's alternate screen, hides the cursor and turns
// off line wrapping. The function it returns restores the terminal.
func (s *screen) open() (restore func()) {
	if !s.redraws {
		return func() {}
	}
	_, _ = fmt.Fprint(s.w, "\x1b[?1049h\x1b[?25l\x1b[?7l")
	stop := s.follow()
	return func() {
		stop()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.done = true
		_, _ = fmt.Fprint(s.w, "\x1b[?7h\x1b[?25h\x1b[?1049l")
	}
}

// follow redraws whenever the terminal is resized.
func (s *screen) follow() (stop func()) {
	signals := resized()
	if len(signals) == 0 {
		return func() {}
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, signals...)
	go func() {
		for range c {
			s.mu.Lock()
			if s.last != nil && !s.done {
				_ = s.put(s.last) // the next interval reports the error
			}
			s.mu.Unlock()
		}
	}()
	return func() {
		signal.Stop(c)
		close(c)
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
	return s.show(func(columns int) string { return s.text(v, by, columns) })
}

// show shows a text that is made for a number of columns; 0 means no limit.
func (s *screen) show(text func(columns int) string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.below = text, nil
	return s.put(text)
}

// note shows a line above what is shown, until the next update.
func (s *screen) note(line string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	below := s.below
	if below == nil {
		below = s.last
		s.below = below
	}
	s.last = func(columns int) string {
		text := s.paint("1", wrapped(line, columns)) + "\n"
		if below != nil {
			text += below(columns)
		}
		return text
	}
	return s.put(s.last)
}

// text formats v for people.
func (s *screen) text(v *sight, by string, columns int) string {
	var b bytes.Buffer
	per := func(n uint64) string { return perSecond(n, v.Seconds) }
	when := fmt.Sprintf("%s  last %ds  ", v.T.Format("15:04:05"), v.Seconds)
	totals := fmt.Sprintf("requests/s: %s allowed, %s refused, %s delayed, %s queued, %s shadow banned, %s shadow refused",
		per(v.Totals.Allowed), per(v.Totals.Refused), per(v.Totals.Delayed),
		per(v.Totals.Queued), per(v.Totals.ShadowBanned), per(v.Totals.ShadowRefused))
	if v.Totals.Marked > 0 {
		totals += ", " + per(v.Totals.Marked) + " marked"
	}
	fmt.Fprintln(&b, wrapped(when+totals, columns))
	circuit := v.Store.Circuit
	if circuit == "closed" {
		circuit = "closed (healthy)"
	}
	if v.Store.Kind == "memory" { // which has none
		fmt.Fprintf(&b, "store: memory, %d keys\n\n", v.Store.Keys)
	} else {
		fmt.Fprintf(&b, "store: circuit breaker %s, %d keys\n\n", circuit, v.Store.Keys)
	}
	ruleTable(&b, v, columns)
	for i := range v.Top {
		s.keys(&b, &v.Top[i], by)
	}
	return b.String()
}

// wrapped breaks a line at blanks to fit into columns.
func wrapped(line string, columns int) string {
	if columns <= 0 || len(line) <= columns {
		return line
	}
	var b strings.Builder
	at := 0
	for i, word := range strings.Fields(line) {
		switch {
		case i == 0:
		case at+1+len(word) > columns:
			b.WriteString("\n")
			at = 0
		default:
			b.WriteString(" ")
			at++
		}
		b.WriteString(word)
		at += len(word)
	}
	return b.String()
}

// ruleTable writes a table of the rules' decisions. If the terminal is too narrow
// it leaves out empty columns.
func ruleTable(b *bytes.Buffer, v *sight, columns int) {
	heads := []string{"ALLOWED/s", "REFUSED/s", "DELAYED/s", "QUEUED/s", "BANNED/s", "SHADOW/s", "MARKED/s", "NEAR/s"}
	counts := func(r *metrics.RuleTick) []uint64 {
		return []uint64{r.Allowed, r.Refused, r.Delayed, r.Queued, r.ShadowBanned, r.ShadowRefused, r.Marked, r.Near}
	}
	table := func(shown []bool) string {
		var out bytes.Buffer
		t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
		line := func(domain, rule string, cells []string) {
			parts := []string{domain, rule}
			for i, c := range cells {
				if shown[i] {
					parts = append(parts, c)
				}
			}
			_, _ = fmt.Fprintln(t, strings.Join(parts, "\t"))
		}
		line("DOMAIN", "RULE", heads)
		for i := range v.Rules {
			r := &v.Rules[i]
			var cells []string
			for _, n := range counts(r) {
				cells = append(cells, perSecond(n, v.Seconds))
			}
			line(printable(r.Domain), printable(r.Rule), cells)
		}
		if len(v.Rules) == 0 {
			_, _ = fmt.Fprintln(t, "(no requests)")
		}
		_ = t.Flush() // a buffer takes everything
		return out.String()
	}
	const marked = 6 // a column that few have
	some := slices.ContainsFunc(v.Rules, func(r metrics.RuleTick) bool { return r.Marked > 0 })
	shown := []bool{true, true, true, true, true, true, marked: some, true}
	text := table(shown)
	if first, _, _ := strings.Cut(text, "\n"); columns > 0 && len(first) > columns {
		for i := range shown {
			shown[i] = i < 2
			for j := range v.Rules {
				shown[i] = shown[i] || counts(&v.Rules[j])[i] > 0
			}
		}
		text = table(shown)
	}
	b.WriteString(text)
}

// put shows a text, cut to the size of the terminal. s.mu must be held.
func (s *screen) put(text func(columns int) string) error {
	columns, rows := 0, 0
	if s.size != nil {
		columns, rows = s.size()
	}
	out := text(columns)
	if s.redraws {
		out = "\x1b[H" + strings.ReplaceAll(s.headings(fitted(out, columns, rows)), "\n", "\x1b[K\n") + "\x1b[K\x1b[J"
	} else {
		out = s.headings(out) + "\n"
	}
	_, err := io.WriteString(s.w, out)
	return err
}

// fitted cuts text to a terminal's size, where 0 means unknown, and says how
// many lines are missing.
func fitted(text string, columns, rows int) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if rows > 0 && len(lines) > rows {
		left := len(lines) - rows + 1
		lines = append(lines[:rows-1:rows-1], fmt.Sprintf("… %d more lines: enlarge the window or use --once", left))
	}
	for i, line := range lines {
		if runes := []rune(line); columns > 0 && len(runes) > columns {
			lines[i] = string(runes[:columns-1]) + "…"
		}
	}
	out := strings.Join(lines, "\n")
	if rows > 0 && len(lines) == rows {
		return out // one more line would scroll the first one away
	}
	return out + "\n"
}

// keys lists the keys of one rule.
func (s *screen) keys(b *bytes.Buffer, r *admin.TopRule, by string) {
	which := "of"
	if by == top.Refused.String() {
		which = "over the limit of"
	}
	fmt.Fprintf(b, "\nKEYS %s %s %s: %s in the last 5 to 10 minutes\n", which, printable(r.Domain), printable(r.Rule), plain.Count(r.Total, "request"))
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for i := range r.Keys {
		k := &r.Keys[i]
		count := fmt.Sprint(k.Count)
		if k.Error > 0 {
			count = fmt.Sprintf("%d (at most %d too many)", k.Count, k.Error)
		}
		_, _ = fmt.Fprintf(t, "  %s\t%.1f%%\t%s\n", count, 100*k.Share, shownKey(k.Key))
	}
	_ = t.Flush() // a buffer takes everything
}

// headings paints the first lines of tables.
func (s *screen) headings(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "DOMAIN ") || strings.HasPrefix(line, "CHANGE ") || strings.HasPrefix(line, "KEYS ") {
			heading, ends := strings.CutSuffix(line, "\n")
			if line = s.paint("1", heading); ends {
				line += "\n"
			}
		}
		b.WriteString(line)
	}
	return b.String()
}

// shownKey formats a key for people. Keys come from untrusted clients, so what is not seen
// is escaped, as --key reads it.
func shownKey(k metrics.Key) string {
	if k.Hash != "" {
		return "#" + k.Hash
	}
	var parts []string
	for _, p := range k.Parts {
		if p == nil {
			parts = append(parts, "(absent)")
			continue
		}
		parts = append(parts, printable(*p))
	}
	return strings.Join(parts, "  ")
}

// printable escapes what is not seen in text, and shortens it.
func printable(text string) string {
	const most = 80
	out := clip.Escape(text)
	if runes := []rune(out); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return out
}

// perSecond formats a rate.
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
