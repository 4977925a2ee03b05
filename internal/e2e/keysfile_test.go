package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

// importRows sends rows to the admin door.
func (f *fixture) importRows(t *testing.T, dryRun bool, rows ...string) (status int, out admin.ImportAnswer, text string) {
	t.Helper()
	body := ahead(fmt.Sprintf(`{"dry_run":%t,"rows":[%s]}`, dryRun, strings.Join(rows, ",")))
	res, err := f.client.Post(f.adminURL("/v1/keys/import"), "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	text = read(t, res)
	if res.StatusCode == http.StatusOK {
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatal(err, text)
		}
	}
	return res.StatusCode, out, text
}

// exported returns the rows of the admin door.
func (f *fixture) exported(t *testing.T) (rows []string) {
	t.Helper()
	res, text := f.get(t, f.adminURL("/v1/keys/export"))
	var out struct{ Rows []json.RawMessage }
	if err := json.Unmarshal([]byte(text), &out); err != nil || res.StatusCode != http.StatusOK {
		t.Fatal(err, text)
	}
	for _, r := range out.Rows {
		rows = append(rows, string(r))
	}
	return rows
}

// runNow returns a started App on the real clock: Redis has no other, and the ends of
// bans are kept on it.
func runNow(t *testing.T, change ...set) *fixture {
	t.Helper()
	f := newFixture(t, fileRules, nil, append([]set{withAdmin, func(c *config.Config) { adminOf(c).Keys = admin.PlainKeys }}, change...)...)
	var err error
	f.App, err = app.New(app.Options{Config: f.config, Logger: f.journal.logger(), Clock: time.Now, PollInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	f.start(t)
	return f
}

// ahead replaces the year 2100 by one that is not more than ten years away.
func ahead(text string) string {
	return strings.ReplaceAll(text, "2100-01-01", time.Now().AddDate(5, 0, 0).Format("2006-01-01"))
}

const fileRules = `
domain: api
limits:
  - {name: login, match: {path: /login}, key: [client_ip], rate: 5/day, algorithm: fixed_window}
  - {name: pair, match: {path: /pair}, key: [user, "header:X-Key"], rate: 5/day, algorithm: fixed_window}
  - {name: hashed, match: {path: /hashed}, key: ["hash:header:X-Key"], rate: 5/day, algorithm: fixed_window}
  - {name: free, match: {path: /free}, key: [user], rate: unlimited}
`

// oddRows are rows with keys that are hard to write.
func oddRows() []string {
	const end = `"until":"2100-01-01T00:00:00.123Z","reason":"why","by":"root","created":"2024-02-03T04:05:06.789Z"`
	rows := []string{
		`{"kind":"ban","rule":"login","key":["2001:db8::1"],` + end + `}`,
		`{"kind":"override","rule":"login","key":{"client_ip":"192.0.2.1"},"rate":"7/day",` + end + `}`,
		`{"kind":"override","rule":"login","key":"192.0.2.2","burst":9,"rate":"unlimited",` + end + `}`,
		`{"kind":"grant","rule":"login","key":["192.0.2.3"],"amount":10,` + end + `}`,
		`{"kind":"grant","rule":"login","key":["192.0.2.3"],"amount":10,"id":"second",` + end + `}`,
		`{"kind":"ban","rule":"pair","key":[null,""],` + end + `}`,
		`{"kind":"ban","rule":"pair","key":["a,b\"c\r\nd\u0000\u2028","=1+1 "],` + end + `}`,
		`{"kind":"ban","rule":"pair","key":["` + strings.Repeat("long", 100) + `","sha256:x"],` + end + `}`,
		`{"kind":"ban","rule":"pair","key_base64":"AmH/AWI=",` + end + `}`, // a\xff, b
		`{"kind":"ban","rule":"hashed","key":["secret"],` + end + `}`,
	}
	rows[2] = strings.Replace(rows[2], `"burst":9,`, "", 1)
	return rows
}

// On one server, an export after a reset restores everything, exactly.
func TestExportedKeysAreRestored(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint("redis ", shared), func(t *testing.T) {
			var change []set
			if shared {
				change = append(change, onRedis(redistest.Standalone(t).Addr))
			}
			f := runNow(t, change...)
			rows := oddRows()
			if status, out, text := f.importRows(t, true, rows...); status != 200 || out.Changed != len(rows) || out.New != len(rows) || out.WrongTotal > 0 || len(f.exported(t)) > 0 {
				t.Fatalf("a dry run: %d %s", status, text)
			}
			if status, out, text := f.importRows(t, false, rows...); status != 200 || out.Changed != len(rows) {
				t.Fatalf("%d %s", status, text)
			}
			one := f.exported(t)
			if len(one) != len(rows) || !strings.Contains(strings.Join(one, ""), ahead(`"until":"2100-01-01T00:00:00.123Z","created":"2024-02-03T04:05:06.789Z","reason":"why","by":"root"`)) {
				t.Errorf("%d rows: %s", len(one), one)
			}
			if status, out, text := f.importRows(t, false, append(one, rows...)...); status != 400 || out.Changed > 0 {
				t.Errorf("each row twice: %d %s", status, text)
			}
			for _, again := range [][]string{one, rows} {
				if status, out, text := f.importRows(t, false, again...); status != 200 || out.Changed != 0 || out.Unchanged != len(rows) {
					t.Errorf("a second time: %d %s", status, text)
				}
			}
			if got := f.mustKeys(t, "peek", `{"rule":"login","key":["192.0.2.3"]}`); got.Remaining != 25 {
				t.Errorf("%d left after two grants, each made more than once, want 25", got.Remaining)
			}
			// Forget everything.
			f.mustKeys(t, "reset", `{"rule":"login","key":["192.0.2.3"]}`)
			for _, r := range one {
				var e struct {
					Kind, Rule string
					Key        json.RawMessage
				}
				if err := json.Unmarshal([]byte(r), &e); err != nil {
					t.Fatal(err)
				}
				if action := map[string]string{"ban": "unban", "override": "clear"}[e.Kind]; action != "" && e.Key != nil {
					f.mustKeys(t, action, fmt.Sprintf(`{"rule":%q,"key":%s}`, e.Rule, e.Key))
				}
			}
			if left := f.exported(t); len(left) != 1 || !strings.Contains(left[0], `"key_base64":"AmH/AWI="`) {
				t.Errorf("left: %s", left)
			}
			if status, out, text := f.importRows(t, false, one...); status != 200 || out.Changed != len(rows)-1 || out.Unchanged != 1 {
				t.Errorf("%d %s", status, text)
			}
			if two := f.exported(t); strings.Join(one, "\n") != strings.Join(two, "\n") {
				t.Errorf("exported\n%s\nand then\n%s", strings.Join(one, "\n"), strings.Join(two, "\n"))
			}
			if got := f.mustKeys(t, "peek", `{"rule":"login","key":["192.0.2.3"]}`); got.Remaining != 25 {
				t.Errorf("%d left, want 25", got.Remaining)
			}
			if got := f.mustKeys(t, "peek", `{"rule":"hashed","key":["secret"]}`); got.BannedUntil == nil {
				t.Error("the hashed key is not banned")
			}
		})
	}
}

