package ownform_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// place is a text with a mark, §, before what is wrong in it, and what is said there.
type place struct{ text, want string }

// unmarked returns a text without its mark, and where that was: line:column.
func unmarked(t *testing.T, text string) (src, at string) {
	t.Helper()
	before, after, found := strings.Cut(text, "§")
	if !found || strings.Contains(after, "§") {
		t.Fatalf("%q has not one mark", text)
	}
	line := strings.LastIndexByte(before, '\n') + 1
	return before + after, fmt.Sprintf("%d:%d", 1+strings.Count(before, "\n"), 1+utf8.RuneCountInString(before[line:]))
}

// pointsThere reports what is wrong with a file unless one thing is said, at the mark,
// that begins so. Of errors there is no other.
func pointsThere(t *testing.T, options rulefile.Options, p place) {
	t.Helper()
	src, at := unmarked(t, p.text)
	set, list := options.Parse(rulefile.Source{Name: "o.yaml", Data: []byte(src)})
	if set != nil {
		list = set.Warnings()
	}
	found, wrong := false, 0
	var all []string
	for _, d := range list {
		said := fmt.Sprintf("%d:%d: %s: %s; %s", d.Line, d.Column, d.Severity, d.Message, d.Hint)
		all = append(all, said)
		found = found || strings.HasPrefix(said+"\n", at+": "+p.want)
		if d.Severity == diagnostic.SeverityError {
			wrong++
		}
	}
	if !found || wrong != strings.Count(p.want[:6], "error:") {
		t.Errorf("%s\nwant %s: %s\n%s", src, at, p.want, strings.Join(all, "\n"))
	}
}

// inLimit writes keys below a limit that is right otherwise.
func inLimit(lines string) string {
	return "domain: d\nlimits:\n  - name: a\n    rate: 5/hour\n    " + strings.ReplaceAll(lines, "\n", "\n    ") + "\n"
}

// What is wrong in the documents themselves is pointed at.
func TestPlacesInDocuments(t *testing.T) {
	t.Parallel()
	for _, p := range []place{
		{"§limits: []\n", `error: "domain" is missing; name it in the first line, for example domain: site`},
		{"domain: d\nlimits:\n  - {name: a, rate: 1/s, key: [§header: X-Api-Key]}\n", `error: "key" must be text, not a mapping; write it in quotes, without a space after the colon: "header:X-Api-Key"`},
		{"domain: d\nlimits:\n  - {name: a, key: client_ip, rate: 1/hour, count: §{distinct: \"query:u\"}}\n", `error: "count" must be text, not a mapping; ` + "\n"},
		{"domain: d\nlimits:\n  - {name: a, tiers: {by: \"header:X-Plan\", free: {rate: 1/minute}, default: §{rate: 10/minute}}}\n", `error: "default" must be text, not a mapping; ` + "\n"},
		{"domain: §[d]\nlimits: []\n", `error: "domain" must be text, not a list`},
		{"domain: §7\nlimits: []\n", `error: "domain" must be text, not a number; put it in quotes`},
		{"domain: §\"\"\nlimits: []\n", `error: "domain" is empty`},
		{"domain: §\"a\\tb\"\nlimits: []\n", `error: the domain "a\tb" must be at most 256 bytes long, without control characters`},
		{"domain: §" + strings.Repeat("d", 257) + "\nlimits: []\n", "error: the domain"},
		{"domain: d\nlimits: §{name: a}\n", `error: "limits" must be a list, not a mapping`},
		{"domain: d\nlimits: [§5]\n", "error: limit 1 must be a mapping (key: value), not a number"},
		{"domain: d\nlimits: [{name: a, rate: 1/s}, §x]\n", "error: limit 2 must be a mapping (key: value), not text"},
		{"domain: d\nheaders: §githup\nlimits: []\n", `error: unknown headers "githup", did you mean "github"?`},
		{"domain: d\nheaders: github\nlimits: []\n---\ndomain: d\nheaders: §openai\nlimits: []\n", `error: "headers" of this domain is already "github", set in o.yaml:2:10; a domain has one dialect`},
		{"domain: d\n§rates: []\nlimits: []\n", `error: unknown key "rates" in a rule file`},
		{"domain: d\nlimits: []\n§domain: e\n", `error: duplicate key "domain", first on line 1`},
		{"domain: d\nlimits:\n  - §rate: 5/hour\n", `error: limit 1 has no "name"`},
		{"domain: d\nlimits:\n  - name: a\n    rate: 1/s\n  - §name: b\n    mode: shadow\n", `error: "rate" is missing; for example rate: 5/minute`},
		{"domain: d\nlimits:\n  - {name: §a b, rate: 1/s}\n", `error: invalid name "a b": want at most 128 letters, digits and -_.:/`},
		{"domain: d\nlimits:\n  - {name: a, description: é, rate: 1/s}\n  - {description: éé, name: §a, rate: 1/s}\n", `error: duplicate name "a" in domain "d": first in o.yaml:3:5`},
	} {
		pointsThere(t, rulefile.Options{}, p)
	}
}

