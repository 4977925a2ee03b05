package e2e

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

// peeked is what a peek tells about a key, by each door.
type peeked struct {
	CreatedAt time.Time `json:"created_at"`
	ChangedAt time.Time `json:"changed_at"`
}

const (
	loginOfAnn = `"domain":"api","attributes":{"path":"/login","client_ip":"198.51.100.7"}`
	peekOfAnn  = `{` + loginOfAnn + `,"peek":true}`
)

// peeks asks the admin door, the HTTP API and gRPC.
func (f *fixture) peeks(t *testing.T) map[string]peeked {
	t.Helper()
	out := map[string]peeked{}
	for name, url := range map[string]string{"admin": f.adminURL("/v1/keys/peek"), "api": f.apiURL("/v1/check")} {
		body := peekOfAnn
		if name == "admin" {
			body = `{` + ann + `}`
		}
		res, err := f.client.Post(url, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		var p peeked
		if text := read(t, res); json.Unmarshal([]byte(text), &p) != nil || res.StatusCode != http.StatusOK && res.StatusCode != http.StatusTooManyRequests {
			t.Fatal(name, res.Status, text)
		}
		out[name] = p
	}
	answer, err := headgatev1.NewLimiterClient(dialGRPC(t, f.Addr(doorGRPC))).Check(t.Context(), &headgatev1.CheckRequest{
		Domain: "api", Attributes: map[string]string{"path": "/login", "client_ip": "198.51.100.7"}, Peek: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	var p peeked
	if answer.CreatedAtMs != nil {
		p.CreatedAt = time.UnixMilli(answer.GetCreatedAtMs())
	}
	if answer.ChangedAtMs != nil {
		p.ChangedAt = time.UnixMilli(answer.GetChangedAtMs())
	}
	out["grpc"] = p
	return out
}

// A peek at any door tells when a key was created and last changed, if the store records
// it.
func TestPeekTellsKeyTimes(t *testing.T) {
	const onlyLogin = `{domain: api, limits: [{name: login, match: {path: /login}, key: [client_ip], rate: 3/hour, algorithm: sliding_log}]}`
	doors := func(c *config.Config) { c.Door("admin").Address, c.Door("grpc").Address = "127.0.0.1:0", "127.0.0.1:0" }
	f := run(t, onlyLogin, nil, doors, func(c *config.Config) { c.Store.KeyTimes = true })
	start := f.clock.Now()
	const none = -1
	at := 0
	for i, step := range []struct {
		after, requests  int // seconds since the step before, and what then comes
		created, changed int // seconds after the start
	}{
		{0, 0, none, none},
		{1, 1, 1, 1},
		{60, 2, 1, 61},
		{60, 1, 1, 61}, // refused
		{3600, 0, none, none},
		{60, 1, 3781, 3781}, // created again
	} {
		f.clock.advance(time.Duration(step.after) * time.Second)
		at += step.after
		for range step.requests {
			f.check(t, "/login", "198.51.100.7")
		}
		want := peeked{}
		if step.created != none {
			want = peeked{start.Add(time.Duration(step.created) * time.Second), start.Add(time.Duration(step.changed) * time.Second)}
		}
		for door, got := range f.peeks(t) {
			if !got.CreatedAt.Equal(want.CreatedAt) || !got.ChangedAt.Equal(want.ChangedAt) {
				t.Errorf("step %d, after %d s, %s: %+v, want %+v", i, at, door, got, want)
			}
		}
	}
	if k := f.mustKeys(t, "peek", `{`+ann+`}`); !k.KeyTimes {
		t.Errorf("%+v", k)
	}
	off := run(t, onlyLogin, nil, doors)
	off.check(t, "/login", "198.51.100.7")
	for door, got := range off.peeks(t) {
		if got != (peeked{}) {
			t.Errorf("off, %s: %+v", door, got)
		}
	}
	if k := off.mustKeys(t, "peek", `{`+ann+`}`); k.KeyTimes {
		t.Errorf("off: %+v", k)
	}
}

// In Redis all servers see the same times, by Redis' clock.
func TestPeekTellsKeyTimesOfRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	const onlyLogin = `{domain: api, limits: [{name: login, match: {path: /login}, key: [client_ip], rate: 3/hour}]}`
	change := func(c *config.Config) {
		c.Store.KeyTimes = true
		c.Door("admin").Address, c.Door("grpc").Address = "127.0.0.1:0", "127.0.0.1:0"
	}
	one, other := run(t, onlyLogin, nil, onRedis(server.Addr), change), run(t, onlyLogin, nil, onRedis(server.Addr), change)
	before := time.Now().Truncate(time.Millisecond)
	one.check(t, "/login", "198.51.100.7")
	first := one.peeks(t)["admin"]
	other.check(t, "/login", "198.51.100.7")
	after := time.Now()
	for door, got := range one.peeks(t) {
		if !got.CreatedAt.Equal(first.CreatedAt) || got.CreatedAt.Before(before) || got.ChangedAt.Before(got.CreatedAt) || got.ChangedAt.After(after) {
			t.Errorf("%s: %+v, first %+v, from %s to %s", door, got, first, before, after)
		}
	}
	if got, same := other.peeks(t), one.peeks(t); !reflect.DeepEqual(got, same) {
		t.Errorf("%+v at the other, %+v here", got, same)
	}
}
