package e2e

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/api"
)

func TestAdminDoor(t *testing.T) {
	const token = "0123456789abcdef"
	f := run(t, loginRules, hello, func(c *config.Config) {
		c.Door("admin").Address = "127.0.0.1:0"
		adminOf(c).Token, adminOf(c).Pprof = token, true
	})
	at := "http://" + f.Addr(doorAdmin)
	rows := []struct {
		path, authorization string
		status              int
		has                 string
	}{
		{"/rlconfig", "", http.StatusUnauthorized, "token"},
		{"/rlconfig", "Bearer " + token, http.StatusOK, "api.login: 5/minute sliding_window ("},
		{"/playground", "", http.StatusUnauthorized, "token"},
		{"/playground", "Bearer " + token, http.StatusOK, "<title>Playground"},
		{"/", "", http.StatusUnauthorized, "token"},
		{"/", "Bearer " + token, http.StatusOK, "<title>Dashboard"},
		{"/healthz", "", http.StatusOK, "ok"},
		{"/healthz?at=1", "", http.StatusOK, "ok"},
		{"/readyz", "", http.StatusOK, "ok"},
		{"/readyz?verbose", "", http.StatusUnauthorized, "token"},
		{"/readyz?verbose", "Bearer " + token, http.StatusOK, `"loads_succeeded":1`},
		{"/debug/pprof/heap?debug=1", "", http.StatusUnauthorized, "token"},
		{"/debug/pprof/heap?debug=1", "Bearer " + token, http.StatusOK, "heap profile"},
	}
	for _, row := range rows {
		res, body := f.get(t, at+row.path, "Authorization", row.authorization)
		if res.StatusCode != row.status || !strings.Contains(body, row.has) {
			t.Errorf("%s with %q: %d %.200q, want %d and %q", row.path, row.authorization, res.StatusCode, body, row.status, row.has)
		}
	}
	writeFile(t, f.config.Rules[0], tenRules)
	if err := f.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, body := f.get(t, at+"/rlconfig", "Authorization", "Bearer "+token); !strings.Contains(body, "api.login: 10/minute") {
		t.Errorf("after a reload: %q", body)
	}
	if strings.Contains(f.journal.text.String(), token) {
		t.Error("the token is in the log")
	}
}

// Operators can explain rules even if the API does not allow it.
func TestAdminDoorExplains(t *testing.T) {
	f := run(t, loginRules, hello, func(c *config.Config) {
		c.Door("admin").Address, apiOf(c).Explain = "127.0.0.1:0", api.ExplainOff
	})
	body := `{"domain":"api","attributes":{"method":"POST","path":"/login","client_ip":"198.51.100.7"}}`
	for _, row := range []struct {
		door   string
		status int
	}{{doorAPI, http.StatusNotFound}, {doorAdmin, http.StatusOK}} {
		res, err := http.Post("http://"+f.Addr(row.door)+"/v1/explain", "application/json", strings.NewReader(body)) //nolint:noctx // a test
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != row.status {
			t.Errorf("%s: %d %s, want %d", row.door, res.StatusCode, text, row.status)
		}
		if row.status == http.StatusOK && !strings.Contains(string(text), `"rule":"login"`) {
			t.Errorf("%s: %s", row.door, text)
		}
	}
}
