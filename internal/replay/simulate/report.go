package simulate

import (
	"cmp"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/feature"
	"github.com/headgate/headgate/internal/rules/features"
)

// Report is the result of a simulation.
type Report struct {
	Requests    int64 `json:"requests"`
	Allowed     int64 `json:"allowed"`
	Refused     int64 `json:"refused"`
	Skipped     int64 `json:"skipped"`      // lines that could not be read
	Delayed     int64 `json:"delayed"`      // requests allowed after a delay
	WouldRefuse int64 `json:"would_refuse"` // requests that rules in shadow mode would have refused
	Marked      int64 `json:"marked"`       // requests that passed and were marked
	// NoClient are requests without a client address, although a rule counts by
	// it: they were treated as one client.
	NoClient int64 `json:"no_client,omitempty"`
	// NoStatus are requests without a logged status, although a rule counts only
	// certain answers: they were counted.
	NoStatus int64        `json:"no_status,omitempty"`
	Domain   string       `json:"domain"`
	From     *time.Time   `json:"from"`
	To       *time.Time   `json:"to"`
	Rules    []RuleReport `json:"rules"`
	Logs     []LogReport  `json:"logs"`
	Samples  []Sample     `json:"samples,omitempty"`
	Memory   Memory       `json:"memory"`
	Compare  *Comparison  `json:"compare,omitempty"`
}

// Memory is the size of the store.
type Memory struct {
	// Keys and Bytes are the peak values.
	Keys  int64 `json:"keys"`
	Bytes int64 `json:"bytes"`
	// Evicted are keys with counts that were evicted because the store was full,
	// as serve would do.
	Evicted int64 `json:"evicted"`
}

// RuleReport is the result for one rule.
type RuleReport struct {
	Name        string           `json:"name"`
	Requests    int64            `json:"requests"`
	Allowed     int64            `json:"allowed"`
	Refused     int64            `json:"refused"`
	Delayed     int64            `json:"delayed"`
	Limit       string           `json:"limit"`
	Mode        string           `json:"mode"`
	MaxDelay    int64            `json:"max_delay_ms"`
	MeanDelay   int64            `json:"mean_delay_ms"`
	WouldRefuse int64            `json:"would_refuse"` // requests that shadow mode would have refused
	Outcomes    map[string]int64 `json:"outcomes"`     // requests by outcome, without zeros
	// Keys is the number of keys, RefusedKeys of those refused at least once.
	// Approximate says that keys which returned after a long pause are counted
	// twice.
	Keys         int64      `json:"keys"`
	RefusedKeys  int64      `json:"refused_keys"`
	Approximate  bool       `json:"approximate,omitempty"`
	FirstRefusal *time.Time `json:"first_refusal"`
	LastRefusal  *time.Time `json:"last_refusal"`
	PeakUse      float64    `json:"peak_use"` // highest use by any key, as a fraction of its limit
	// Top are the keys that were refused most, then those closest to their limit.
	Top     []KeyReport `json:"top"`
	Lacking []Lacking   `json:"lacking,omitempty"` // attributes that the rule needs and the log does not have

	features.Replayed

	all []KeyReport
}

// Banned describes the bans by features, such as "3 bans of 2 keys by" and the name of
// the feature; it is empty without any.
func (r *RuleReport) Banned() string {
	var all []string
	r.Bans(func(b *feature.Bans) {
		text := Plural(b.Bans, "ban") + " of " + Plural(b.Keys, "key") + " by " + b.By
		if b.Mode == rules.Shadow.String() {
			text += " (shadow)"
		}
		all = append(all, text)
	})
	return strings.Join(all, ", ")
}

// KeyReport is the result of a rule for one key.
type KeyReport struct {
	// Key is readable: name=value, separated by commas.
	Key      string `json:"key"`
	Requests int64  `json:"requests"`
	Refused  int64  `json:"refused"`
	Delayed  int64  `json:"delayed"`
	// Peak is the highest use of Limit.
	Peak  int64 `json:"peak"`
	Limit int64 `json:"limit"`
	// Busiest is the cost of its requests in its busiest period.
	Busiest      int64      `json:"busiest"`
	FirstRefusal *time.Time `json:"first_refusal"`
	LastRefusal  *time.Time `json:"last_refusal"`
}