// An import at one node is active at the other, and recorded there.
func TestImportsAreSharedByNodes(t *testing.T) {
	redis := redistest.Standalone(t)
	one, two := runNow(t, onRedis(redis.Addr)), runNow(t, onRedis(redis.Addr))
	rows := oddRows()
	if status, _, text := one.importRows(t, false, rows...); status != 200 {
		t.Fatal(text)
	}
	two.await(t, func() bool { return len(two.exported(t)) == len(rows) })
	if status, out, text := two.importRows(t, false, rows...); status != 200 || out.Changed != 0 {
		t.Errorf("again at the other: %d %s", status, text)
	}
	if got := two.mustKeys(t, "peek", `{"rule":"login","key":["192.0.2.3"]}`); got.Remaining != 25 {
		t.Errorf("%d left at the other, want 25", got.Remaining)
	}
}

// A row that is wrong changes nothing, and says where.
func TestImportsThatAreWrong(t *testing.T) {
	f := runNow(t)
	good := `{"kind":"ban","rule":"login","key":["192.0.2.1"],"until":"2100-01-01T00:00:00Z"}`
	for _, row := range []struct{ row, field, detail string }{
		{`{}`, "kind", `"kind" is missing`},
		{`[]`, "", `JSON object`},
		{`{"kind":"limit"}`, "kind", `"kind" is unknown: "limit"`},
		{`{"kind":"ban","rule":"login","key":["192.0.2.1"]}`, "until", `"until" is missing`},
		{`{"kind":"ban","rule":"login","key":["192.0.2.1"],"for":"1h","until":"2100-01-01T00:00:00Z"}`, "for", `unknown field "for"`},
		{`{"kind":"ban","rule":"login","key":["192.0.2.1"],"until":"2200-01-01T00:00:00Z"}`, "until", `more than`},
		{`{"kind":"ban","rule":"login","key":["192.0.2.1","x"],"until":"2100-01-01T00:00:00Z"}`, "key", `does not fit`},
		{`{"kind":"ban","rule":"login","key_base64":"AA==","key":["x"],"until":"2100-01-01T00:00:00Z"}`, "key", `not both`},
		{`{"kind":"ban","rule":"pair","key_base64":"%","until":"2100-01-01T00:00:00Z"}`, "key_base64", `base64`},
		{`{"kind":"ban","rule":"pair","key_base64":"AWE=","until":"2100-01-01T00:00:00Z"}`, "key_base64", `not a key of the rule`},
		{`{"kind":"ban","rule":"pair","key_base64":"/////w==","until":"2100-01-01T00:00:00Z"}`, "key_base64", `not a key of the rule`},
		{`{"kind":"ban","rule":"logim","key":["192.0.2.1"],"until":"2100-01-01T00:00:00Z"}`, "rule", `did you mean "login"`},
		{`{"kind":"ban","domain":"apj","rule":"login","key":["192.0.2.1"],"until":"2100-01-01T00:00:00Z"}`, "domain", `did you mean "api"`},
		{`{"kind":"override","rule":"login","key":["192.0.2.2"],"rate":"5/minuet","until":"2100-01-01T00:00:00Z"}`, "rate", `did you mean "minute"`},
		{`{"kind":"override","rule":"login","key":["192.0.2.2"],"until":"2100-01-01T00:00:00Z"}`, "", `"rate" or "burst" is missing`},
		{`{"kind":"grant","rule":"login","key":["192.0.2.2"],"until":"2100-01-01T00:00:00Z"}`, "", `"amount" is missing`},
		{`{"kind":"grant","rule":"free","key":["ann"],"amount":5,"until":"2100-01-01T00:00:00Z"}`, "rule", `unlimited`},
		{`{"kind":"grant","rule":"login","key":["192.0.2.2"],"amount":5,"id":"","until":"2100-01-01T00:00:00Z"}`, "id", `1 to 100 bytes`},
		{`{"kind":"ban","rule":"login","key":["192.0.2.2"],"by":"a\nb","until":"2100-01-01T00:00:00Z"}`, "by", `control characters`},
		{good, "key", `an earlier row, 1 before, is about the same key`},
	} {
		_, out, text := f.importRows(t, true, good, row.row)
		if out.WrongTotal != 1 || out.Wrong[0].Row != 1 || out.Wrong[0].Field != row.field || !strings.Contains(out.Wrong[0].Detail, row.detail) {
			t.Errorf("%s: %s", row.row, text)
		}
		if status, _, text := f.importRows(t, false, good, row.row); status != http.StatusBadRequest || !strings.Contains(text, "nothing was changed: row 1") {
			t.Errorf("%s: %d %s", row.row, status, text)
		}
	}
	if got := f.exported(t); len(got) > 0 {
		t.Errorf("imported %s", got)
	}
	many := make([]string, admin.MaxImportRows+1)
	for i := range many {
		many[i] = `{}`
	}
	if status, _, text := f.importRows(t, true, many...); status != http.StatusBadRequest || !strings.Contains(text, "at most 5000") {
		t.Errorf("too many: %d %s", status, text)
	}
	if _, out, _ := f.importRows(t, true, many[1:]...); out.WrongTotal != 5000 || len(out.Wrong) != 10 {
		t.Errorf("%d of %d mistakes are told", len(out.Wrong), out.WrongTotal)
	}
	if status, _, text := f.importRows(t, true, `"`+strings.Repeat("x", admin.MaxImportBody)+`"`); status != http.StatusBadRequest || !strings.Contains(text, "too large") {
		t.Errorf("too large: %d %s", status, text)
	}
}

