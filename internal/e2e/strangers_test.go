package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/engine"
)

// A misspelt domain limits nothing, so it is logged, once and with the nearest one; however
// many a caller invents, the log stays short.
func TestMisspeltDomainsAreLogged(t *testing.T) {
	for answer, change := range map[string]set{
		"allowed": func(*config.Config) {},
		"refused": func(c *config.Config) { c.UnknownDomain = engine.UnknownDomainRefuse },
	} {
		f := run(t, loginRules, nil, change)
		for range 3 {
			f.post(t, "/v1/check", `{"domain":"apii","attributes":{}}`)
			f.post(t, "/v1/check", `{"domain":"api","attributes":{}}`)
		}
		for i := range 50 {
			f.post(t, "/v1/check", fmt.Sprintf(`{"domain":"invented-%d","attributes":{}}`, i))
		}
		log := f.journal.text.String()
		if n := strings.Count(log, "a request names a domain without rules"); n != 16 {
			t.Errorf("%s: %d lines", answer, n)
		}
		if !strings.Contains(log, "domain=apii answer="+answer) || strings.Count(log, `did you mean \"api\"?`) != 1 {
			t.Errorf("%s: %s", answer, log)
		}
	}
}

// Behind a load balancer that is not trusted, all clients share one count, so an ignored
// X-Forwarded-For is logged, once, with the setting.
func TestIgnoredAddressesAreLogged(t *testing.T) {
	f := run(t, loginRules, http.NotFoundHandler())
	for i := range 3 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.proxyURL("/"), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Forwarded-For", fmt.Sprintf("198.51.100.%d", i))
		res, err := f.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
	}
	if log := f.journal.text.String(); strings.Count(log, "is ignored") != 1 || !strings.Contains(log, "trusted_proxies: [127.0.0.1]") {
		t.Error(log)
	}
}

// Counts that a restart forgets are announced, counts in a file are not.
func TestCountsInMemoryAreAnnounced(t *testing.T) {
	const line = "counts are kept in memory: a restart forgets them"
	if f := run(t, loginRules, nil); strings.Count(f.journal.text.String(), line) != 1 {
		t.Error(f.journal.text.String())
	}
	file := filepath.Join(t.TempDir(), "state")
	if f := run(t, loginRules, nil, func(c *config.Config) { c.Store.Memory.Snapshot = file }); strings.Contains(f.journal.text.String(), line) {
		t.Error(f.journal.text.String())
	}
}