// What is wrong in the keys of a limit is pointed at: its value, or the key if that has
// no meaning there.
func TestPlacesInLimits(t *testing.T) {
	t.Parallel()
	for _, p := range []place{
		{"§burts: 5", `error: unknown key "burts" in limit "a", did you mean "burst"?`},
		{"§burst:", `error: "burst" has no value`},
		{"burst: §many", `error: "burst" must be a whole number, not text`},
		{"algorithm: §leaky", `error: unknown algorithm "leaky"`},
		{"§delay_after: 2", `error: "delay_after" does not apply to token_bucket; add algorithm: leaky_bucket`},
		{"§anchor: clock", `error: "anchor" does not apply to token_bucket; add algorithm: fixed_window`},
		{"§buckets: 5", `error: "buckets" does not apply to token_bucket`},
		{"§edge: strict", `error: "edge" does not apply to token_bucket`},
		{"§count_denied: true", `error: "count_denied" does not apply to token_bucket`},
		{"§lease: 5s", `error: "lease" does not apply to a rate; add concurrency`},
		{"period: §5s", `error: the period is given twice`},
		{"algorithm: fixed_window\ntimezone: §Europe/Berlín", `error: unknown timezone "Europe/Berlín"`},
		{"algorithm: sliding_buckets\nbuckets: §0", `error: "buckets" must be from 1 to`},
		{"algorithm: leaky_bucket\nburst: 2\ndelay_after: §9", "error: "},
		{"cost: §-1", `error: "cost" must be from 0 to`},
		{"cost: §{default: 5}", `error: cost has no "from"`},
		{"cost: {from: §path}", "error: the cost cannot be read from the path"},
		{"cost: {from: \"header:X-C\", min: §9, max: 3}", "error: the minimum cost, 9, is more than the maximum, 3"},
		{"cost: {from: \"header:X-C\", max: 4, default: §5}", `error: "default" must be from 1 to 4`},
		{"cost: {from_response: X-C, §max: 4}", `error: "max" cannot be combined with from_response`},
		{"cost: §{estimate: 4}", `error: cost has no "from_response"`},
		{"cost: {from_response: §a b}", `error: invalid header name "a b"`},
		{"cost: {from_response: X-C, on_abort: §smallest}", `error: unknown on_abort "smallest"`},
		{"cost: {from_response: X-C, on_abort: §-1}", `error: "on_abort" must be from 0 to`},
		{"cost: {from_response: X-C, on_error: §drop}", `error: unknown on_error "drop"`},
		{"cost: §0", "warning: a cost of 0 counts nothing: no request is ever refused"},
		{"key: §[]", "warning: the key is empty: all requests are counted together"},
		{"key: [client_ip, §client_ip]", `warning: "client_ip" is in the key twice`},
		{"key: [\"header:A\", §\"hash:header:A\"]", `error: "header:A" is in the key twice, hashed and plain; remove the plain one`},
		{"key: §[a1, a2, a3, a4, a5, a6, a7, a8, a9, b1, b2, b3, b4, b5, b6, b7, b8]", "error: the key has 17 parts, at most 16 are allowed"},
		{"key: [path, path:2, §\"hash:path:2\"]", `error: "path:2" is in the key twice, hashed and plain; remove the plain one`},
		{"key: [client_ip, §path:0]", `error: "path:0" is not a segment of the path, did you mean "path:1"?`},
		{"key: §path:99", `error: "path:99" is not a segment of the path, did you mean "path:16"?`},
		{"key: §path:x", `error: "path:x" is not a segment of the path, did you mean "path:2"?`},
		{"match: {attributes: {§path:2: acme}}", `error: "path:2", segment 2 of the path, works only in the key of a rule`},
		{"key: [client_ip, §7]", `error: "key" must be text, not a number`},
		{"key: §\"header:a b\"", "error: "},
		{"key: §X-Api-Key", `error: "X-Api-Key" is a header name; did you mean "header:X-Api-Key"?`},
		{"key: §\"client_ip, path\"", `error: "client_ip, path" is read as one attribute: write a list, ["client_ip", "path"]`},
		{"key: §everybody", `warning: "everybody" is not a built-in attribute: the caller must send it; to count all requests together, leave the key out`},
		{"key: §ip", `warning: "ip" is not a built-in attribute: the caller must send it; did you mean "client_ip"?`},
		{"key: §$remote_addr", `error: unknown attribute "$remote_addr"; did you mean "client_ip"?`},
		{"key: §\"header:Transfer-Encoding\"", `warning: no request has "header:Transfer-Encoding": the server removes it when it reads the body`},
		{"key: [path, §\"header:X-Real-Ip\"]", "warning: clients can send any value in X-Real-Ip"},
		{"key_missing: §skip", `warning: "key_missing" has no effect without a key`},
		{"key_missing: §drop\nkey: path", `error: unknown key_missing "drop"`},
		{"percent: §101", `error: "percent" must be from 0 to 100, not 101`},
		{"percent: §50\nmode: shadow\nkey: path", `warning: "percent" has no effect with mode: shadow`},
		{"percent: §50", `warning: "percent" is a share of the keys, but this rule has no key: the limit is`},
		{"mode: §off", `error: unknown mode "off"; to switch the rule off, write disabled: true`},
		{"disabled: §1", `error: "disabled" must be true or false, not "1"`},
		{"description: §[]", `error: "description" must be text, not a list`},
		{"on_store_error: §{share: 0.5}", `error: on_store_error has no "policy"`},
		{"on_store_error: {policy: §maybe}", `error: unknown policy "maybe"`},
		{"on_store_error: {policy: allow, §share: 0.5}", `error: "share" applies only to policy: local`},
		{"on_store_error: {policy: local, share: §0}", `error: "share" must be more than 0 and at most 1, not 0`},
		{"on_store_error: {policy: local, share: §.nan}", `error: "share" must be`},
	} {
		p.text = inLimit(p.text)
		pointsThere(t, rulefile.Options{}, p)
	}
}

