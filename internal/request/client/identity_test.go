package client_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/request/client"
)

func TestClaimText(t *testing.T) {
	t.Parallel()
	var values map[string]any
	decoder := json.NewDecoder(strings.NewReader(`{
		"sub": "anna", "empty": "", "admin": true, "guest": false, "id": 12345678901234567890, "ratio": 0.5,
		"none": null, "aud": ["a", "b"], "realm": {"role": "gold", "deep": {"er": "x"}, "roles": ["r"]},
		"https://example.com/plan": "pro", "a.b": {"c": "dotted"}, "a": {"b.d": "inner", "b": {"c": "plain"}},
		"s": "text", "s.t": {"u": "next to text"}
	}`))
	decoder.UseNumber()
	if err := decoder.Decode(&values); err != nil {
		t.Fatal(err)
	}
	values["float"] = 1e6
	rows := []struct {
		name, want string
		ok         bool
	}{
		{"sub", "anna", true},
		{"empty", "", true},
		{"admin", "true", true},
		{"guest", "false", true},
		{"id", "12345678901234567890", true},
		{"ratio", "0.5", true},
		{"float", "1000000", true},
		{"none", "", false},
		{"aud", "", false},
		{"realm", "", false},
		{"realm.role", "gold", true},
		{"realm.deep.er", "x", true},
		{"realm.roles", "", false},
		{"realm.nobody", "", false},
		{"realm.", "", false},
		{".realm", "", false},
		{"sub.name", "", false},
		{"https://example.com/plan", "pro", true},
		{"a.b.c", "plain", true}, // both a.b and a exist; the shortest path wins
		{"a.b.d", "inner", true},
		{"s.t.u", "next to text", true},
		{"missing", "", false},
		{strings.Repeat(".", 256), "", false},
		{"", "", false},
	}
	claims := client.NewClaims(values)
	for _, row := range rows {
		if got, ok := claims.Text(row.name); got != row.want || ok != row.ok {
			t.Errorf("Text(%q) = %q, %t, want %q, %t", row.name, got, ok, row.want, row.ok)
		}
	}
	var none *client.Claims
	if _, ok := none.Text("sub"); ok {
		t.Error("nil has a claim")
	}
}

// counted accepts every token and counts the calls.
type counted struct {
	times int
	err   error
}

func (c *counted) Verify(h http.Header, _ time.Time, _ client.Sender) (client.Verified, error) {
	c.times++
	if c.err != nil {
		return client.Verified{}, c.err
	}
	return client.Verified{First: client.NewClaims(map[string]any{"sub": h.Get("Authorization")})}, nil
}

func TestIdentityIsVerifiedOnceAndOnlyIfAsked(t *testing.T) {
	t.Parallel()
	h := header("Authorization: anna")
	tokens := new(counted)
	i := client.Identify(tokens, h, time.Unix(1, 0))
	if tokens.times != 0 || i.Refusal() != nil {
		t.Fatalf("verified %d times before a claim was read, refusal %v", tokens.times, i.Refusal())
	}
	for range 3 {
		if got, ok := i.Claim("sub"); got != "anna" || !ok {
			t.Errorf("sub is %q, %t", got, ok)
		}
		i.Claim("other")
	}
	if tokens.times != 1 {
		t.Errorf("verified %d times, want once", tokens.times)
	}
}

func TestIdentityOfABadToken(t *testing.T) {
	t.Parallel()
	tokens := &counted{err: errors.New("the token has expired")}
	i := client.Identify(tokens, header(), time.Unix(1, 0))
	for range 2 {
		if _, ok := i.Claim("sub"); ok {
			t.Error("a bad token has claims")
		}
	}
	if i.Refusal() == nil || tokens.times != 1 {
		t.Errorf("refusal %v after %d times", i.Refusal(), tokens.times)
	}
	var none client.Identity
	if _, ok := none.Claim("sub"); ok || none.Refusal() != nil {
		t.Error("the zero identity has claims, or is refused")
	}
}
