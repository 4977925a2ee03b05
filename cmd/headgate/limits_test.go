package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestLimitsCommand(t *testing.T) {
	var asked string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = r.URL.Path + " " + string(body)
		_, _ = io.WriteString(w, `{"limits":[
			{"name":"per-key","algorithm":"token_bucket","limit":10,"rate":"60/minute token_bucket","used":10,"remaining":0,"reset_after_ms":10000,"retry_after_ms":1000},
			{"name":"login","algorithm":"token_bucket","limit":5,"rate":"5/hour token_bucket","used":0,"remaining":5,"reset_after_ms":0,"retry_after_ms":0}],"left_off":2}`)
	}))
	defer server.Close()
	for _, row := range []struct {
		args  string
		asked string
		want  string
	}{
		{
			"--ip 198.51.100.7 -H X-Api-Key:k", `/v1/limits {"attributes":{"client_ip":"198.51.100.7","header:X-Api-Key":"k"}}`,
			"per-key  60/minute token_bucket  0 of 10 left, retry after 1s, full again in 10s\nlogin    5/hour token_bucket  5 of 5 left\n… and 2 more\n",
		},
		{"--domain api --attribute user=ann --json", `/v1/limits {"domain":"api","attributes":{"user":"ann"}}`, `"left_off": 2`},
		{"--ip here", "", `--ip: "here" is not an IP address`},
		{"--cookie s", "", `--cookie: "s" is not name=value`},
		{"--attribute headers:X=1", "", `did you mean "header:"?`},
	} {
		asked = ""
		var out, errs bytes.Buffer
		run(t.Context(), append([]string{"limits", "--address", server.URL}, strings.Fields(row.args)...), streams{in: strings.NewReader(""), out: &out, err: &errs})
		if asked != row.asked || !strings.Contains(out.String()+errs.String(), row.want) {
			t.Errorf("%s: asked %q, printed %s%s", row.args, asked, &out, &errs)
		}
	}
}
