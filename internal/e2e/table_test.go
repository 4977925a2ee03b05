package e2e

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/internal/config"
)

// A table is followed like rule files, live or of a candidate, with and without reports of
// the file system. With a mistake the old one stays.
func TestTableIsReadAgainWhenItChanges(t *testing.T) {
	t.Parallel()
	for _, only := range []bool{false, true} {
		dir, tables := t.TempDir(), t.TempDir() // of different folders
		rules, table := filepath.Join(dir, "rules.yaml"), filepath.Join(tables, "t.csv")
		writeFile(t, rules, "domain: api\nlimits:\n  - {name: a, key: 'header:X-Key', rate: {table: "+table+", default: 5/hour}}\n")
		writeFile(t, table, "key,rate\nann,7/hour\n")
		f := following(t, only, func(c *config.Config) {
			c.Rules, c.Candidate.Rules = []string{rules}, []string{rules}
		})
		limit := func(want string) func() bool {
			return func() bool {
				res, _ := f.get(t, f.proxyURL("/"), "X-Key", "ann")
				return res.StatusCode == http.StatusOK && res.Header.Get("X-RateLimit-Limit") == want
			}
		}
		f.await(t, limit("7"))
		replaceFile(t, table, "key,rate\nann,9/hour\n")
		f.await(t, limit("9"))
		replaceFile(t, table, "key,rate\nann,11/houx\n")
		f.journal.await(t, "rules not reloaded")
		f.await(t, limit("9"))
		replaceFile(t, table, "key,rate\nann,12/hour\n")
		f.await(t, limit("12"))
		if res, _ := f.get(t, f.proxyURL("/"), "X-Key", "ann"); res.Header.Get("X-RateLimit-Remaining") == "11" {
			t.Error("the key has lost its usage")
		}
	}
}
