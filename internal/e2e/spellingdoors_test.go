package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/textproto"
	"path/filepath"
	"strings"
	"testing"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/replay/offline"
)

const valueRules = `
domain: api
limits:
  - {name: cookie, match: {path: /cookie}, key: ["cookie:session"], rate: 1/day}
  - {name: header, match: {path: /header}, key: ["header:X-Api-Key"], rate: 1/day}
  - {name: auth, match: {path: /auth}, key: ["header:Authorization"], rate: 1/day}
`

// otherSpellings are different spellings of one value each, as callers that do not
// parse it pass it on, by path and attribute.
func otherSpellings() map[string][]string {
	return map[string][]string{
		"/cookie cookie:session":     {"real", " real ", `"real"`, "r%65al", "%72%65%61%6C"},
		"/header header:X-Api-Key":   {"real", "real"},
		"/header header:x-api-key":   {"real"},
		"/auth header:Authorization": {"Bearer real", "bearer real", "BEARER  real"},
	}
}

// A different spelling of a value has no second budget at the doors that receive
// attributes, as at the proxy.
func TestSpellingsOfValuesAtEveryDoor(t *testing.T) {
	doors := map[string]func(t *testing.T, f *fixture, path, name, value string) bool{
		"check": func(t *testing.T, f *fixture, path, name, value string) bool {
			t.Helper()
			body, err := json.Marshal(map[string]any{"domain": "api", "attributes": map[string]string{"path": path, name: value}})
			if err != nil {
				t.Fatal(err)
			}
			res, err := f.client.Post(f.apiURL("/v1/check"), "application/json", strings.NewReader(string(body)))
			if err != nil {
				t.Fatal(err)
			}
			read(t, res)
			return res.StatusCode == http.StatusOK
		},
		"gRPC": func(t *testing.T, f *fixture, path, name, value string) bool {
			t.Helper()
			res, err := headgatev1.NewLimiterClient(dialGRPC(t, f.Addr(doorGRPC))).Check(
				t.Context(), &headgatev1.CheckRequest{Domain: "api", Attributes: map[string]string{"path": path, name: value}})
			if err != nil {
				t.Fatal(err)
			}
			return res.GetVerdict().GetAllowed()
		},
		"HG.CHECK": func(t *testing.T, f *fixture, path, name, value string) bool {
			t.Helper()
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", f.Addr(doorRESP))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			args := []string{"HG.CHECK", "api", "1", "path", path, name, value}
			_, _ = fmt.Fprintf(conn, "*%d\r\n", len(args))
			for _, arg := range args {
				_, _ = fmt.Fprintf(conn, "$%d\r\n%s\r\n", len(arg), arg)
			}
			in := textproto.NewConn(conn)
			head, _ := in.ReadLine()
			allowed, err := in.ReadLine()
			if err != nil || !strings.HasPrefix(head, "*") {
				t.Fatalf("%s %s %v", head, allowed, err)
			}
			return allowed == ":1"
		},
	}
	for door, ask := range doors {
		t.Run(door, func(t *testing.T) {
			f := run(t, valueRules, nil, func(c *config.Config) { c.Door("grpc").Address, c.Door("resp").Address = "127.0.0.1:0", "127.0.0.1:0" })
			passed := map[string]int{}
			for where, values := range otherSpellings() {
				path, name, _ := strings.Cut(where, " ")
				for _, value := range values {
					if ask(t, f, path, name, value) {
						if passed[path]++; passed[path] > 1 {
							t.Errorf("%s=%q at %s is admitted to what was admitted before", name, value, path)
						}
					}
				}
			}
			if len(passed) != 3 {
				t.Errorf("the test tests nothing: %v", passed)
			}
		})
	}
}

// The same for a replayed log.
func TestSpellingsOfValuesInALog(t *testing.T) {
	folder := t.TempDir()
	rules, log := filepath.Join(folder, "rules.yaml"), filepath.Join(folder, "access.json")
	writeFile(t, rules, valueRules)
	var lines strings.Builder
	for where, values := range otherSpellings() {
		path, name, _ := strings.Cut(where, " ")
		for _, value := range values {
			line, err := json.Marshal(map[string]string{"time": "2026-11-21T12:00:00Z", "method": "GET", "path": path, "value": value, "name": name})
			if err != nil {
				t.Fatal(err)
			}
			if name == "cookie:session" {
				lines.Write(append(line, '\n'))
			}
		}
	}
	writeFile(t, log, lines.String())
	s := offline.Simulation{
		AccessLogs: offline.AccessLogs{Paths: []string{log}, Format: "json", Timezone: "UTC", Map: []string{"cookie:session=value"}},
		Rules:      []string{rules}, Top: 5,
	}
	report, err := s.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if report.Requests != 5 || report.Allowed != 1 {
		t.Errorf("%d requests, %d allowed, want 5 and 1", report.Requests, report.Allowed)
	}
}