// What is wrong in a match is pointed at: the one text of a list, or the name.
func TestPlacesInMatch(t *testing.T) {
	t.Parallel()
	for _, p := range []place{
		{"match: §[]", "error: match must be a mapping (key: value), not a list"},
		{"match:\n  §paths: /a", `error: unknown key "paths" in match, did you mean "path"?`},
		{"match:\n  method:\n    - GET\n    - §PO ST", `error: "PO ST" is not a method: write a list, such as [PO, ST]`},
		{"match: {method: §\"*\"}", `error: "*" is not a method; to match all methods, leave "method" out`},
		{"match: {method: [GET, §GTE]}", `warning: unknown method "GTE", did you mean "GET"?`},
		{"match: {method: §[]}", `error: the list of "method" is empty`},
		{"match: {path: [/a, §b]}", "error: "},
		{"match: {path: [/a, §\"/u/x{id}\"]}", `error: the path "/u/x{id}" contains "x{id}"`},
		{"match: {path: [/a, §\"/u/<id>\"]}", `error: the path "/u/<id>" contains the segment "<id>"`},
		{"match: {path: [/a, §\"/u/x{a,b}\"]}", `error: the path "/u/x{a,b}" contains alternatives in "x{a,b}"`},
		{"match: {path: [/a, §'/u/\\d+']}", `error: the path "/u/\\d+" contains "\\d"`},
		{"match: {path: [/a, §/x$]}", `error: the path "/x$" ends in $`},
		{"match: {path: [/a, §\"/b, /c\"]}", `error: "/b, /c" is read as one path: write a list, ["/b", "/c"]`},
		{"match: {path: [/a, §\"/b|c\"]}", `error: the path "/b|c" contains |`},
		{"match: {path: [/a, §\"/u/:id\"]}", `warning: the segment ":id" is matched literally; write * to match any segment`},
		{"match: {path: [/a, §/b#c]}", `warning: the path "/b#c" contains #: clients do not send what follows it`},
		{"match: {path: [/a, §/b%20c]}", `warning: the path "/b%20c" never matches as written, since request paths are decoded first: write the character instead of %20`},
		{"match: {path: [/a, §\"/b[1]\"]}", `warning: the [ in the path "/b[1]" is matched literally`},
		{"match: {path: [/a, §/b/.*]}", `warning: the segment ".*" matches names that start with a dot`},
		{"match: {path: §[/a, /b, \"!/a\"]}", `warning: "path" includes "/a" but also excludes it`},
		{"match: {path: §[/a, \"!/a\"]}", `warning: the rule can never match: "path" excludes everything it includes`},
		{"match: §{path_case: sensitive}", `warning: "path_case" has no effect`},
		{"match: {path: /a, path_case: §strict}", `error: unknown path_case "strict"`},
		{"match: {host: [a.example, §\"a b\"]}", "error: "},
		{"match: {client_ip: [10.0.0.0/8, §10.0.0.0/33]}", "error: "},
		{"match: {client_ip: [10.0.0.0/8, §10.0.0.1/8]}", "error: "},
		{"match: {client_ip: §[10.1.0.0/16, \"!10.0.0.0/8\"]}", `warning: "10.1.0.0/16" can never match: it is inside an excluded prefix`},
		{"match: {headers: §x}", `error: "headers" must be a mapping (name: value), not text`},
		{"match: {headers: {§a b: x}}", "error: "},
		{"match: {headers: {X-A: a, §x-a: b}}", `error: "header:X-A" is given twice; put all values in one list`},
		{"match: {headers: {X-A: §true}}", `error: "header:X-A" must be text, not true or false; write "true" in quotes for the value, or {present: true}`},
		{"match: {headers: {X-A: §}}", `error: "header:X-A" has no value; write "" for an empty value, or {present: true}`},
		{"match: {headers: {X-A: §[]}}", `error: the list of values of "header:X-A" is empty`},
		{"match: {headers: {X-A: [a, §[b]]}}", `error: a value of "header:X-A" must be text, not a list`},
		{"match: {headers: {X-A: §{}}}", `error: the condition on "header:X-A" is empty`},
		{"match: {headers: {X-A: {present: §maybe}}}", `error: "present" must be true or false, not "maybe"`},
		{"match: {headers: {X-A: {present: §false, is: a}}}", `warning: the rule can never match: "header:X-A" cannot both be absent and have a value`},
		{"match: {headers: {X-A: {§isnt: a}}}", `error: unknown key "isnt" in "header:X-A"`},
		{"match: {headers: {X-A: {not: §\"!a\"}}}", `error: "!a" is an exclusion, which does not work here`},
		{"match: {headers: {X-A: [b, §\"a|b\"]}}", `warning: the value "a|b" of "header:X-A" is matched literally, including its |`},
		{"match: {headers: {X-A: [b, §\"free,paid\"]}}", `warning: the value "free,paid" of "header:X-A" is matched literally, including its comma`},
		{"match: {headers: {X-A: §\"^a$\"}}", `warning: the value "^a$" of "header:X-A" is not a regular expression`},
		{"match: {attributes: {§client_ip: 10.0.0.1}}", `error: "client_ip" belongs directly under match, not under attributes`},
		{"match: {attributes: {§\"\": a}}", "error: "},
	} {
		p.text = inLimit(p.text)
		pointsThere(t, rulefile.Options{}, p)
	}
}

