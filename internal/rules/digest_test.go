package rules_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/request/spelling"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
)

const testSecret = "0123456789abcdef0123456789abcdef"

// hashedKey returns the key that the only rule, counting by text, has for r.
func hashedKey(t *testing.T, secret rules.KeySecret, text string, r rules.Request) (*rules.Rule, string) {
	t.Helper()
	rs, problems := rulefile.Options{KeySecret: secret}.Parse(rulefile.Source{
		Name: "rules.yaml", Data: []byte("domain: api\nlimits: [{name: a, key: " + text + ", rate: 1/s}]"),
	})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var m rules.Matches
	if rs.Match("api", r, &m); len(m.Checks) != 1 {
		t.Fatalf("%d checks", len(m.Checks))
	}
	return m.Checks[0].Rule, strings.Clone(m.Checks[0].Key)
}

// The key of a hashed value, from any attribute, has only the digest that the secret
// gives: openssl dgst -hmac.
func TestHashedPartsOfKeys(t *testing.T) {
	long := strings.Repeat("k", 5000)
	for _, value := range []string{"sk-live-1", "", long, "x\x00\xff", "hash:" + strings.Repeat("0", 32)} {
		for _, name := range []string{"header:X-Api-Key", "query:key", "cookie:session", "jwt:sub", "tenant", "client_ip"} {
			form := map[string]spelling.Form{"cookie:session": spelling.InCookie, "header:X-Api-Key": spelling.InField, "query:key": spelling.InField, "jwt:sub": spelling.InField}[name]
			if text, isClear := form.Read(value); text != value || !isClear {
				continue // counted by the client's address
			}
			for _, secret := range []rules.KeySecret{"", testSecret} {
				rule, key := hashedKey(t, secret, `["hash:`+name+`", user]`, attributes(t, map[string]string{name: value, "user": "ann"}))
				sum := sha256.Sum256([]byte(value))
				want := sum[:16]
				if secret != "" {
					mac := hmac.New(sha256.New, []byte(secret))
					mac.Write([]byte(value))
					want = mac.Sum(nil)[:16]
				}
				parts, ok := rules.SplitKey(key)
				if !ok || len(parts) != 2 || parts[0] != (rules.KeyPart{Value: string(want), Digest: true}) || parts[1] != (rules.KeyPart{Value: "ann"}) {
					t.Fatalf("hash:%s of %.20q: %q", name, value, key)
				}
				if got := parts[0].Text(); got != "hash:"+hex.EncodeToString(want) || len(value) > 2 && strings.Contains(key, value) {
					t.Errorf("hash:%s of %.20q is shown as %s, in %q", name, value, got, key)
				}
				// An operator may give the value, or what lists show.
				for _, given := range []rules.KeyPart{{Value: value}, rules.ParseHashedPart(parts[0].Text())} {
					if got, err := rule.ComposeKey([]rules.KeyPart{given, parts[1]}); err != nil || got != key {
						t.Errorf("hash:%s of %.20q: composed %q, %v", name, value, got, err)
					}
				}
				if !rule.HashesKey() || rule.Key[0].String() != "hash:"+name {
					t.Errorf("the key is %v", rule.Key)
				}
			}
		}
	}
}

// Method, path and host are hashed in the form that rules match.
func TestHashedPathsAreNormal(t *testing.T) {
	rule, key := hashedKey(t, testSecret, `["hash:path"]`, attributes(t, map[string]string{"path": "/login"}))
	_, same := hashedKey(t, testSecret, `["hash:path"]`, attributes(t, map[string]string{"path": "/./%6cogin/;x"}))
	composed, err := rule.ComposeKey([]rules.KeyPart{{Value: "/x/../LOGIN"}})
	if same != key || composed != key || err != nil {
		t.Errorf("%q, %q and %q, %v", key, same, composed, err)
	}
}

// Requests without the attribute share a count that no value can reach.
func TestHashedPartsThatAreMissing(t *testing.T) {
	_, missing := hashedKey(t, testSecret, `["hash:header:X-Api-Key"]`, attributes(t, map[string]string{"user": "ann"}))
	_, empty := hashedKey(t, testSecret, `["hash:header:X-Api-Key"]`, attributes(t, map[string]string{"header:X-Api-Key": ""}))
	if missing != rules.MarkMissing || empty == missing {
		t.Errorf("missing is %q, empty %q", missing, empty)
	}
}

func TestSecretsMakeOtherDigests(t *testing.T) {
	r := attributes(t, map[string]string{"user": "ann"})
	seen := map[string]bool{}
	for _, secret := range []rules.KeySecret{"", testSecret, testSecret + "x"} {
		_, key := hashedKey(t, secret, `["hash:user"]`, r)
		_, again := hashedKey(t, secret, `["hash:user"]`, r)
		if seen[key] || key != again {
			t.Errorf("with %d bytes of secret: %q, then %q", len(secret), key, again)
		}
		seen[key] = true
	}
}

func TestKeySecretIsNotShown(t *testing.T) {
	o := rulefile.Options{KeySecret: testSecret}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%v %+v %#v %s", o, o, o, o.KeySecret)
	text, err := o.KeySecret.MarshalText()
	if b.Write(text); err != nil || strings.Contains(b.String(), testSecret[:4]) {
		t.Errorf("%s, %v", &b, err)
	}
}

