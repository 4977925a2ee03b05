package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/rules/features/offenders"
)

const offenderRules = `
domain: api
limits:
  - name: search
    match: {path: /search}
    key: [client_ip]
    rate: 10/minute
    on_repeat: {refusals: 100/10m, ban: 1m, mode: enforce}
  - name: logins
    match: {path: /login}
    key: [client_ip]
    rate: 5/hour
    algorithm: sliding_log
    charge_on: {status: 401}
    on_repeat: {refusals: 20/1h, ban: 2h}
`

const spammer = "198.51.100.7"

// refuse makes requests until so many were refused.
func (f *fixture) refuse(t *testing.T, path, ip string, n int) {
	t.Helper()
	for refused := 0; refused < n; {
		if !f.check(t, path, ip).Allowed {
			refused++
		}
	}
}

// The hundredth refusal leads to a ban that operators see and can end. A reset forgets it.
func TestOffenders(t *testing.T) {
	t.Parallel()
	f := run(t, offenderRules, nil, withAdmin)
	banned := func() bool { return f.check(t, "/search", spammer).Reason == "banned" }
	total := func(mode, rule string) string {
		return f.metric(t, `headgate_offenders_banned_total{domain="api",mode="`+mode+`",rule="`+rule+`"}`)
	}
	f.refuse(t, "/search", spammer, 100)
	f.await(t, banned)
	if d := f.check(t, "/search", spammer); d.Allowed || d.RetryAfter != 60_000 {
		t.Errorf("%+v", d)
	}
	if d := f.check(t, "/login", spammer); !d.Allowed {
		t.Errorf("another rule refuses: %+v", d)
	}
	if got := total("enforce", "search"); got != "1" {
		t.Errorf("%s bans are counted", got)
	}
	list := answerOf[admin.Overrides](t, f, "/v1/overrides").Overrides
	if len(list) != 1 || list[0].By != "on_repeat" || list[0].Reason != "100 refusals within 10m, ban 1" || *list[0].Parts[0] != spammer {
		t.Errorf("%+v", list)
	}

	rules := answerOf[struct{ Rules []admin.RuleStatus }](t, f, "/v1/rules").Rules
	if want := "100 refusals within 10m: a ban of 1m, then 4m, 16m … 24h; forgotten after 48h"; rules[0].OnRepeat != want {
		t.Errorf("the rules page says %q, want %q", rules[0].OnRepeat, want)
	}
	peek := func(rule string) offenders.RepeatView {
		view := f.mustKeys(t, "peek", `{"rule":"`+rule+`","key":["`+spammer+`"]}`).Repeat
		if view.LastBan != nil && f.clock.Now().Sub(*view.LastBan) > time.Second {
			t.Errorf("the last ban of %s: %s", rule, view.LastBan)
		}
		view.LastBan = nil
		return *view
	}
	if got, want := peek("search"), (offenders.RepeatView{Mode: "enforce", Of: 100, Within: 600_000, Bans: 1, NextBan: 240_000}); got != want {
		t.Errorf("a peek says %+v, want %+v", got, want)
	}
	f.mustKeys(t, "unban", `{"rule":"search","key":["`+spammer+`"]}`)
	if banned() {
		t.Error("an operator cannot end the ban")
	}
	f.refuse(t, "/search", spammer, 100)
	f.clock.advance(2 * time.Minute)
	f.refuse(t, "/search", spammer, 100)
	f.await(t, banned)
	if d := f.check(t, "/search", spammer); d.RetryAfter != 240_000 {
		t.Errorf("the second ban: %+v", d)
	}
	f.mustKeys(t, "unban", `{"rule":"search","key":["`+spammer+`"]}`)
	f.mustKeys(t, "reset", `{"rule":"search","key":["`+spammer+`"]}`)
	f.refuse(t, "/search", spammer, 100)
	f.await(t, banned)
	if d := f.check(t, "/search", spammer); d.RetryAfter != 60_000 {
		t.Errorf("after a reset: %+v", d)
	}

	f.refuse(t, "/login", spammer, 20)
	f.await(t, func() bool { return total("shadow", "logins") == "1" })
	if got, want := peek("logins"), (offenders.RepeatView{Mode: "shadow", Of: 20, Within: 3_600_000, Bans: 1, NextBan: 28_800_000}); got != want {
		t.Errorf("a peek says %+v, want %+v", got, want)
	}
	if d := f.check(t, "/login", spammer); d.Reason == "banned" {
		t.Errorf("banned in shadow mode: %+v", d)
	}
	audit := answerOf[struct{ Audit []admin.AuditEntry }](t, f, "/v1/audit").Audit
	var got []string
	for _, e := range audit {
		got = append(got, e.Action+" by "+e.By)
	}
	slices.Sort(got)
	if want := "ban by on_repeat, ban by on_repeat, ban by on_repeat, reset by 127.0.0.1, unban by 127.0.0.1, unban by 127.0.0.1, would_ban by on_repeat"; strings.Join(got, ", ") != want {
		t.Errorf("audit: %q, want %q", got, want)
	}
	for i := 1; i < len(audit); i++ {
		if audit[i].T.After(audit[i-1].T) {
			t.Errorf("entry %d is newer than the one before", i)
		}
	}
	log := f.journal.text.String()
	if want := `msg=audit action=would_ban by=on_repeat domain=api rule=logins key=`; !strings.Contains(log, want) || strings.Contains(log, spammer) {
		t.Errorf("the log lacks %s, or has a key in plain text:\n%s", want, log)
	}
}

// A ban that cannot be saved is active, and counted as not saved.
func TestOffendersNotSaved(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	f := run(t, offenderRules, nil, withAdmin, snapshot(filepath.Join(folder, "counts")))
	lost := func() string { return f.metric(t, `headgate_offenders_lost_total{reason="not_saved"}`) }
	if got := lost(); got != "0" {
		t.Errorf("%s bans not saved at the start", got)
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	f.refuse(t, "/search", spammer, 100)
	f.await(t, func() bool { return f.check(t, "/search", spammer).Reason == "banned" })
	f.await(t, func() bool { return lost() == "1" })
	f.journal.await(t, "bans and overrides not saved")
}
