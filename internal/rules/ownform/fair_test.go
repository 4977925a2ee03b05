package ownform_test

import (
	"strings"
	"testing"
)

// TestFairThatSharesLittle: what works but is hardly meant is a warning.
func TestFairThatSharesLittle(t *testing.T) {
	t.Parallel()
	for keys, want := range map[string]string{
		"burst: 100, fair: {among: client_ip, horizon: 10m}":                                "more than 2 keys at a time a share is less than ten requests",
		"burst: 5000, fair: {among: client_ip, horizon: 24h}":                               "",
		"burst: 5000, key: client_ip, fair: {among: client_ip, horizon: 24h}":               "each client_ip has a limit of its own",
		`burst: 5000, key: [host, path], fair: {among: path, horizon: 24h}`:                 "each path has a limit of its own",
		`burst: 5000, key: "path:1", fair: {among: path, horizon: 24h}`:                     "",
		`burst: 5000, key: "header:X-Org", fair: {among: "header:X-Api-Key", horizon: 24h}`: "",
	} {
		rs, got := said(t, keys)
		if rs == nil || want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", keys, got, want)
		}
	}
}