// A rule has conditions on at most so many attributes.
func TestTooManyConditions(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 65 {
		names = append(names, fmt.Sprintf("X-%d: a", i))
	}
	list := strings.Join(names, ", ")
	pointsThere(t, rulefile.Options{}, place{inLimit("match: {headers: §{" + list + "}}"), "error: the rule has more than 64 attribute conditions"})
	half := strings.Join(names[:32], ", ")
	pointsThere(t, rulefile.Options{}, place{inLimit("match: {headers: {" + half + "}, query: §{" + strings.Join(names[:33], ", ") + "}}"), "error: the rule has more than 64"})
	if got, list := readLimits("rate: 5/hour, match: {headers: {" + half + "}, query: {" + half + "}}"); list == nil {
		t.Errorf("64 conditions: %s", got)
	}
}

// What is wrong in the tiers is pointed at, once, although each tier is a rule.
func TestPlacesInTiers(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 65 {
		many = append(many, fmt.Sprintf("t%d: {rate: 1/s}", i))
	}
	for _, p := range []place{
		{"tiers: §[]", `error: "tiers" must be a mapping, not a list`},
		{"tiers: §{by: \"header:P\"}", `error: "tiers" has no tiers`},
		{"tiers: §{by: \"header:P\", " + strings.Join(many, ", ") + "}", "error: there are 65 tiers, at most 64 are allowed"},
		{"tiers: §{gold: {rate: 1/s}}", `error: tiers has no "by"`},
		{"tiers: {by: §[], gold: {rate: 1/s}}", `error: "by" must be text, not a list`},
		{"tiers: {by: §path, gold: {rate: 1/s}}", "error: tiers cannot be chosen by path; use a separate limit with its own match for each"},
		{"tiers: {by: §\"header:\", gold: {rate: 1/s}}", "error: "},
		{"tiers: {by: \"header:P\", default: §golt, gold: {rate: 1/s}}", `error: unknown tier "golt", did you mean "gold"?`},
		{"tiers: {by: \"header:P\", default: §7, gold: {rate: 1/s}}", `error: "default" must be text, not a number`},
		{"tiers: {by: \"header:P\", §gold: }", `error: "gold" has no value`},
		{"tiers: {by: \"header:P\", gold: §7}", `error: the tier "gold" must be a mapping (key: value), not a number`},
		{"tiers: {by: \"header:P\", gold: {§key: path}}", `error: unknown key "key" in the tier "gold"`},
		{"tiers: {by: \"header:P\", gold: {rate: §fast}}", `error: invalid rate "fast": want N/unit`},
		{"tiers: {by: \"header:P\", §\"g*\": {rate: 1/s}}", `error: invalid name "g*": want at most`},
		{"tiers: {by: \"header:P\", gold: {rate: 1/s, is: [g, §\"g*\"]}}", `error: the value "g*" of a tier must not contain *`},
		{"tiers: {by: \"header:P\", gold: {rate: 1/s, is: §\"!g\"}}", `error: the value "!g" of a tier must not be an exclusion; requests without a tier get the limit's own rate`},
		{"tiers: {by: \"header:P\", gold: {rate: 1/s, is: [g, p]}, paid: {rate: 2/s, is: §p}}", `error: the value "p" already chooses the tier "gold"`},
		{"match: {headers: {P: silver}}\ntiers: {by: \"header:P\", §gold: {rate: 1/s}}", `warning: the tier "gold" can never apply: match allows only other values of "header:P"`},
		{"key: §\"header:\"\ntiers: {by: \"header:P\", gold: {rate: 1/s}, paid: {rate: 2/s}}", "error: "},
	} {
		p.text = inLimit(p.text)
		pointsThere(t, rulefile.Options{}, p)
	}
	pointsThere(t, rulefile.Options{}, place{
		"domain: d\nlimits:\n  - name: a\n    rate: §5/hour\n    match: {headers: {P: gold}}\n    tiers: {by: \"header:P\", gold: {rate: 1/s}}\n",
		`warning: the limit's own rate never applies: match allows only values of "header:P" that have a tier`,
	})
	pointsThere(t, rulefile.Options{}, place{
		"domain: d\nlimits:\n  - name: a\n    tiers: §{by: \"header:P\", gold: {rate: 1/s}}\n",
		"error: requests without a tier would have no limit; add default: with the name of a tier",
	})
	pointsThere(t, rulefile.Options{}, place{
		"domain: d\nlimits:\n  - name: §" + strings.Repeat("n", 120) + "\n    tiers: {by: \"header:P\", default: long-tier, long-tier: {rate: 1/s}}\n",
		"error: the name",
	})
}

