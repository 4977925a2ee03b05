package ownform_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// loadTabled reads a rule with these keys next to a table, and returns the rule, or what
// is wrong, without the name of the folder.
func loadTabled(t testing.TB, keys, name, table string) (*rules.Rule, string) {
	t.Helper()
	dir := t.TempDir()
	text := "domain: d\nlimits:\n  - name: a\n    " + keys + "\n"
	for name, content := range map[string]string{"rules.yaml": text, name: table} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rs, err := rulefile.Load(filepath.Join(dir, "rules.yaml"))
	if err != nil {
		return nil, strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), "")
	}
	var warnings []string
	for _, w := range rs.Warnings() {
		warnings = append(warnings, strings.ReplaceAll(w.String(), dir+string(filepath.Separator), ""))
	}
	return rs.Rule("d", "a"), strings.Join(warnings, "\n")
}

// keyOf composes a key.
func keyOf(t *testing.T, r *rules.Rule, texts ...string) string {
	t.Helper()
	var parts []rules.KeyPart
	for _, text := range texts {
		parts = append(parts, rules.KeyPart{Value: text})
	}
	key, err := r.ComposeKey(parts)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// A row's limit is what the rule would have if its rate, and its burst, were those of the
// row: everything else is the rule's.
func TestLimitsOfRows(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ keys, table, want string }{
		{"rate: {table: t.csv, default: 9/minute}", "k,5/second,", "5/second token_bucket"},
		{"rate: {table: t.csv, default: 9/minute}", "k,5/second,20", "5/second token_bucket burst 20"},
		{"rate: {table: t.csv, default: 9/minute}\n    burst: 30", "k,5/second,", "5/second token_bucket burst 30"},
		{"rate: {table: t.csv, default: 9/minute}\n    burst: 30", "k,5/second,1_000", "5/second token_bucket burst 1000"},
		{"rate: {table: t.csv, default: 9}\n    period: 30s", "k,5,", "5/30s token_bucket"},
		{"rate: {table: t.csv, default: 60/minute}\n    refill: {every: 10s}", "k,5/second,60", "5/second token_bucket burst 60 refilled every 10s"},
		{"rate: {table: t.csv, default: unlimited}\n    refill: {every: 1h}", "k,5/second,20000", "5/second token_bucket burst 20000 refilled every 1h"},
		{"rate: {table: t.csv, default: deny}\n    burst: 20\n    refill: {every: 30s}", "k,5/minute,", "5/minute token_bucket burst 20 refilled every 30s"},
		{"rate: {table: t.csv, default: 9/minute}", "k, Unlimited ,", "unlimited"},
		{"rate: {table: t.csv, default: 9/minute}", "k,deny,", "0/minute token_bucket"},
		{"rate: {table: t.csv, default: 9/minute}\n    algorithm: fixed_window\n    timezone: Europe/Berlin", "k,7/day,", "7/day fixed_window in Europe/Berlin"},
		{"rate: {table: t.csv, default: 9/minute}\n    algorithm: fixed_window", "k,7/month,", "7/month fixed_window in UTC"},
		{"rate: {table: t.csv, default: unlimited}\n    algorithm: sliding_log\n    count_denied: true", "k,7/hour,", "7/hour sliding_log counting refusals"},
		{"rate: {table: t.csv, default: deny}\n    algorithm: leaky_bucket\n    burst: 40\n    delay_after: 20", "k,10/second,", "10/second leaky_bucket burst 40 delay after 20"},
		{"rate: {table: t.csv, default: unlimited}\n    on_limit: {action: delay, max_wait: 2s}", "k,10/second,", "10/second leaky_bucket burst 30 delay after 10 wait at most 2s"},
	} {
		r, problems := loadTabled(t, "key: user\n    "+row.keys, "t.csv", "key,rate,burst\n"+row.table+"\n")
		if r == nil {
			t.Errorf("%s: %s", row.keys, problems)
			continue
		}
		if got := r.ForKey(keyOf(t, r, "k")).Limit.String(); got != row.want {
			t.Errorf("%s, %s: %s, want %s", row.keys, row.table, got, row.want)
		}
		if r.ForKey(keyOf(t, r, "another")) != r {
			t.Errorf("%s: a key without a row has another limit than the default", row.keys)
		}
	}
}

