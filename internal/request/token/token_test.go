package token_test

import (
	"net/http"
	"testing"

	"github.com/headgate/headgate/internal/request/token"
)

func TestKnows(t *testing.T) {
	s := token.New("first-0123456789", "second-012345678", "")
	for _, row := range []struct {
		field, value string
		want         bool
	}{
		{"Authorization", "Bearer first-0123456789", true},
		{"Authorization", "bearer  second-012345678 ", true},
		{"Authorization", "Basic eDpmaXJzdC0wMTIzNDU2Nzg5", true}, // x:first-0123456789
		{"X-Headgate-Token", "second-012345678", true},
		{"Authorization", "Bearer first-012345678", false},
		{"Authorization", "Bearer ", false},
		{"Authorization", "Bearer", false},
		{"Authorization", "Basic eDo=", false}, // x:
		{"Authorization", "first-0123456789", false},
		{"X-Headgate-Token", "", false},
		{"X-Other", "first-0123456789", false},
	} {
		r := &http.Request{Header: http.Header{}}
		r.Header.Set(row.field, row.value)
		if got := s.Knows(r); got != row.want {
			t.Errorf("%s: %s: %t", row.field, row.value, got)
		}
		if r.Header.Get(token.Header) != "" {
			t.Error("the token was left in the request")
		}
	}
	r := &http.Request{Header: http.Header{"Authorization": {"Bearer first-0123456789"}}}
	if s.KnowsByField(r) {
		t.Error("Authorization was accepted, but belongs to the client here")
	}
	if r.Header.Set(token.Header, "first-0123456789"); !s.KnowsByField(r) || r.Header.Get(token.Header) != "" {
		t.Error("the token is not taken out of its field")
	}
	if token.New().Knows(&http.Request{Header: http.Header{"Authorization": {"Bearer "}}}) || !token.New("").Empty() {
		t.Error("no token is not a token")
	}
}
