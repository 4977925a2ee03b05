package offenders_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/rules/features/offenders"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// onRepeat parses the on_repeat of a rule. It returns nil for a mistake.
func onRepeat(text string) *offenders.OnRepeat {
	set, _ := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte("domain: d\nlimits: [{name: a, key: [b], rate: 5/minute, on_repeat: " + text + "}]\n")})
	if set == nil || len(set.Rules()) != 1 {
		return nil
	}
	return offenders.Of(set.Rules()[0])
}

func TestOnRepeatInWords(t *testing.T) {
	for text, want := range map[string]string{
		"{refusals: 100/10m, ban: 1m, factor: 4, max: 24h, forget: 48h}": "100 refusals within 10m: a ban of 1m, then 4m, 16m … 24h; forgotten after 48h (shadow: nobody is banned)",
		"{refusals: 1/day, ban: 90s, mode: enforce}":                     "1 refusal within 24h: a ban of 1m30s, then 6m, 24m … 24h; forgotten after 48h",
		"{refusals: 5/1m, ban: 1h, factor: 1, mode: enforce}":            "5 refusals within 1m: a ban of 1h; forgotten after 2h",
		"{refusals: 5/1m, ban: 1h, max: 1h, mode: enforce}":              "5 refusals within 1m: a ban of 1h; forgotten after 2h",
		"{refusals: 5/1m, ban: 1h, max: 90m, mode: enforce}":             "5 refusals within 1m: a ban of 1h, then 1h30m; forgotten after 3h",
		"{refusals: 5/1m, ban: 6h, factor: 2, mode: enforce}":            "5 refusals within 1m: a ban of 6h, then 12h, 24h; forgotten after 48h",
		"{refusals: 5/1m, ban: 3h, factor: 2, mode: enforce}":            "5 refusals within 1m: a ban of 3h, then 6h, 12h, 24h; forgotten after 48h",
		"{refusals: 5/1m, ban: 48h, mode: enforce}":                      "5 refusals within 1m: a ban of 48h; forgotten after 96h",
	} {
		o := onRepeat(text)
		if o == nil {
			t.Errorf("%s: refused", text)
		} else if got := o.String(); got != want {
			t.Errorf("%s:\n got %s\nwant %s", text, got, want)
		}
	}
}

// Whatever is accepted bans for longer each time, up to max, and forgets no ban before its
// end.
func FuzzOnRepeat(f *testing.F) {
	for _, text := range []string{
		"{refusals: 100/10m, ban: 1m, factor: 4, max: 24h, forget: 48h}", "{refusals: 1/day, ban: 90s, mode: enforce}",
		"{refusals: 10_000/24h, ban: 2160h, factor: 100, max: 2160h, forget: 9600h}", "{refusals: 5/1m, ban: 1s, factor: 1}", "{refusals: 5/1m, ban: 1s, factor: 2, max: 2160h}",
		"{refusals: 0/1m, ban: 1s}", "{refusals: 5/0m, ban: 1h, max: 1m}", "[]", "{refusals: unlimited, ban: 1h}",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o := onRepeat(text)
		if o == nil {
			return
		}
		if o.Steps() >= offenders.MaxBans {
			t.Fatalf("%s: more steps than bans that are told apart", o)
		}
		if !o.Refusals.Rule().Valid() || !o.Bans.Rule().Valid() || o.Forget < o.Max || o.Max < o.Ban || o.Ban < offenders.MinBan || o.Bans.Period() != o.Forget {
			t.Fatalf("%+v", *o)
		}
		last := time.Duration(0)
		for n := int64(1); n <= o.Steps()+2; n++ {
			d := o.Lasts(n)
			if d < last || d < o.Ban || d > o.Max || n >= o.Steps() && d != o.Lasts(o.Steps()) || n > 1 && n < o.Steps() && d != last*time.Duration(o.Factor) {
				t.Fatalf("%s: ban %d lasts %s after %s", o, n, d, last)
			}
			last = d
		}
	})
}
