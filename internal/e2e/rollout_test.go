package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/admin"
)

// perKey is a rule that allows each key once.
func perKey(how string) string {
	return fmt.Sprintf(`
domain: api
limits:
  - {name: per-key, match: {path: /v1/**}, key: ["header:X-Api-Key"], rate: 1/hour, algorithm: fixed_window, %s}
`, how)
}

const rolloutKeys = 150

// enforced sends two requests per key through the proxy, and returns the keys whose
// second request is refused.
func (f *fixture) enforced(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for i := range rolloutKeys {
		key := fmt.Sprintf("key-%d", i)
		for time := range 2 {
			res, _ := f.get(t, f.proxyURL("/v1/things"), "X-Api-Key", key)
			switch {
			case res.StatusCode == http.StatusTooManyRequests && time == 1:
				out[key] = true
			case res.StatusCode != http.StatusOK:
				t.Fatalf("request %d of %s: %d", time, key, res.StatusCode)
			}
		}
	}
	return out
}

// outcomes returns the outcomes of the rule in /metrics.
func (f *fixture) outcomes(t *testing.T) string {
	t.Helper()
	var words []string
	for _, o := range []string{"allowed", "refused", "shadow_refused"} {
		words = append(words, o+" "+f.metric(t, `headgate_decisions_total{domain="api",outcome="`+o+`",rule="per-key"}`))
	}
	return strings.Join(words, ", ")
}

// Shadow mode refuses no request and counts those it would refuse.
func TestShadowThroughTheProxy(t *testing.T) {
	f := run(t, perKey("mode: shadow"), hello, withAdmin)
	if got := f.enforced(t); len(got) != 0 {
		t.Errorf("%d keys are refused", len(got))
	}
	if got := f.outcomes(t); got != "allowed 150, refused 0, shadow_refused 150" {
		t.Error(got)
	}
	if got := f.metric(t, `headgate_requests_total{door="proxy",outcome="shadow_refused"}`); got != "150" {
		t.Errorf("%s requests that would be refused", got)
	}
}

// The keys for which a percentage is enforced are the same after a restart and on
// another node. A growing percentage adds keys and drops none.
func TestPercentThroughTheProxy(t *testing.T) {
	t.Parallel()
	f := run(t, perKey("percent: 10"), hello, withAdmin)
	ten := f.enforced(t)
	if n := len(ten); n < rolloutKeys/20 || n > rolloutKeys/6 {
		t.Errorf("%d of %d keys are in the tenth", n, rolloutKeys)
	}
	want := fmt.Sprintf("allowed 150, refused %d, shadow_refused %d", len(ten), rolloutKeys-len(ten))
	if got := f.outcomes(t); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if err := f.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	f.renew(t) // without a snapshot counts start over
	f.start(t)
	if got := f.enforced(t); !maps.Equal(got, ten) {
		t.Errorf("after a restart: %d keys, not the same %d", len(got), len(ten))
	}
	other := run(t, perKey("percent: 10"), hello)
	if got := other.enforced(t); !maps.Equal(got, ten) {
		t.Errorf("on another node: %d keys, not the same %d", len(got), len(ten))
	}
	last := ten
	for _, percent := range []int{20, 100} {
		writeFile(t, f.config.Rules[0], perKey(fmt.Sprintf("percent: %d", percent)))
		if err := f.Reload(); err != nil {
			t.Fatal(err)
		}
		f.clock.advance(time.Hour)
		now := f.enforced(t)
		for key := range last {
			if !now[key] {
				t.Errorf("%s is enforced before %d percent and not at it", key, percent)
			}
		}
		if len(now) <= len(last) {
			t.Errorf("%d keys at %d percent, %d before", len(now), percent, len(last))
		}
		last = now
	}
	if len(last) != rolloutKeys {
		t.Errorf("%d of %d keys at 100 percent", len(last), rolloutKeys)
	}
}

// trying makes rules in a folder the candidate, and returns its only file.
func trying(t *testing.T, text string) (file string, change set) {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "rules-new")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(folder, "api.yaml")
	writeFile(t, file, text)
	return file, func(c *config.Config) { c.Candidate.Rules = []string{folder} }
}

func loginRate(rate string) string { return strings.Replace(loginRules, "5/minute", rate, 1) }

func (f *fixture) candidate(t *testing.T) admin.CandidateStatus {
	t.Helper()
	return answerOf[admin.CandidateStatus](t, f, "/v1/candidate")
}

// compared formats a comparison in one line.
func compared(s *admin.CandidateStatus) string {
	return fmt.Sprintf("%s %d: %d same, %d newly refused, %d newly allowed", s.State, s.Requests, s.Same, s.NewlyRefused, s.NewlyAllowed)
}