// With admin.keys: hashed, the admin door does not give keys away.
func TestHashedKeysAreNotExported(t *testing.T) {
	f := runNow(t, hashing)
	if res, text := f.get(t, f.adminURL("/v1/keys/export")); res.StatusCode != http.StatusForbidden || !strings.Contains(text, "admin.keys is hashed") {
		t.Errorf("%d %s", res.StatusCode, text)
	}
}

// Many rows go in parts, and all of them are active and exported.
func TestImportOfManyKeys(t *testing.T) {
	f := runNow(t)
	for from := 0; from < 20_000; from += admin.MaxImportRows {
		rows := make([]string, admin.MaxImportRows)
		for i := range rows {
			rows[i] = fmt.Sprintf(`{"kind":"override","rule":"pair","key":["user-%d","k"],"rate":"7/day","until":"2100-01-01T00:00:00Z"}`, from+i)
		}
		if status, out, text := f.importRows(t, false, rows...); status != 200 || out.Changed != len(rows) || out.Room != 100_000-from {
			t.Fatalf("%d %s", status, text)
		}
	}
	if got := len(f.exported(t)); got != 20_000 {
		t.Errorf("%d are exported", got)
	}
	if got := f.mustKeys(t, "peek", `{"rule":"pair","key":["user-19999","k"]}`); got.Limit != 7 {
		t.Errorf("the last one has a limit of %d", got.Limit)
	}
}
