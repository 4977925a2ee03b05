package simulate_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/replay/simulate"
)

const asksForMore = `
domain: d
limits:
  - {name: by-key, match: {path: /login}, key: ["header:X-Api-Key"], rate: 100/minute}
  - {name: by-both, match: {path: /login}, key: [client_ip, "query:tenant"], rate: 100/minute}
  - {name: by-tenant, match: {path: /other}, key: ["query:tenant"], rate: 100/minute}
  - {name: by-agent, key: ["header:User-Agent"], rate: 100/minute}
  - {name: skips, key: ["jwt:sub"], key_missing: skip, rate: 1/minute}
  - {name: paying, match: {headers: {X-Plan: pro}}, rate: 1/minute}
  - {name: not-paying, match: {headers: {X-Plan: {not: pro}}}, rate: 100/minute}
  - {name: one-host, match: {host: a.example}, rate: 1/minute}
  - {name: calm, rate: 1/minute, when: {upstream_p90: ">200ms"}}
`

// For each rule the attributes that the log lacks are reported: a combined log has
// only two header fields, and neither claims nor the host.
func TestWhatTheLogLacks(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	for i := range 20 {
		log.WriteString(line(noon.Add(time.Duration(i)*time.Second), fmt.Sprintf("198.51.100.%d", i), "POST /login"))
	}
	for i := range 4 {
		log.WriteString(line(noon.Add(30*time.Second), "198.51.100.7", fmt.Sprintf("GET /other?tenant=%d", i)))
	}
	o := options(t, asksForMore, bytesLog("a.log", []byte(log.String())))
	candidate := side(t, fivePerMinute)
	o.Candidate = &candidate
	r := run(t, o)
	want := []string{
		"rule by-key counts by header:X-Api-Key, which is not in the log: 20 requests shared one count",
		"rule by-both counts by query:tenant, which is missing from 20 requests (100.0% of its requests): they shared one count",
		"rule skips needs jwt:sub, which is not in the log: it applied to no request",
		"rule paying needs header:X-Plan, which is not in the log: it applied to no request",
		"rule one-host needs host, which is not in the log: it applied to no request",
		"rule calm needs upstream_p90, which only servers measure: it applied to no request",
	}
	if got := r.LackingText(); !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got, want := fmt.Sprint(r.Rules[0].Lacking), fmt.Sprint([]simulate.Lacking{{Attribute: "header:X-Api-Key", Never: true, Requests: 20}}); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if !r.LogsMore() || r.Compare.New.LogsMore() {
		t.Errorf("a log could have more: %t, for the new rules: %t", r.LogsMore(), r.Compare.New.LogsMore())
	}
	if list := r.Compare.New.LackingText(); len(list) > 0 {
		t.Errorf("of the new rules, which ask for nothing: %q", list)
	}
}

// The logged status says whether a request counts under charge_on. Without one it does.
func TestLoggedAnswers(t *testing.T) {
	const rules = "domain: d\nlimits: [{name: failed, rate: 5/day, algorithm: fixed_window, charge_on: {status: 401}}]\n"
	var log strings.Builder
	for i := range 40 {
		status := "200"
		if i%4 == 3 {
			status = "401"
		}
		log.WriteString(strings.Replace(line(noon.Add(time.Duration(i)*time.Second), "198.51.100.7", "POST /login"), " 200 ", " "+status+" ", 1))
	}
	r := run(t, options(t, rules, bytesLog("a.log", []byte(log.String()))))
	if r.Allowed != 20 || r.Refused != 20 || r.NoStatus != 0 {
		t.Errorf("%d allowed, %d refused, %d without a status", r.Allowed, r.Refused, r.NoStatus)
	}
	unknown := options(t, rules, bytesLog("a.log", []byte(strings.NewReplacer(" 200 ", " - ", " 401 ", " - ").Replace(log.String()))))
	if r := run(t, unknown); r.Allowed != 5 || r.Refused != 35 || r.NoStatus != 5 {
		t.Errorf("%d allowed, %d refused, %d without a status", r.Allowed, r.Refused, r.NoStatus)
	}
}

// Keys that are refused again and again are banned as by serve; in shadow mode the report
// says who would have been.
func TestOnRepeat(t *testing.T) {
	const text = "domain: d\nlimits: [{name: all, key: [client_ip], rate: 1/second, algorithm: fixed_window, on_repeat: {refusals: 10/1m, ban: 30s, mode: enforce}}]\n"
	var log strings.Builder
	for i := range 600 { // ten a second
		log.WriteString(line(noon.Add(time.Duration(i/10)*time.Second), "198.51.100.7", "GET /"))
		if i%10 == 0 {
			log.WriteString(line(noon.Add(time.Duration(i/10)*time.Second), "198.51.100.8", "GET /"))
		}
	}
	logs := bytesLog("a.log", []byte(log.String()))
	for _, row := range []struct {
		rules           string
		allowed, banned int64
		want            string
	}{
		// Banned in second 1, from its second request on, until second 31; then in
		// second 32 until the end.
		{text, 60 + 4, 1, "2 bans of 1 key by on_repeat"},
		{strings.Replace(text, ", mode: enforce", "", 1), 60 + 60, 1, "2 bans of 1 key by on_repeat (shadow)"},
		{strings.Replace(text, "}}]", "}, mode: shadow}]", 1), 660, 1, "2 bans of 1 key by on_repeat (shadow)"},
	} {
		r := run(t, options(t, row.rules, logs))
		if got := r.Rules[0].OnRepeat; r.Allowed != row.allowed || got == nil || got.Keys != row.banned || r.Rules[0].Banned() != row.want {
			t.Errorf("%s: %d allowed, %v", row.rules, r.Allowed, got)
		}
		var out bytes.Buffer
		if err := r.WriteText(&out, 5); err != nil || strings.Count(out.String(), row.want) != 1 {
			t.Errorf("%v: %s", err, out.String())
		}
	}
}
