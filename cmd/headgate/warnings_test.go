package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Keys are callers' texts: what they contain does not reach the terminal, nor does it
// forge a line.
func TestKeysOfWarningsAreNotObeyed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"on":true,"active":[
			{"kind":"key_refused","text":"api/login refused 42 of 42 requests of one key in 5s","key":["a\u001b[2Jb\t\nwarning"],"since":"2026-11-23T15:54:36Z"},
			{"kind":"key_refused","text":"api/login refused 21 of 42 requests of one key in 5s","key":null,"key_hash":"27e9f3f524aee214","since":"2026-11-23T15:54:36Z"},
			{"kind":"new_keys","text":"api/login: 600 new keys per second, usually 50","key":null,"since":"2026-11-23T15:54:36Z"}]}`)
	}))
	defer server.Close()
	var out, errs bytes.Buffer
	run(t.Context(), []string{"warnings", "ls", "--address", server.URL}, streams{in: strings.NewReader(""), out: &out, err: &errs})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 4 || strings.ContainsFunc(out.String(), isObeyed) {
		t.Fatalf("%q %s", &out, &errs)
	}
	for i, want := range []string{`a\x1b[2Jb`, "#27e9f3f524aee214", "  -  "} {
		if !strings.Contains(lines[i+1], want) {
			t.Errorf("%q does not have %q", lines[i+1], want)
		}
	}
}
