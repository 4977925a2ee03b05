package simulate

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
)

// writer keeps the first error.
type writer struct {
	w   io.Writer
	err error
}

func (w *writer) printf(format string, args ...any) {
	if w.err == nil {
		_, w.err = fmt.Fprintf(w.w, format, args...)
	}
}

// WriteText writes the report as text, with at most top keys for each rule.
func (r *Report) WriteText(out io.Writer, top int) error {
	w := &writer{w: out}
	w.printf("%s", r.summary())
	w.rules(r.Rules)
	for i := range r.Rules {
		w.keys(&r.Rules[i], top)
	}
	if r.Memory.Keys > 0 {
		w.printf("\nPeak store size: %s, %s.\n", Plural(r.Memory.Keys, "key"), size(r.Memory.Bytes))
	}
	if c := r.Compare; c != nil {
		c.write(w, top)
	}
	return w.err
}

// summary is the first line.
func (r *Report) summary() string {
	if r.Requests == 0 {
		return "no requests\n"
	}
	text := fmt.Sprintf("%s from %s to %s: %s allowed, %s refused (%s)", Plural(r.Requests, "request"),
		r.From.Format(time.DateTime), r.To.Format(time.DateTime), Thousands(r.Allowed), Thousands(r.Refused), percent(r.Refused, r.Requests))
	if r.Delayed > 0 {
		text += fmt.Sprintf(", %s delayed", Thousands(r.Delayed))
	}
	if r.WouldRefuse > 0 {
		text += fmt.Sprintf(", %s would be refused by rules in shadow mode", Thousands(r.WouldRefuse))
	}
	if r.Marked > 0 {
		text += fmt.Sprintf(", %s marked", Thousands(r.Marked))
	}
	if r.Skipped > 0 {
		text += fmt.Sprintf("; %s could not be read", Plural(r.Skipped, "line"))
	}
	return text + "\n"
}

// rules writes the table of rules.
func (w *writer) rules(list []RuleReport) {
	if w.err != nil {
		return
	}
	t := tabwriter.NewWriter(w.w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprint(t, "\nRULE\tLIMIT\tREQUESTS\tREFUSED\tDELAYED\tKEYS\tREFUSED KEYS\tPEAK USE\n")
	for i := range list {
		r := &list[i]
		refused, name := r.Refused, r.Name
		if r.Mode == "shadow" || r.WouldRefuse > 0 {
			refused += r.WouldRefuse
			name += " (shadow)"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s (%s)\t%s\t%s\t%s\t%.0f%%\n", name, r.Limit, Thousands(r.Requests), Thousands(refused),
			percent(refused, r.Requests), Thousands(r.Delayed), Thousands(r.Keys), Thousands(r.RefusedKeys), r.PeakUse*100)
	}
	w.err = t.Flush()
}

// keys writes the keys of a rule that were refused or delayed most.
func (w *writer) keys(r *RuleReport, top int) {
	marked := r.Outcomes[engine.Marked.String()]
	if r.FirstRefusal == nil && r.Delayed == 0 && marked == 0 {
		return
	}
	w.printf("\n%s:", r.Name)
	if marked > 0 {
		w.printf(" %s of %s marked", Thousands(marked), Plural(r.Requests, "request"))
		if r.FirstRefusal != nil || r.Delayed > 0 {
			w.printf(",")
		}
	}
	if r.FirstRefusal != nil {
		w.printf(" first refusal %s, last %s", r.FirstRefusal.Format(time.DateTime), r.LastRefusal.Format(time.DateTime))
	}
	if bans := r.Banned(); bans != "" {
		w.printf(", %s", bans)
	}
	if r.Delayed > 0 {
		w.printf(" delays %d ms on average, %d ms at most", r.MeanDelay, r.MaxDelay)
	}
	w.printf("\n")
	for i, k := range r.Top {
		if i == top || k.Refused == 0 && k.Delayed == 0 {
			break
		}
		w.printf("  %s: %s of %s refused", k.Key, Thousands(k.Refused), Plural(k.Requests, "request"))
		if k.Delayed > 0 {
			w.printf(", %s delayed", Thousands(k.Delayed))
		}
		w.printf("; %s in the busiest period\n", Thousands(k.Busiest))
	}
}

func (c *Comparison) write(w *writer, top int) {
	w.printf("\n%s", Changes("the new rules", c.NewlyRefused, c.NewlyAllowed))
	for _, one := range c.By {
		how := "newly"
		if one.NewlyRefused == 0 {
			how = "no longer"
		}
		w.printf("\n%s refused by %s: %s of %s\n", how, cmp.Or(one.Rule, "(no rule)"),
			Plural(one.NewlyRefused+one.NewlyAllowed, "request"), Plural(int64(one.Keys), "key"))
		for _, k := range one.Top[:min(top, len(one.Top))] {
			w.printf("  %s: %s\n", k.Key, Plural(k.NewlyRefused+k.NewlyAllowed, "request"))
		}
	}
	w.printf("\nNew rules: %s", c.New.summary())
	w.rules(c.New.Rules)
}

// Changes says how many requests rules newly refuse, and how many they newly
// allow.
func Changes(under string, refused, allowed int64) string {
	return fmt.Sprintf("With %s, %s would newly be refused and %s would newly be allowed.\n",
		under, Plural(refused, "request"), Plural(allowed, "request"))
}

// Plural writes a number of things.
func Plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return Thousands(n) + " " + what + "s"
}

// Thousands writes a number with a comma after each three digits.
func Thousands(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func percent(part, whole int64) string {
	if whole == 0 || part == 0 {
		return "0%"
	}
	share := 100 * float64(part) / float64(whole)
	switch {
	case share < 0.01:
		return "<0.01%"
	case share < 1:
		return fmt.Sprintf("%.2f%%", share)
	}
	return fmt.Sprintf("%.1f%%", share)
}

func size(bytes int64) string {
	if bytes < 1<<20 {
		return fmt.Sprintf("%.1f KiB", float64(bytes)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
}

// WriteCSV writes a line for every rule and key. Without Options.AllKeys it
// writes only the keys of RuleReport.Top.
func (r *Report) WriteCSV(out io.Writer) error {
	w := csv.NewWriter(out)
	_ = w.Write([]string{ // Flush has the error
		"rule", "key", "requests", "allowed", "refused", "delayed", "busiest_period", "peak", "limit", "first_refusal", "last_refusal",
	})
	for i := range r.Rules {
		rule := &r.Rules[i]
		list := rule.all
		if list == nil {
			list = rule.Top
		}
		for _, k := range list {
			n := func(n int64) string { return strconv.FormatInt(n, 10) }
			_ = w.Write([]string{
				harmless(rule.Name), harmless(k.Key), n(k.Requests), n(k.Requests - k.Refused), n(k.Refused), n(k.Delayed), n(k.Busiest),
				n(k.Peak), n(k.Limit), stamp(k.FirstRefusal), stamp(k.LastRefusal),
			})
		}
	}
	w.Flush()
	return w.Error()
}

// harmless keeps a spreadsheet from reading text as a formula: clients choose
// their keys.
func harmless(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

func stamp(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.Format(time.RFC3339Nano)
}