// Keys in a table are what people write: as a client sends them, in the form that doors
// count by, or a digest.
func TestKeysOfRows(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		key, table string
		texts      []string
	}{
		{"key: client_ip", "key,rate\n198.51.100.7,5/s\n", []string{"198.51.100.7"}},
		{"key: client_ip", "client_ip,rate\n2001:db8:1:2::9,5/s\n", []string{"2001:db8:1:2::/64"}},
		{"key: client_ip", "key,rate\n2001:db8:1:2::/64,5/s\n", []string{"2001:db8:1:2::/64"}},
		{"key: [user, path]", "rate,path,user\n5/s,/a//b,ann\n", []string{"ann", "/a/b"}},
		{"key: [user, 'header:x-plan']", "rate,header:X-Plan,user\n5/s,gold,ann\n", []string{"ann", "gold"}},
		{"key: 'hash:header:X-Api-Key'", "key,rate\nsecret,5/s\n", []string{"secret"}},
		{"key: 'hash:header:X-Api-Key'", "key,rate\nhash:2bb80d537b1da3e38bd30361aa855686,5/s\n", []string{"secret"}},
		{"key: 'hash:header:X-Api-Key'", "header:X-Api-Key,rate\nsecret,5/s\n", []string{"secret"}},
		{"key: user", "key,rate\n" + strings.Repeat("x", 300) + ",5/s\n", []string{strings.Repeat("x", 300)}},
	} {
		r, problems := loadTabled(t, row.key+"\n    rate: {table: t.csv, default: 9/minute}", "t.csv", row.table)
		if r == nil {
			t.Errorf("%s: %s", row.key, problems)
			continue
		}
		if got := r.ForKey(keyOf(t, r, row.texts...)).Limit.String(); got != "5/second token_bucket" {
			t.Errorf("%s, %s: %s", row.key, row.table, got)
		}
	}
}

func TestMistakesOfTables(t *testing.T) {
	t.Parallel()
	const rate = "key: user\n    rate: {table: t.csv, default: 9/minute}"
	const zoned = rate + "\n    algorithm: fixed_window\n    timezone: {column: zone}"
	for _, row := range []struct{ keys, table, want string }{
		{"key: user\n    rate: {table: t.csv}", "", `rules.yaml:5:11: rate has no "default", the rate of keys that are not in the table; for example default: 100/minute`},
		{"key: user\n    rate: {default: 5/s}", "", `rules.yaml:5:11: rate has neither "table" nor "from"`},
		{"key: user\n    rate: {tabel: t.csv, default: 5/s}", "", `rules.yaml:5:12: unknown key "tabel" in rate, did you mean "table"?`},
		{"key: user\n    rate: {table: t.txt, default: 5/s}", "", `the name of a table ends in .csv, .json, .yaml or .yml, not ".txt"`},
		{"key: user\n    rate: {table: other.csv, default: 5/s}", "", `the table "other.csv" cannot be read: no such file or directory; the path is relative`},
		{"key: user\n    rate: {table: t.csv, default: 5/minuet}", "", `rules.yaml:5:35: unknown unit "minuet", did you mean "minute"?`},
		{"rate: {table: t.csv, default: 5/s}", "", `a table needs a key: its rows are for single keys; add a key`},
		{"key: user\n    concurrency: 5\n    rate: {table: t.csv, default: 5/s}", "", `"rate" cannot be combined with concurrency`},
		{"key: user\n    concurrency: {table: t.csv, default: 5}", "", `"concurrency" must be a whole number, not a mapping`},
		{rate, "key,rate\nk,5\n", `t.csv:2:3: invalid rate "5": want N/unit, such as 5/minute`},
		{rate, "key,rate\nk,5/minuet\n", `t.csv:2:3: unknown unit "minuet", did you mean "minute"?`},
		{rate, "key,rate,burst\nk,5/s,many\n", `t.csv:2:7: invalid burst: invalid count "many": want a whole number`},
		{rate, "key,rate,burst\nk,5/s,0\n", `t.csv:2:7: "burst" must be from 1`},
		{rate, "key,rate,burst\nk,unlimited,5\n", `t.csv:2:13: unlimited has no burst`},
		{rate + "\n    algorithm: sliding_window", "key,rate,burst\nk,5/s,6\n", `t.csv:2:7: "burst" does not apply to sliding_window`},
		{rate + "\n    count: distinct\n    of: path", "key,rate\nj,65536/hour\nk,65537/hour\n", `t.csv:3:3: a limit of 65537 different values can be measured, but not enforced`},
		{"key: user\n    rate: {table: t.csv, default: 65537/hour}\n    count: distinct\n    of: path", "key,rate\nj,5/hour\n", `rules.yaml:5:35: a limit of 65537 different values can be measured`},
		{"key: user\n    rate: {from: 'jwt:rate', max: 65537/hour, default: 5/hour}\n    count: distinct\n    of: path", "", `rules.yaml:5:35: max: a limit of 65537 different values can be measured`},
		{rate, "key,rate\nk,5/s\nj,5/s\nk,6/s\n", `t.csv:4:1: duplicate key, first on line 2`},
		{rate, "key,rate\nk ,5/s\n", `t.csv:2:1: key: "k " begins or ends with a space`},
		{"key: client_ip\n    rate: {table: t.csv, default: 5/s}", "key,rate\nann,5/s\n", `t.csv:2:1: key: "ann" is not an IP address`},
		{"key: client_ip\n    rate: {table: t.csv, default: 5/s}", "key,rate\n10.0.0.0/8,5/s\n", `t.csv:2:1: key: clients there are counted by 10.0.0.0, not by 10.0.0.0/8`},
		{"key: [user, team]\n    rate: {table: t.csv, default: 5/s}", "user,taem,rate\n", `t.csv:1:6: unknown column "taem", did you mean "team"?`},
		{zoned, "key,rate,zone\nk,5/day,Europe/Berlim\n", `t.csv:2:9: unknown timezone "Europe/Berlim", did you mean "Europe/Berlin"?`},
		{zoned, "key,rate,zone\nk,5/day,../etc/localtime\n", `t.csv:2:9: unknown timezone "../etc/localtime"`},
		{zoned, "key,rate,zone\nk,5/day,Local\n", `t.csv:2:9: unknown timezone "Local"`},
		{zoned, "key,rate,zone\nk,5/90s,UTC\n", `t.csv:2:3: "timezone" needs a rate per minute, hour, day, week, month or year`},
		{zoned, "key,rate,zoen\nk,5/day,UTC\n", `t.csv:1:10: unknown column "zoen", did you mean "zone"?`},
		{zoned, "key,rate\nk,5/day\n", `t.csv:1:1: the table has no column "zone"`},
	} {
		r, problems := loadTabled(t, row.keys, "t.csv", row.table)
		if r != nil || !strings.Contains(problems, row.want) {
			t.Errorf("%s, %q: %q, want %q", row.keys, row.table, problems, row.want)
		}
	}
	if _, diagnostics := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte("domain: d\nlimits:\n  - {name: a, key: user, rate: {table: t.csv, default: 5/s}}\n")}); !strings.Contains(fmt.Sprint(diagnostics), "tables can be read only for rules that are in a file") {
		t.Error(diagnostics)
	}
}