// Missing tiers are reported also after another mistake in the file.
func TestNoTiersBehindAMistake(t *testing.T) {
	t.Parallel()
	got, _ := readLimits("rate: 5", `rate: 5/hour, tiers: {by: "header:P"}`)
	if want := `4:37: error: "tiers" has no tiers`; !strings.Contains(got, want) {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// What is wrong in on_limit is pointed at.
func TestPlacesInOutcomes(t *testing.T) {
	t.Parallel()
	for _, p := range []place{
		{"on_limit: §429", `error: "on_limit" must be an action or a mapping, not a number`},
		{"on_limit:\n  action: §refuse", `error: unknown action "refuse"`},
		{"on_limit:\n  §code: 429", `error: unknown key "code" in on_limit`},
		{"on_limit:\n  status: §200", `error: "status" must be from 300 to 599, not 200`},
		{"on_limit:\n  content_type: §text/html", `error: "content_type" needs a body`},
		{"on_limit:\n  headers:\n    X-A: b\n    X-B: §[c]", "error: the header X-B must be text, not a list"},
		{"on_limit:\n  headers:\n    X-A: b\n    §Content-Length: 5", "error: the header Content-Length cannot be set: the server controls it"},
		{"on_limit:\n  headers:\n    X-A: b\n    §Content-Type: a/b", "error: to set Content-Type, use content_type next to the body"},
		{"on_limit:\n  headers:\n    X-A: §\"a\\nb\"", "error: the value of the header X-A has characters that are not allowed in headers"},
		{"on_limit:\n  body: §{}", `error: "body" must have from 1 to 16 types`},
		{"on_limit:\n  body: {§pdf: x}", `error: unknown body type "pdf"`},
		{"on_limit:\n  body: {json: '{}', §application/json: '{}'}", "error: duplicate body for application/json"},
		{"on_limit:\n  body: {json: §'{\"a\": {{.Rule}}}'}", "error: the body is not valid JSON once its variables are filled in"},
		{"on_limit:\n  body: §\"{{.Nobody}}\"", "error: unknown variable \"{{.Nobody}}\"; use one of {{.Rule}}"},
		{"on_limit:\n  body: §" + strings.Repeat("b", 65<<10), "error: the body is larger than 64 KiB"},
		{"on_limit:\n  retry_after_jitter: §101%", `error: "retry_after_jitter" must be from 1% to 100%`},
		{"on_limit:\n  action: shadow_ban\n  latency: §5ms±1h", `error: "latency": 1h must be from`},
		{"on_limit:\n  action: shadow_ban\n  §max_wait: 5s", `error: "max_wait" does not apply to action: shadow_ban`},
		{"on_limit:\n  action: delay\n  max_wait: §soon", `error: "max_wait": invalid duration "soon"`},
		{"on_limit: §delay", `error: "max_wait" is missing`},
		{"algorithm: sliding_log\non_limit: §delay", "error: action: delay does not work with algorithm: sliding_log"},
		{"on_limit:\n  action: queue\n  max_bytes: §[]", `error: "max_bytes" must be a size such as 100MB, not a list`},
		{"on_limit:\n  action: queue\n  max_bytes: §2TB", `error: "max_bytes": invalid size "2TB"`},
		{"on_limit:\n  action: queue\n  max_bytes: §2000GiB", `error: "max_bytes" must be from 1 to 1099511627776 bytes, not 2000GiB`},
		{"on_limit:\n  action: queue\n  max_bytes: §17179869185GiB", `error: "max_bytes" must be from 1 to 1099511627776 bytes, not 17179869185GiB`},
		{"on_limit:\n  action: queue\n  backoff: §5s..", `error: "backoff": invalid duration ""`},
		{"on_limit: §{action: queue, key_share: 20%}", `warning: "key_share" has no effect without a key`},
		{"algorithm: sliding_log\ncount_denied: true\non_limit: §queue", "error: action: queue does not work with count_denied"},
	} {
		p.text = inLimit(p.text)
		pointsThere(t, rulefile.Options{}, p)
	}
}

// Attributes that no client can send are reported, if the doors are known.
func TestPlacesOfWhatNobodySends(t *testing.T) {
	t.Parallel()
	http := rulefile.Options{OnlyHTTP: true, NoTokens: true, PlainFields: true}
	for _, p := range []place{
		{"key: §user_tier", `error: unknown attribute "user_tier"; use one of method, path, host, client_ip`},
		{"key: [path, §\"jwt:sub\"]", `error: no request has "jwt:sub": token verification is not configured; set jwt.keys`},
		{"match: {jwt: {§sub: a}}", `error: no request has "jwt:sub": token verification is not configured`},
		{"match: {attributes: {§tenant: a}}", `error: unknown attribute "tenant"`},
		{"key: §\"header:X_A\"", `warning: no request through the proxy has "header:X_a": proxy.underscores removes`},
		{"cost: {from: §weight}", `error: unknown attribute "weight"`},
		{"tiers: {by: §plan, gold: {rate: 1/s}}", `error: unknown attribute "plan"`},
		{"key: §\"path:/login\"", `error: unknown attribute "path:/login"; did you mean "path"?; conditions go under match, such as {path: /login}`},
	} {
		p.text = inLimit(p.text)
		pointsThere(t, http, p)
	}
	pointsThere(t, rulefile.Options{NoTokens: true}, place{inLimit("key: §\"jwt:sub\""), `warning: no request through the proxy or forward-auth has "jwt:sub": token verification is not configured`})
}
