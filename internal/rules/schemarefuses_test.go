package rules_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/rules/schema"
)

// What the loader refuses and a schema can tell, the schema refuses too; what is
// near to it both take.
func TestSchemaRefusesWhatItCan(t *testing.T) {
	s := compileSchema(t, schema.Rules())
	const rate = "rate: 5/minute, "
	for body, taken := range map[string]bool{
		rate + "on_limit: delay":                                                       false,
		rate + "on_limit: {action: delay}":                                             false,
		rate + "algorithm: token_bucket, on_limit: {action: delay}":                    false,
		rate + "algorithm: token_bucket, on_limit: {action: delay, max_wait: 2s}":      true,
		rate + "on_limit: {action: delay, max_wait: 2s}":                               true,
		rate + "algorithm: leaky_bucket, on_limit: delay":                              true,
		rate + "algorithm: leaky_bucket, on_limit: {action: delay}":                    true,
		rate + "algorithm: fixed_window, on_limit: {action: delay, max_wait: 2s}":      false,
		"concurrency: 5, on_limit: {action: delay, max_wait: 2s}":                      false,
		"concurrency: 5, on_limit: queue":                                              false,
		"concurrency: 5, cost: {from_response: X-Tokens}":                              false,
		rate + "on_limit: queue":                                                       true,
		rate + "cost: {from_response: X-Tokens}":                                       true,
		"concurrency: 5, lease: 9ms":                                                   false,
		"concurrency: 5, lease: 999us":                                                 false,
		"concurrency: 5, lease: 10ms":                                                  true,
		"concurrency: 5, lease: 1s":                                                    true,
		"rate: 1048577, period: minute, algorithm: sliding_log":                        false,
		"rate: 1048576, period: minute, algorithm: sliding_log":                        true,
		"rate: 10000000/minute, algorithm: sliding_log":                                false,
		"rate: 1048576/minute, algorithm: sliding_log":                                 true,
		"rate: 10000000/minute":                                                        true,
		rate + "match: {method: ALL}":                                                  false,
		rate + "match: {method: any}":                                                  false,
		rate + "match: {method: ['!ANY']}":                                             false,
		rate + "match: {method: ALLOW}":                                                true,
		rate + "key: $client_ip":                                                       false,
		rate + "key: ['{client_ip}']":                                                  false,
		rate + "key: ['%{client_ip}']":                                                 false,
		rate + "key: ['hash(header:X)']":                                               false,
		rate + "key: ['headers[X]']":                                                   false,
		rate + "key: [path:2, 'hash:path:16', 'path:/a', bath:1]":                      true,
		rate + "key: path:0":                                                           false,
		rate + "key: path:17":                                                          false,
		rate + "key: 'hash:path:x'":                                                    false,
		rate + "key: Segment:2":                                                        false,
		rate + "count: distinct, of: path:2":                                           false,
		rate + "key: ['hash:$foo']":                                                    false,
		rate + "key: ['attribute:user']":                                               false,
		rate + "key: ['hdr:X-Api-Key']":                                                false,
		rate + "key: ['token:sub']":                                                    false,
		rate + "key: ['jwt.sub']":                                                      false,
		rate + "key: ['cookie.session']":                                               false,
		rate + "key: ['X-Api-Key']":                                                    false,
		rate + "key: ['x-tenant']":                                                     false,
		rate + "key: ['User-Agent']":                                                   false,
		rate + "key: ['plan(free)', a.b, 'urn:tenant', destination.method, client-id]": true,
		rate + "key: ['jwt:a.b', 'header:X', 'hash:jwt:c', 'query:$a', tokens]":        true,
	} {
		src := []byte("domain: d\nlimits:\n  - {name: a, " + body + "}\n")
		docs, ok := asJSON(t, src)
		if !ok {
			t.Fatal(body)
		}
		refused := accepts(s, docs)
		set, problems := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: src})
		if (set != nil) != taken || (refused == nil) != taken {
			t.Errorf("%s: the schema says %v, the loader %v, want taken: %t", strings.TrimSpace(body), refused, diagnostic.Problems(problems), taken)
		}
	}
}