// A table may be in a folder of rules, also in YAML: it is not read as rules.
func TestTableAmongRules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"rules.yaml": "domain: d\nlimits:\n  - {name: a, key: user, rate: {table: t.yaml, default: 5/s}}\n",
		"t.yaml":     "- {key: ann, rate: 7/s}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rs, err := rulefile.Load(dir)
	if err != nil || rs.Stats().Files != 1 || rs.Tables()[0].Rows.Len() != 1 {
		t.Errorf("%v %+v", err, rs)
	}
}

// Each tier may have a table of its own.
func TestTablesOfTiers(t *testing.T) {
	t.Parallel()
	r, problems := loadTabled(t, "key: user\n    rate: 1/s\n    tiers: {by: plan, gold: {rate: {table: t.csv, default: 9/s}}}", "t.csv", "key,rate\nann,20/s\n")
	if r == nil || problems != "" {
		t.Fatal(problems)
	}
	if got := r.ForKey(keyOf(t, r, "ann")).Limit.String(); got != "1/second token_bucket" {
		t.Errorf("without a tier: %s", got)
	}
}

// A row whose limit is smaller than the number of regions leaves some of them without a
// token: the first one is named, and a key that is denied, or unlimited, is none.
func TestRowsThatRegionsCannotShare(t *testing.T) {
	t.Parallel()
	const keys = "key: header:X\n    algorithm: fixed_window\n    rate: {table: t.csv, default: 9/minute}"
	const warning = `rules.yaml:6:19: warning: a region without a part of a limit refuses everything: line 4 of the table "t.csv" has a limit below 2, the number of regions; use a limit of at least as many as there are regions`
	table := "key,rate\na,2/minute\nb,deny\nc,1/minute\nd,1/hour\ne,unlimited\n"
	for regions, want := range map[string]string{"shared": warning, "separate": "", "{home: eu}": ""} {
		if _, got := loadTabled(t, keys+"\n    regions: "+regions, "t.csv", table); got != want {
			t.Errorf("%s:\n got %s\nwant %s", regions, got, want)
		}
	}
}
