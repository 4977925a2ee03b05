package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/admin"
)

const keyRules = `
domain: api
limits:
  - {name: login, match: {path: /login}, key: [client_ip], rate: 5/hour, algorithm: fixed_window, anchor: first_request}
  - {name: all, key: [client_ip], rate: 1000/hour}
  - {name: quiet, match: {path: /quiet}, key: [client_ip], rate: 1000/hour, mode: shadow}
  - {name: pair, match: {path: /pair}, key: [user, "header:X-Key"], rate: 5/hour}
  - {name: whole, match: {path: /whole}, rate: 5/hour}
  - {name: free, match: {path: /free}, key: [user], rate: unlimited}
`

// keys performs an action on a key and returns the status and the answer.
func (f *fixture) keys(t *testing.T, action, body string) (int, admin.KeyAnswer, string) {
	t.Helper()
	res, err := f.client.Post(f.adminURL("/v1/keys/"+action), "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	text := read(t, res)
	var out admin.KeyAnswer
	if res.StatusCode == http.StatusOK {
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatal(err, text)
		}
	}
	return res.StatusCode, out, text
}

func (f *fixture) mustKeys(t *testing.T, action, body string) admin.KeyAnswer {
	t.Helper()
	status, out, text := f.keys(t, action, body)
	if status != http.StatusOK || out.Warning != "" {
		t.Fatalf("%s %s: %d %s", action, body, status, text)
	}
	return out
}

// checked is the part of an answer of /v1/check that tests read.
type checked struct {
	Allowed    bool
	Rule       string
	Reason     string
	Limit      int64
	Remaining  int64
	RetryAfter int64 `json:"retry_after_ms"`
}

