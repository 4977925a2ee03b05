package setup

import (
	"fmt"
	"slices"
	"strings"
)

// configuration returns headgate.yaml.
func (a *Answers) configuration() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Written by headgate init. docs/reference/settings.md lists all settings.")
	line("# Check it with: headgate doctor --config headgate.yaml\n")
	line("# Files are relative to this one. Changes to rules take effect at once.")
	line("rules: [rules/]\n")
	if a.Store == "memory" {
		line("# Counts are in memory. The file keeps them when the server restarts.")
		line("store:\n  memory: {snapshot: counts.snapshot}\n")
	} else {
		line("# Counts are in Redis: all servers with this Redis share them. A password belongs in a")
		line("# file: store.redis.password_file. Set maxmemory-policy noeviction in Redis.")
		line("store:\n  redis: {url: %q}\n", a.Store)
	}
	line("# What is not used is off. The admin door has the dashboard, /metrics, and is what")
	line("# headgate top and headgate keys call. It has no token, so it stays on this machine.")
	api, grpc := "127.0.0.1:8080", "off"
	switch a.Front {
	case "envoy":
		api, grpc = "off", "127.0.0.1:8081"
	case "none":
		api = "off"
	}
	line("listen: {api: %q, grpc: %q, resp: \"off\", admin: \"127.0.0.1:6070\"}", api, grpc)
	switch a.Front {
	case "none":
		line("\n# Requests to this address are limited, then sent to the service.")
		line("proxy: {listen: %q, upstream: %q}", proxyAddress, a.Upstream)
		line("\n# If a load balancer is in front, list its address, so that clients are told apart:")
		line("# trusted_proxies: [10.0.0.1]")
	case "nginx", "traefik", "caddy":
		line("\n# Where the proxy connects from: only it may say what the client's address is.")
		line("trusted_proxies: [127.0.0.1]")
	}
	return b.String()
}

// whenLost returns the setting for what a rule does while Redis does not answer.
func (a *Answers) whenLost() string {
	if a.Store == "memory" {
		return ""
	}
	return "    on_store_error: local   # while Redis is down: limit on each server alone\n"
}

// rules returns rules.yaml.
func (a *Answers) rules() string {
	var b strings.Builder
	b.WriteString("# Written by headgate init. docs/rules/rules.md describes rules.\n")
	if a.Front == "envoy" {
		b.WriteString("# Envoy sends remote_address (see envoy.yaml), which is the client_ip of rules.\n")
	}
	b.WriteString("domain: site\nlimits:\n")
	for _, limit := range a.Limits {
		switch limit {
		case "logins":
			b.WriteString(`  # Guessing passwords: few tries from an address.
  - name: logins
    match: {method: POST, path: /login}
    key: [client_ip]
    rate: 5/minute
    algorithm: sliding_log
`)
		case "addresses":
			b.WriteString(`  # No single address may take all capacity. A burst of 50 is allowed at once.
  - name: addresses
    key: [client_ip]
    rate: 50/second
`)
		case "api-keys":
			b.WriteString(`  # Each API key has its own count; requests without a key share one.
  - name: api-keys
    match: {path: /api/**}
    key: ["header:X-Api-Key"]
    rate: 30/minute
`)
		}
		b.WriteString(a.whenLost())
	}
	return b.String()
}

// test returns rules_test.yaml.
func (a *Answers) test() string {
	var b strings.Builder
	b.WriteString("# Run it with: headgate test. docs/try/rule-tests.md describes rule tests.\ntests:\n")
	const one, two = "client_ip: 198.51.100.7", "client_ip: 198.51.100.8"
	if slices.Contains(a.Limits, "logins") {
		fmt.Fprintf(&b, `  - name: five logins in any minute
    request: {method: POST, path: /login, %s}
    trace:
      - {at: 0s, repeat: 5, expect: allowed}
      - {expect: {allowed: false, rule: logins, retry_after: 1m}}
      - {at: 59s, expect: refused}
      - {request: {method: POST, path: /login, %s}, expect: allowed}
      - {at: 1m, expect: allowed}
`, one, two)
	}
	if slices.Contains(a.Limits, "addresses") {
		fmt.Fprintf(&b, `  - name: fifty at once, then one every 20 ms
    request: {method: GET, path: /, %s}
    trace:
      - {at: 0s, repeat: 50, expect: allowed}
      - {expect: {allowed: false, rule: addresses, retry_after: 20ms}}
      - {request: {method: GET, path: /, %s}, expect: allowed}
`, one, two)
	}
	if slices.Contains(a.Limits, "api-keys") {
		fmt.Fprintf(&b, `  - name: each key has its own 30 a minute
    request: {method: GET, path: /api/items, %s, headers: {X-Api-Key: one}}
    trace:
      - {at: 0s, repeat: 30, expect: allowed}
      - {expect: {allowed: false, rule: api-keys, retry_after: 2s}}
      - {at: 1s, request: {method: GET, path: /api/items, %s, headers: {X-Api-Key: two}}, expect: allowed}
`, one, one)
	}
	return b.String()
}

// program returns main.go.
func (a *Answers) program() string {
	imports, open := `	"github.com/headgate/headgate/store/memory"
`, `	store := memory.New()
`
	if a.Store != "memory" {
		imports = `	"github.com/headgate/headgate/store/redis"
`
		open = fmt.Sprintf(`	options, err := redis.ParseURL(%q)
	if err != nil {
		log.Fatal(err)
	}
	store, err := redis.New(context.Background(), options)
	if err != nil {
		log.Fatal(err)
	}
`, a.Store)
	}
	std := "\t\"log\"\n\t\"net/http\"\n"
	if a.Store != "memory" {
		std = "\t\"context\"\n" + std
	}
	return `// Command main limits its own requests by the rules in rules/.
//
// Each rule's on_store_error says what happens while a Redis does not answer: allow (the
// default) fails open, deny fails closed, local limits in this process.
package main

import (
` + std + `
	"github.com/headgate/headgate/rulefiles"
` + imports + `)

func main() {
` + open + `	rules, err := rulefiles.Open(store, []string{"rules"})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello\n")) })
	log.Fatal(http.ListenAndServe("127.0.0.1:8000", rules.Middleware(mux)))
}
`
}