// moment returns a time, or nil for never.
func moment(at int64) *time.Time {
	if at == never {
		return nil
	}
	t := time.UnixMicro(at).UTC()
	return &t
}

func newReport(s *side, o *Options, read outcome, first, last int64) *Report {
	s.measure()
	s.books.close()
	t := s.tally
	r := t.Report
	r.NoStatus = s.noStatus
	r.NoClient, r.Logs, r.Samples = s.noClient, read.logs, read.samples
	r.Memory = Memory{s.peakKeys, s.peakBytes, s.store.Stats().EvictedInDebt}
	if r.Requests > 0 {
		r.From, r.To = moment(first), moment(last)
	}
	for _, l := range read.logs {
		r.Skipped += l.Skipped
	}
	for _, rt := range t.order {
		one := rt.report(o)
		one.Lacking = rt.lacks(read.logged)
		var b bans
		if of := s.bans[rt.rule]; of != nil {
			b = *of
		}
		one.Replayed = features.Replay(rt.rule, b.n, int64(len(b.keys)))
		r.Rules = append(r.Rules, one)
	}
	return &r
}

func (rt *ruleTally) report(o *Options) RuleReport {
	r := rt.RuleReport
	r.MaxDelay, r.MeanDelay = rt.longest/1000, rt.delay/1000/max(1, rt.Delayed)
	r.Outcomes, r.Top = map[string]int64{}, []KeyReport{}
	r.Keys, r.RefusedKeys, r.Approximate = rt.folded.keys+int64(len(rt.keys)), rt.folded.refused, rt.folded.keys > 0
	r.FirstRefusal, r.LastRefusal = moment(rt.first), moment(rt.last)
	for outcome, n := range rt.outcomes {
		if n > 0 {
			r.Outcomes[engine.Outcome(outcome).String()] = n
		}
	}
	for _, k := range rt.keys {
		if k.refused > 0 {
			r.RefusedKeys++
		}
	}
	r.all = rt.top()
	r.Top = append(r.Top, r.all[:min(o.Top, len(r.all))]...)
	if !o.AllKeys {
		r.all = nil
	}
	return r
}

// top returns all keys: those refused most first, then those closest to their
// limit.
func (rt *ruleTally) top() []KeyReport {
	keys := slices.Collect(maps.Keys(rt.keys))
	slices.SortFunc(keys, func(x, y string) int {
		a, b := rt.keys[x], rt.keys[y]
		return cmp.Or(
			cmp.Compare(b.refused, a.refused), cmp.Compare(b.delayed, a.delayed), cmp.Compare(b.peak, a.peak),
			cmp.Compare(b.requests, a.requests), strings.Compare(x, y))
	})
	out := make([]KeyReport, 0, len(keys))
	for _, key := range keys {
		k := rt.keys[key]
		out = append(out, KeyReport{
			Key: keyText(rt.rule, key), Requests: k.requests, Refused: k.refused, Delayed: k.delayed, Peak: k.peak,
			Limit: k.limit, Busiest: k.busiest, FirstRefusal: moment(k.first), LastRefusal: moment(k.last),
		})
	}
	return out
}

// keyText formats a key for people.
func keyText(r *rules.Rule, key string) string {
	parts, ok := rules.SplitKey(key)
	if !ok {
		return printable(key)
	}
	if len(parts) == 0 {
		return "all together"
	}
	out := make([]string, 0, len(parts))
	for i, p := range parts {
		text := printable(p.Text())
		switch {
		case p.Missing:
			text = "(none)"
		case p.Hashed:
			text = "sha256:" + hex.EncodeToString([]byte(p.Value))[:min(16, 2*len(p.Value))] + "…"
		}
		if i < len(r.Key) {
			text = r.Key[i].String() + "=" + text
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// printable replaces control characters in text and shortens it.
func printable(text string) string {
	const most = 80
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, text)
	return clip.Text(text, most)
}