func TestParseKeyAttribute(t *testing.T) {
	for _, text := range []string{"hash:client_ip", "hash:header:X-Api-Key", "hash:query:q", "hash:cookie:s", "hash:jwt:urn:a", "hash:tenant", "client_ip", "header:X", "urn:tenant", "hash", "path:2", "path:16", "hash:path:1", "path:/login", "bath:1"} {
		a, err := rules.ParseKeyAttribute(text)
		if err != nil || a.String() != text || a.Hashed != strings.HasPrefix(text, "hash:") {
			t.Errorf("%s: %+v, %v", text, a, err)
		}
	}
	for text, want := range map[string]string{
		"hash:":                     "needs an attribute",
		"hash:header":               "needs a name",
		"hash:headers:X":            `did you mean "header:"?`,
		"hash:hash:user":            "works only in the key of a rule",
		"hashed:user":               `did you mean "hash:"?`,
		"Hash:user":                 `did you mean "hash:"?`,
		"hash: user":                "spaces at its start or end",
		"header:X Y":                "invalid header name",
		"hash:header:X Y":           "invalid header name",
		"path:0":                    `did you mean "path:1"?`,
		"path:-1":                   `did you mean "path:1"?`,
		"path:17":                   `did you mean "path:16"?`,
		"path:99":                   `"path:99" is not a segment of the path, did you mean "path:16"? (in /v1/acme, acme is path:2; the last is path:16)`,
		"path:x":                    `did you mean "path:2"?`,
		"path:":                     `did you mean "path:2"?`,
		"path:02":                   `did you mean "path:2"?`,
		"Paths:3":                   `did you mean "path:3"?`,
		"segment:3":                 `did you mean "path:3"?`,
		"hash:path:x":               `did you mean "path:2"?`,
		"path:99999999999999999999": `did you mean "path:16"?`,
	} {
		if a, err := rules.ParseKeyAttribute(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v, want %q", text, a, err, want)
		}
	}
}

// FuzzSplitKey takes apart whatever a store may have: what can be taken apart is
// put together to the same bytes.
func FuzzSplitKey(f *testing.F) {
	f.Add("\x03ann" + rules.MarkMissing + "\x00")
	f.Add(rules.MarkDigest + strings.Repeat("d", rules.DigestSize) + rules.MarkHashed + strings.Repeat("h", rules.HashSize))
	f.Add(rules.MarkDigest + "short")
	f.Add("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
	f.Fuzz(func(t *testing.T, key string) {
		parts, ok := rules.SplitKey(key)
		if !ok {
			return
		}
		var again []byte
		for _, p := range parts {
			switch {
			case p.Missing:
				again = append(again, rules.MarkMissing...)
			case p.Digest:
				again = append(append(again, rules.MarkDigest...), p.Value...)
				if read := rules.ParseHashedPart(p.Text()); read != p {
					t.Errorf("%q is read as %+v, not %+v", p.Text(), read, p)
				}
			case p.Hashed:
				again = append(append(again, rules.MarkHashed...), p.Value...)
			default:
				again = store.AppendKeyPart(again, p.Value)
			}
		}
		if string(again) != key {
			t.Errorf("%q is put together to %q", key, again)
		}
	})
}

// What a rule counts by is known of its domain, whatever the rule is about.
func TestWhatADomainCountsBy(t *testing.T) {
	const limit = "domain: d\nlimits:\n  - {name: a, rate: 9/minute, "
	const tree = "domain: d\ndescriptors: [{rate_limit: {unit: hour, requests_per_unit: 9}, key: "
	path := rules.Attribute{Kind: rules.Path}
	for text, want := range map[string]string{
		limit + "key: client_ip}":                                      "",
		limit + "match: {path: /a}, key: \"hash:query:path\"}":         "",
		limit + "count: distinct, of: path, key: client_ip}":           "", // no key has it
		limit + "key: path}":                                           "counts",
		limit + "key: path:3, mode: shadow}":                           "counts",
		limit + "key: [client_ip, \"hash:path\"]}":                     "counts hashes",
		limit + "key: \"hash:path:2\", mode: shadow}":                  "counts hashes",
		limit + "key: \"hash:path:2\", percent: 0}":                    "counts hashes",
		limit + "key: \"hash:path:2\", disabled: true}":                "counts hashes",
		limit + "key: \"hash:path:2\", match: {method: PUT}}":          "counts hashes",
		limit + "tiers: {by: plan, x: {rate: 1/day}}, key: hash:path}": "counts hashes",
		tree + "user}]":                     "",
		tree + "path, value: /a}]":          "",
		tree + "path}]":                     "counts",
		tree + "path, value: /a/*}]":        "counts",
		"compat: envoy\n" + tree + "path}]": "counts",
		"domain: other\nlimits: []":         "",
	} {
		rs, got := parse(t, text), ""
		if rs.CountsBy("d", path) {
			got = "counts"
		}
		if rs.Hashes("d", path) {
			got += " hashes"
		}
		if got != want || rs.CountsBy("none", path) || rs.Hashes("none", path) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