// A candidate becomes the active rules, through the proxy.
func TestCandidateThroughTheProxy(t *testing.T) {
	t.Parallel()
	file, with := trying(t, loginRate("3/minute"))
	f := run(t, loginRules, hello, withAdmin, with)
	for i := range 7 {
		res, _ := f.get(t, f.proxyURL("/login"))
		if want := i < 5; (res.StatusCode == http.StatusOK) != want {
			t.Fatalf("request %d: %d; the candidate answers", i, res.StatusCode)
		}
	}
	if !answerOf[admin.Status](t, f, "/v1/status").Candidate {
		t.Error("the status does not tell of the candidate")
	}
	s := f.candidate(t)
	if got := compared(&s); got != "comparing 7: 5 same, 2 newly refused, 0 newly allowed" || s.SameAllowed != 3 || s.SameRefused != 2 {
		t.Errorf("%s, %+v", got, s)
	}
	if len(s.By) != 1 || s.By[0].Rule != "login" || s.By[0].NewlyRefused != 2 || *s.By[0].Keys[0].Parts[0] != "127.0.0.1" || len(s.Samples) != 2 ||
		s.Samples[0].Path != "/login" || s.Samples[0].Door != "proxy" || s.Samples[0].Limit != 3 || *s.Samples[0].RetryAfter <= 0 {
		t.Errorf("%+v", s)
	}
	if !s.Since.Equal(f.clock.Now()) || s.WarmAt.Sub(*s.Since) != time.Minute || s.Store.Keys != 1 || s.Rules.Rules != 1 {
		t.Errorf("%+v", s)
	}
	for change, want := range map[string]string{"same_allowed": "3", "same_refused": "2", "newly_refused": "2", "newly_allowed": "0"} {
		if got := f.metric(t, `headgate_candidate_decisions_total{change="`+change+`"}`); got != want {
			t.Errorf("%s: %s, want %s", change, got, want)
		}
	}
	if got := f.metric(t, `headgate_memory_keys`); got != "1" {
		t.Errorf("%s keys in the live store", got)
	}

	// The promotion: the file is moved to the live rules.
	f.journal.await(t, "rules loaded")
	if err := os.Rename(file, f.config.Rules[0]); err != nil {
		t.Fatal(err)
	}
	f.journal.await(t, "rules reloaded")
	f.await(t, func() bool { return f.candidate(t).State == admin.CandidateAbsent })
	f.clock.advance(2 * time.Minute)
	for i := range 4 {
		res, _ := f.get(t, f.proxyURL("/login"))
		if want := i < 3; (res.StatusCode == http.StatusOK) != want {
			t.Errorf("request %d after the promotion: %d", i, res.StatusCode)
		}
	}
	s = f.candidate(t)
	if s.Since != nil || s.Requests != 0 || s.Rules.Rules != 0 {
		t.Errorf("after the promotion: %+v", s)
	}
}

func TestCandidateReload(t *testing.T) {
	t.Parallel()
	file, with := trying(t, "domain: [")
	f := run(t, loginRules, hello, withAdmin, with)
	f.journal.await(t, "candidate not loaded")
	if s := f.candidate(t); s.State != admin.CandidateFailed || s.Rules.LastError == "" || s.Since != nil {
		t.Errorf("a candidate that is wrong from the start: %+v", s)
	}
	f.login(t, "198.51.100.7")
	replaceFile(t, file, loginRate("1/minute"))
	f.journal.await(t, "candidate loaded")
	f.login(t, "198.51.100.7")
	f.login(t, "198.51.100.7")
	s := f.candidate(t)
	if got := compared(&s); got != "comparing 2: 1 same, 1 newly refused, 0 newly allowed" {
		t.Error(got)
	}
	replaceFile(t, file, "domain: [")
	f.journal.await(t, "candidate not reloaded")
	f.login(t, "198.51.100.7")
	s = f.candidate(t)
	if got := compared(&s); got != "comparing 3: 1 same, 2 newly refused, 0 newly allowed" || s.Rules.LastError == "" {
		t.Errorf("a bad file changes nothing: %s, %q", got, s.Rules.LastError)
	}
	replaceFile(t, file, loginRate("1/minute"))
	f.await(t, func() bool { return f.candidate(t).Rules.LastError == "" })
	if s = f.candidate(t); s.NewlyRefused != 2 {
		t.Errorf("the same rules again begin a new comparison: %s", compared(&s))
	}
	// Changed live rules start a new comparison; the same rules read again do not.
	if err := f.Reload(); err != nil {
		t.Fatal(err)
	}
	if s = f.candidate(t); s.NewlyRefused != 2 {
		t.Errorf("the same live rules again begin a new comparison: %s", compared(&s))
	}
	writeFile(t, f.config.Rules[0], loginRate("9/minute"))
	if err := f.Reload(); err != nil {
		t.Fatal(err)
	}
	if s = f.candidate(t); s.Requests != 0 {
		t.Errorf("after a change of the live rules: %s", compared(&s))
	}
}

func TestCandidateAtTheAdminDoor(t *testing.T) {
	_, with := trying(t, loginRate("0/minute"))
	f := run(t, loginRules, nil, withAdmin, with, hashing)
	f.login(t, "198.51.100.7")
	if s := f.candidate(t); len(s.By) != 1 || s.By[0].Keys[0].Hash == "" || s.By[0].Keys[0].Parts != nil || s.Samples[0].RetryAfter != nil {
		t.Errorf("%+v", s)
	}
	post := func(body string) (int, string) {
		res, err := f.client.Post(f.adminURL("/v1/candidate/reset"), "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, read(t, res)
	}
	if code, body := post(`{"all":true}`); code != http.StatusBadRequest || !strings.Contains(body, "empty or {}") {
		t.Errorf("%d %s", code, body)
	}
	if code, body := post(""); code != http.StatusOK || !strings.Contains(body, `"requests":0`) {
		t.Errorf("%d %s", code, body)
	}
	if res, body := f.get(t, f.adminURL("/v1/candidate?n=99")); res.StatusCode != http.StatusBadRequest || !strings.Contains(body, "from 0 to 64") {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	without := run(t, loginRules, nil, withAdmin)
	if res, body := without.get(t, without.adminURL("/v1/candidate")); res.StatusCode != http.StatusNotFound || !strings.Contains(body, "--candidate") {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	if got := without.metric(t, `headgate_candidate_rules`); got != "none" {
		t.Errorf("metrics of a candidate that is not there: %s", got)
	}
}