// check calls the API.
func (f *fixture) check(t *testing.T, path, ip string) (out checked) {
	t.Helper()
	body := fmt.Sprintf(`{"domain":"api","attributes":{"path":%q,"client_ip":%q}}`, path, ip)
	res, err := f.client.Post(f.apiURL("/v1/check"), "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(read(t, res)), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

const ann = `"rule":"login","key":["198.51.100.7"]`

func TestKeys(t *testing.T) {
	f := run(t, keyRules, nil, withAdmin)
	for range 5 {
		f.check(t, "/login", "198.51.100.7")
	}
	rows := []struct {
		action, body string
		changed      bool
		remaining    int64
		then         string // the result of a request: allowed or the reason, and the remaining amount
	}{
		{"peek", `{` + ann + `}`, false, 0, "limited 0 of 5"},
		{"grant", `{` + ann + `,"amount":2,"for":"10m","reason":"paid"}`, true, 2, "ok 1 of 5"},
		{"reset", `{` + ann + `}`, true, 5, "ok 4 of 5"},
		{"override", `{` + ann + `,"rate":"50/hour","for":"1h"}`, true, 49, "ok 48 of 50"},
		{"ban", `{` + ann + `,"until":"2026-11-21T11:30:12Z","reason":"a test"}`, true, 48, "banned 0 of 50"},
		{"clear", `{` + ann + `}`, true, 3, "banned 0 of 5"},
		{"clear", `{` + ann + `}`, false, 3, "banned 0 of 5"},
		{"unban", `{` + ann + `}`, true, 3, "ok 2 of 5"},
		{"unban", `{` + ann + `}`, false, 2, "ok 1 of 5"},
		{"override", `{` + ann + `,"rate":"0/hour","for":"1h"}`, true, 0, "too_large 0 of 0"},
		{"override", `{` + ann + `,"rate":"unlimited","for":"1h"}`, true, 0, "ok 989 of 1000"}, // by the rule for all
		{"clear", `{` + ann + `}`, true, 1, "ok 0 of 5"},
	}
	for i, row := range rows {
		got := f.mustKeys(t, row.action, row.body)
		if got.Changed != row.changed || got.Remaining != row.remaining && !got.Unlimited || *got.Parts[0] != "198.51.100.7" || got.Domain != "api" {
			t.Errorf("row %d, %s: %+v", i, row.action, got)
		}
		d := f.check(t, "/login", "198.51.100.7")
		if then := fmt.Sprintf("%s %d of %d", d.Reason, d.Remaining, d.Limit); then != row.then {
			t.Errorf("row %d, after %s: %s, want %s", i, row.action, then, row.then)
		}
		if d.Reason == "banned" && d.RetryAfter != 30*60*1000 {
			t.Errorf("row %d: %+v", i, d)
		}
	}
	log := f.journal.text.String()
	for _, want := range []string{
		`msg=audit action=grant by=127.0.0.1 domain=api rule=login key=`, `reason=paid before="0 of 5 left" after="2 of 5 left"`,
		`after="banned until 2026-11-21T11:30:12Z"`, `before="50/hour until 2026-11-21T12:00:12Z" after=none`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}
	if strings.Contains(log, "198.51.100.7") {
		t.Error("the log has a key in plain text")
	}
	audit := answerOf[struct{ Audit []admin.AuditEntry }](t, f, "/v1/audit?n=2").Audit
	if len(audit) != 2 || audit[0].Action != "clear" || audit[1].Action != "override" || *audit[0].Parts[0] != "198.51.100.7" {
		t.Errorf("%+v", audit)
	}
}

// Metrics count bans by rule and never by key.
func TestBansAreCounted(t *testing.T) {
	f := run(t, keyRules, nil, withAdmin)
	f.mustKeys(t, "ban", `{"rule":"quiet","key":"198.51.100.7","for":"10s"}`)
	f.mustKeys(t, "ban", `{"rule":"quiet","key":"198.51.100.8","for":"1h"}`)
	f.mustKeys(t, "override", `{"rule":"pair","key":["ann","x"],"rate":"50/hour","for":"1h"}`)
	for range 3 {
		f.check(t, "/quiet", "198.51.100.7")
	}
	f.check(t, "/quiet", "198.51.100.9")
	const bans, limits = `headgate_overrides{kind="ban"}`, `headgate_overrides{kind="limit"}`
	for series, want := range map[string]string{
		`headgate_banned_total{domain="api",rule="quiet"}`:                      "3",
		`headgate_decisions_total{domain="api",outcome="refused",rule="quiet"}`: "3",
		`headgate_banned_total{domain="api",rule="pair"}`:                       "none",
		bans: "2", limits: "1",
	} {
		if got := f.metric(t, series); got != want {
			t.Errorf("%s: %s, want %s", series, got, want)
		}
	}
	f.clock.advance(time.Minute)
	if got := f.metric(t, bans) + " " + f.metric(t, limits); got != "1 1" {
		t.Errorf("a minute later: %s", got)
	}
}

// Bans and overrides end automatically. Bans also apply to rules in shadow mode. Explain
// shows both.
func TestEndsByItself(t *testing.T) {
	f := run(t, keyRules, nil, withAdmin)
	f.mustKeys(t, "ban", `{"rule":"quiet","key":"198.51.100.7","for":"10s"}`)
	f.mustKeys(t, "override", `{"rule":"login","key":"198.51.100.7","rate":"50/hour","for":"20s"}`)
	if got := answerOf[admin.Overrides](t, f, "/v1/overrides"); got.Total != 2 || got.Overrides[0].Kind == got.Overrides[1].Kind {
		t.Errorf("%+v", got)
	}
	if d := f.check(t, "/quiet", "198.51.100.7"); d.Reason != "banned" || d.Rule != "quiet" || d.RetryAfter != 10_000 {
		t.Errorf("%+v", d)
	}
	_, text := f.post(t, "/v1/explain", `{"domain":"api","attributes":{"path":"/login","client_ip":"198.51.100.7"}}`)
	if !strings.Contains(text, `"overridden":true`) || !strings.Contains(text, `"limit":"50/hour fixed_window from the first request"`) {
		t.Error(text)
	}
	// The amount used, and until when the ban lasts.
	_, text = f.post(t, "/v1/explain", `{"domain":"api","attributes":{"path":"/quiet","client_ip":"198.51.100.7"}}`)
	if !strings.Contains(text, `"banned_until":"2026-11-21T11:00:22Z"`) || !strings.Contains(text, `"count":{"allowed":false,"reason":"banned"`) ||
		!strings.Contains(text, `"used":0`) || !strings.Contains(text, `"retry_after_ms":10000`) {
		t.Error(text)
	}
	f.clock.advance(10 * time.Second)
	if d := f.check(t, "/quiet", "198.51.100.7"); !d.Allowed {
		t.Errorf("%+v", d)
	}
	if d := f.check(t, "/login", "198.51.100.7"); d.Limit != 50 {
		t.Errorf("%+v", d)
	}
	f.clock.advance(10 * time.Second)
	if d := f.check(t, "/login", "198.51.100.7"); d.Limit != 5 || d.Remaining != 3 {
		t.Errorf("%+v", d)
	}
	if got := answerOf[admin.Overrides](t, f, "/v1/overrides"); got.Total != 0 {
		t.Errorf("%+v", got)
	}
}

func (f *fixture) post(t *testing.T, path, body string) (int, string) {
	t.Helper()
	res, err := f.client.Post(f.apiURL(path), "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, read(t, res)
}

// Operators name keys the way requests are counted.
func TestNamesOfKeys(t *testing.T) {
	f := run(t, keyRules, nil, withAdmin)
	long := strings.Repeat("k", 300)
	rows := []struct{ key, rule, attributes string }{
		{`["2001:db8:1:2:3:4:5:6"]`, "all", `"client_ip":"2001:db8:1:2::9"`},
		{`"2001:db8:1:2::/64"`, "all", `"client_ip":"2001:db8:1:2::9"`},
		{`{"client_ip":"::ffff:198.51.100.9"}`, "all", `"client_ip":"198.51.100.9"`},
		{`["ann","k"]`, "pair", `"path":"/pair","user":"ann","header:X-Key":"k"`},
		{`{"header:x-key":"k2","user":"ann"}`, "pair", `"path":"/pair","user":"ann","header:X-Key":"k2"`},
		{`["ann",null]`, "pair", `"path":"/pair","user":"ann"`},
		{`["","` + long + `"]`, "pair", `"path":"/pair","user":"","header:X-Key":"` + long + `"`},
		{`[]`, "whole", `"path":"/whole"`},
	}
	for _, row := range rows {
		named := `{"rule":"` + row.rule + `","key":` + row.key
		f.mustKeys(t, "ban", named+`,"for":"1m"}`)
		if _, text := f.post(t, "/v1/check", `{"domain":"api","attributes":{`+row.attributes+`}}`); !strings.Contains(text, "banned") {
			t.Errorf("%s: %s", row.key, text)
		}
		if got := f.mustKeys(t, "unban", named+`}`); !got.Changed {
			t.Errorf("%s: %+v", row.key, got)
		}
	}
	// A key can be entered as the list shows it.
	f.mustKeys(t, "ban", `{"rule":"pair","key":["ann","`+long+`"],"for":"1m"}`)
	shown, err := json.Marshal(answerOf[admin.Overrides](t, f, "/v1/overrides").Overrides[0].Parts)
	if err != nil || !strings.Contains(string(shown), "sha256:") {
		t.Fatalf("%s, %v", shown, err)
	}
	if got := f.mustKeys(t, "unban", `{"rule":"pair","key":`+string(shown)+`}`); !got.Changed {
		t.Errorf("%+v", got)
	}
	// Without a rule, it means every rule that counts by exactly these parts.
	res, err := f.client.Post(f.adminURL("/v1/keys/ban"), "application/json", strings.NewReader(`{"key":{"client_ip":"198.51.100.7"},"for":"1m"}`))
	if err != nil {
		t.Fatal(err)
	}
	var list admin.KeyAnswers
	if err := json.Unmarshal([]byte(read(t, res)), &list); err != nil || len(list.Keys) != 3 || list.Keys[2].Rule != "quiet" {
		t.Errorf("%+v, %v", list, err)
	}
}

// Errors say what is wrong, with a suggestion, and nothing is changed.
func TestWrongKeyBodies(t *testing.T) {
	t.Parallel()
	f := run(t, keyRules, nil, withAdmin)
	rows := []struct {
		action, body string
		status       int
		want         string
	}{
		{"bann", `{}`, 404, `did you mean \"ban\"?`},
		{"ban", ``, 400, "must be a JSON object"},
		{"ban", `[]`, 400, "must be a JSON object"},
		{"ban", `{`, 400, "not valid JSON"},
		{"ban", `{"rule":"login"`, 400, "not valid JSON"},
		{"ban", `{} {}`, 400, "after the JSON object"},
		{"ban", "{\"rule\":\"\xff\"}", 400, "UTF-8"},
		{"ban", `{"rulee":"login"}`, 400, `did you mean \"rule\"?`},
		{"ban", `{` + ann + `,"rate":"5/minute"}`, 400, `\"rate\" does not apply to ban`},
		{"ban", `{"rule":"login","rule":"all"}`, 400, `duplicate field \"rule\"`},
		{"ban", `{` + ann + `}`, 400, `\"for\" or \"until\" is missing`},
		{"ban", `{` + ann + `,"for":"1m","until":"2027-01-01T00:00:00Z"}`, 400, "not both"},
		{"ban", `{` + ann + `,"for":"1x"}`, 400, "not a duration such as"},
		{"ban", `{` + ann + `,"for":"-1m"}`, 400, "from 1ms to 10 years"},
		{"ban", `{` + ann + `,"for":"99999d"}`, 400, "from 1ms to 10 years"},
		{"ban", `{` + ann + `,"for":60}`, 400, `\"for\" must be a string, such as`},
		{"ban", `{` + ann + `,"until":"2026-11-21"}`, 400, "not a time such as 2026-11-21T12:00:12Z"},
		{"ban", `{` + ann + `,"until":"2026-11-21T11:00:12Z"}`, 400, "which is in the past"},
		{"ban", `{` + ann + `,"until":"2099-11-21T11:00:12Z"}`, 400, "more than 10 years"},
		{"ban", `{` + ann + `,"for":"1m","reason":"` + strings.Repeat("x", 501) + `"}`, 400, "501 bytes"},
		{"ban", `{` + ann + `,"for":"1m","reason":"a\nb"}`, 400, "control characters"},
		{"ban", `{"rule":"logn","key":"198.51.100.7","for":"1m"}`, 404, `did you mean \"login\"?`},
		{"ban", `{"domain":"apii","rule":"login","key":"198.51.100.7","for":"1m"}`, 404, `did you mean \"api\"?`},
		{"ban", `{"rule":"login","key":"example.org","for":"1m"}`, 400, "not an IP address"},
		{"ban", `{"rule":"login","key":"198.51.100.0/24","for":"1m"}`, 400, "counted by 198.51.100.0, not by 198.51.100.0/24"},
		{"ban", `{"rule":"login","key":[],"for":"1m"}`, 400, "1 part, not 0: client_ip"},
		{"ban", `{"rule":"login","key":[1],"for":"1m"}`, 400, "must be a list of strings"},
		{"ban", `{"rule":"login","key":null,"for":"1m"}`, 400, "must be a list of strings"},
		{"ban", `{"rule":"login","key":{"client_pi":"198.51.100.7"},"for":"1m"}`, 400, `did you mean \"client_ip\"?`},
		{"ban", `{"rule":"pair","key":{"user":"ann"},"for":"1m"}`, 400, `it also counts by \"header:X-Key\"`},
		{"ban", `{"rule":"whole","key":["x"],"for":"1m"}`, 400, "counts all requests together"},
		{"ban", `{"key":["198.51.100.7"],"for":"1m"}`, 400, `\"rule\" is missing`},
		{"ban", `{"key":{"cookie:x":"1"},"for":"1m"}`, 404, "no rule counts by exactly cookie:x"},
		{"override", `{` + ann + `,"for":"1m"}`, 400, `\"rate\" or \"burst\" is missing`},
		{"override", `{` + ann + `,"for":"1m","rate":"5"}`, 400, "want N/unit, such as 5/minute"},
		{"override", `{` + ann + `,"for":"1m","burst":7}`, 400, "fixed_window has no burst"},
		{"override", `{` + ann + `,"for":"1m","rate":"5/s","burst":0}`, 400, "whole number from 1"},
		{"grant", `{` + ann + `}`, 400, `\"amount\" is missing`},
		{"grant", `{` + ann + `,"amount":1.5}`, 400, "whole number from 1"},
		{"grant", `{` + ann + `,"amount":-1}`, 400, "whole number from 1"},
		{"grant", `{"rule":"free","key":"ann","amount":1}`, 400, "nothing to grant"},
		{"peek", `{` + strings.Repeat(" ", 70_000) + `}`, 400, "too large"},
	}
	for _, row := range rows {
		status, _, text := f.keys(t, row.action, row.body)
		if status != row.status || !strings.Contains(text, row.want) {
			t.Errorf("%s %.80s: %d %s, want %d %s", row.action, row.body, status, text, row.status, row.want)
		}
	}
	if got := answerOf[admin.Overrides](t, f, "/v1/overrides"); got.Total != 0 {
		t.Errorf("%+v", got)
	}
	if res, _ := f.get(t, f.adminURL("/v1/overrides?n=0")); res.StatusCode != http.StatusBadRequest {
		t.Errorf("%d", res.StatusCode)
	}
}

// Without the token nothing is changed, and web pages cannot change anything either.
func TestKeysAreGuarded(t *testing.T) {
	f := run(t, keyRules, nil, withAdmin, func(c *config.Config) { adminOf(c).Token = "0123456789abcdef" })
	if status, _, _ := f.keys(t, "ban", `{`+ann+`,"for":"1m"}`); status != http.StatusUnauthorized {
		t.Errorf("%d", status)
	}
	if d := f.check(t, "/login", "198.51.100.7"); !d.Allowed {
		t.Errorf("%+v", d)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.adminURL("/v1/keys/ban"), strings.NewReader(`{`+ann+`,"for":"1m"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("ann\n", "0123456789abcdef")
	res, err := f.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if text := read(t, res); res.StatusCode != http.StatusOK {
		t.Fatal(res.StatusCode, text)
	}
	if log := f.journal.text.String(); !strings.Contains(log, "by=ann@127.0.0.1") {
		t.Error(log)
	}
}

// Hashed keys stay hashed.
func TestKeysHashed(t *testing.T) {
	f := run(t, keyRules, nil, withAdmin, hashing)
	got := f.mustKeys(t, "ban", `{`+ann+`,"for":"1m"}`)
	list := answerOf[admin.Overrides](t, f, "/v1/overrides").Overrides
	if got.Parts != nil || got.Hash == "" || len(list) != 1 || list[0].Parts != nil || list[0].Hash != got.Hash {
		t.Errorf("%+v, %+v", got, list)
	}
}

// What an operator does to a limit with tiers is done to all of them, whichever is named, and
// once: they share a count.
func TestKeysOfTiers(t *testing.T) {
	f := run(t, `
domain: api
limits:
  - name: calls
    key: [client_ip]
    rate: 10/hour
    tiers:
      by: plan
      pro: {rate: 20/hour}
      staff: {rate: 30/hour, algorithm: sliding_log}
`, nil, withAdmin)
	left := func() (all [3]int64) {
		for i, plan := range []string{"", "pro", "staff"} {
			res, err := f.client.Post(f.apiURL("/v1/check"), "application/json",
				strings.NewReader(`{"domain":"api","attributes":{"client_ip":"198.51.100.7","plan":"`+plan+`"}}`))
			if err != nil {
				t.Fatal(err)
			}
			var out checked
			if err := json.Unmarshal([]byte(read(t, res)), &out); err != nil {
				t.Fatal(err)
			}
			all[i] = out.Remaining
		}
		return all
	}
	for i, row := range []struct {
		action, body string
		left         [3]int64
	}{
		{"peek", `{"rule":"calls",`, [3]int64{9, 18, 29}},
		{"override", `{"rule":"calls","rate":"0/hour","for":"1h",`, [3]int64{}},
		{"override", `{"rule":"calls/pro","rate":"50/hour","for":"1h",`, [3]int64{47, 46, 48}},
		{"clear", `{"rule":"calls",`, [3]int64{5, 14, 27}},
		{"reset", `{"rule":"calls/staff",`, [3]int64{9, 18, 29}},
		{"grant", `{"amount":5,"for":"10m",`, [3]int64{12, 21, 33}},
		{"reset", `{"rule":"calls",`, [3]int64{9, 18, 29}},
		{"override", `{"burst":15,"for":"1h",`, [3]int64{12, 11, 28}}, // a log has no burst
		{"override", `{"rate":"0/hour","for":"1h",`, [3]int64{}},
	} {
		status, _, text := f.keys(t, row.action, row.body+`"key":{"client_ip":"198.51.100.7"}}`)
		if status != http.StatusOK {
			t.Fatalf("%s %s: %d %s", row.action, row.body, status, text)
		}
		if got := left(); got != row.left {
			t.Errorf("row %d, after %s %s: %v left, want %v", i, row.action, row.body, got, row.left)
		}
	}
}
