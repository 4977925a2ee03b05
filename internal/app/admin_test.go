package app_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
)

func TestAdminDoor(t *testing.T) {
	const token = "0123456789abcdef"
	f := run(t, loginRules, hello, func(c *config.Config) {
		c.Listen.Admin = "127.0.0.1:0"
		c.Admin = config.Admin{Token: token, Pprof: true}
	})
	at := "http://" + f.Addr(app.DoorAdmin)
	rows := []struct {
		path, authorization string
		status              int
		has                 string
	}{
		{"/rlconfig", "", http.StatusUnauthorized, "token"},
		{"/rlconfig", "Bearer " + token, http.StatusOK, "api.login: 5/1m0s sliding_window ("},
		{"/playground", "", http.StatusUnauthorized, "token"},
		{"/playground", "Bearer " + token, http.StatusOK, "<title>Playground"},
		{"/healthz", "", http.StatusOK, "ok"},
		{"/readyz?verbose", "", http.StatusOK, `"loads_succeeded":1`},
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
	if _, body := f.get(t, at+"/rlconfig", "Authorization", "Bearer "+token); !strings.Contains(body, "api.login: 10/1m0s") {
		t.Errorf("after a reload: %q", body)
	}
	if strings.Contains(f.journal.text.String(), token) {
		t.Error("the token is in the log")
	}
}
