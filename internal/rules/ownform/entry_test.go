package ownform_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// TestNamesThatNothingProvides: what no request has is an error where only HTTP
// requests come, the name of a header field everywhere, and another word for an
// attribute a warning.
func TestNamesThatNothingProvides(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, alone, otherwise string }{
		{"X-Api-Key", `error did you mean "header:X-Api-Key"?`, `error`},
		{"x-api-key", `error did you mean "header:X-Api-Key"?`, `error`},
		{"User-Agent", `error did you mean "header:User-Agent"?`, `error`},
		{"attributes:user", `error did you mean "user"?`, `error`},
		{"path:/x", `error did you mean "path"?`, `warning did you mean "path"?`},
		{"method:GET", `error did you mean "method"?`, `warning did you mean "method"?`},
		{"host:example.org", `error did you mean "host"?`, `warning did you mean "host"?`},
		{"client_ip:24", `error did you mean "client_ip"?`, `warning did you mean "client_ip"?`},
		{"route", `error did you mean "path"?`, `warning did you mean "path"?`},
		{"everybody", `error`, `warning`},
		{"ip", `error did you mean "client_ip"?`, `warning did you mean "client_ip"?`},
		{"remote_addr", `error did you mean "client_ip"?`, `warning did you mean "client_ip"?`},
		{"user_id", `error did you mean "jwt:sub"?`, ``},
		{"tenant", `error`, ``},
		{"client_ip", ``, ``},
		{`"header:X-Api-Key"`, ``, ``},
	} {
		text := "domain: d\nlimits:\n  - name: a\n    key: [" + row.name + "]\n    rate: 1/day\n"
		for options, want := range map[rulefile.Options]string{{OnlyHTTP: true}: row.alone, {}: row.otherwise} {
			rs, problems := options.Parse(rulefile.Source{Name: "r.yaml", Data: []byte(text)})
			if rs != nil {
				problems = rs.Warnings()
			}
			got := ""
			for _, p := range problems {
				got += p.String()
			}
			kind, hint, _ := strings.Cut(want, " ")
			switch kind := strings.TrimSuffix(kind, ":"); {
			case kind == "" && got != "", kind != "" && got == "",
				kind == "error" != (rs == nil),
				kind != "" && !strings.Contains(got, "r.yaml:4:11"),
				strings.Contains(hint, "did you mean") && !strings.Contains(got, hint[strings.Index(hint, "did you"):]):
				t.Errorf("%s, %+v: %q, want %q", row.name, options, got, want)
			}
		}
	}
}

// A list without anything in it is no key, which is said; so is what counts all
// requests, where those of one path are meant.
func TestKeysOfNothing(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"[]":            "r.yaml:4:10: warning: the key is empty: all requests are counted together; name what to count by, such as client_ip, or leave the key out",
		"['path:/x']":   `"path:/x" is not a built-in attribute: the caller must send it; did you mean "path"?; conditions go under match, such as {path: /x}`,
		"['client_ip']": "",
	} {
		_, problems := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte("domain: d\nlimits:\n  - name: a\n    key: " + key + "\n    rate: 1/day\n")})
		if got := diagnostic.Problems(problems).Error(); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
}

// A descriptor by an entry that no HTTP request has never applies where there are
// no others, at whatever depth.
func TestDescriptorsThatNothingProvides(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"generic_key":      `unknown attribute "generic_key"; use one of method, path`,
		"tenant":           `unknown attribute "tenant"; use one of method, path`,
		"X-Api-Key":        `"X-Api-Key" is a header name; did you mean "header:X-Api-Key"?`,
		"header:X-Api-Key": "", "remote_address": "", "client_ip": "", "path": "", "jwt:sub": "",
	} {
		for _, compat := range []string{"none", "envoy"} {
			for place, text := range map[string]string{
				"4:10": "domain: d\ncompat: " + compat + "\ndescriptors:\n  - key: " + key + "\n    value: v\n    rate_limit: {unit: minute, requests_per_unit: 5}\n",
				"6:12": "domain: d\ncompat: " + compat + "\ndescriptors:\n  - key: path\n    descriptors:\n    - key: " + key + "\n      rate_limit: {unit: minute, requests_per_unit: 5}\n",
			} {
				rs, problems := rulefile.Options{OnlyHTTP: true}.Parse(rulefile.Source{Name: "r.yaml", Data: []byte(text)})
				got := diagnostic.Problems(problems).Error()
				if (rs == nil) != (want != "") || want != "" && !strings.Contains(got, "r.yaml:"+place+": "+want) {
					t.Errorf("%s, compat %s: %q, want %q", key, compat, got, want)
				}
				if rs, problems := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte(text)}); rs == nil || len(problems) > 0 {
					t.Errorf("%s, compat %s, with other doors: %v", key, compat, problems)
				}
			}
		}
	}
}

// Claims are an error where all requests are HTTP and nothing verifies tokens, and
// a warning where other callers may know them, wherever a rule asks for one.
func TestClaimsThatNobodyVerifies(t *testing.T) {
	t.Parallel()
	for place, text := range map[string]string{
		"4:11": "domain: d\nlimits:\n  - name: a\n    key: ['jwt:sub']\n    rate: 1/day\n",
		"4:20": "domain: d\nlimits:\n  - name: a\n    match: {jwt: { role: guest}}\n    rate: 1/day\n",
		"5:17": "domain: d\nlimits:\n  - name: a\n    rate: 1/day\n    tiers: {by: 'jwt:plan', pro: {rate: 2/day}}\n",
		"5:18": "domain: d\nlimits:\n  - name: a\n    rate: 9/day\n    cost: {from: 'jwt:cost'}\n",
		"3:10": "domain: d\ndescriptors:\n  - key: 'jwt:sub'\n    rate_limit: {rate: 1/day}\n",
	} {
		for options, want := range map[rulefile.Options]string{
			{OnlyHTTP: true, NoTokens: true}: "error", {NoTokens: true}: "warning", {OnlyHTTP: true}: "", {}: "",
		} {
			rs, problems := options.Parse(rulefile.Source{Name: "r.yaml", Data: []byte(text)})
			got := diagnostic.Problems(problems).Error()
			if (rs == nil) != (want == "error") || (got == "") != (want == "") {
				t.Errorf("%+v: %q of %s", options, got, text)
			}
			if want != "" && (!strings.Contains(got, "r.yaml:"+place) || !strings.Contains(got, "token verification is not configured")) {
				t.Errorf("%+v: %q, want it at %s", options, got, place)
			}
		}
	}
}

// Header fields that the proxy keeps out of requests are a warning, wherever a rule
// asks for one.
func TestFieldsThatTheProxyKeepsOut(t *testing.T) {
	t.Parallel()
	for place, text := range map[string]string{
		"4:11": "domain: d\nlimits:\n  - name: a\n    key: ['header:X_Plan']\n    rate: 1/day\n",
		"4:24": "domain: d\nlimits:\n  - name: a\n    match: {headers: { X.Plan: free}}\n    rate: 1/day\n",
		"5:17": "domain: d\nlimits:\n  - name: a\n    rate: 1/day\n    tiers: {by: 'header:x_plan', pro: {rate: 2/day}}\n",
		"5:18": "domain: d\nlimits:\n  - name: a\n    rate: 9/day\n    cost: {from: 'header:X!Cost'}\n",
		"3:10": "domain: d\ndescriptors:\n  - key: 'header:X_Plan'\n    rate_limit: {rate: 1/day}\n",
	} {
		for options, want := range map[rulefile.Options]bool{{PlainFields: true}: true, {}: false} {
			rs, problems := options.Parse(rulefile.Source{Name: "r.yaml", Data: []byte(text)})
			got := diagnostic.Problems(problems).Error()
			warns := strings.Contains(got, "no request through the proxy has \"header:X") && strings.Contains(got, "r.yaml:"+place)
			if rs == nil || warns != want || !want && got != "" {
				t.Errorf("%+v: %q of %s", options, got, text)
			}
		}
	}
	rs, problems := rulefile.Options{PlainFields: true}.Parse(rulefile.Source{Name: "r.yaml", Data: []byte(
		"domain: d\nlimits:\n  - {name: a, key: ['header:X-Plan-2'], rate: 1/day}\n")})
	if rs == nil || len(problems) > 0 {
		t.Errorf("of a plain field: %v", problems)
	}
}

// TestFieldsThatServersTakeOut: what frames a request is no property of it that rules
// see.
func TestFieldsThatServersTakeOut(t *testing.T) {
	t.Parallel()
	for name, warns := range map[string]bool{"Transfer-Encoding": true, "trailer": true, "Host": false, "Content-Length": false} {
		rs, problems := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte("domain: d\nlimits:\n  - {name: a, key: ['header:" + name + "'], rate: 1/day}\n")})
		got := diagnostic.Problems(problems).Error()
		if rs == nil || warns != strings.Contains(got, "r.yaml:3:21: warning: no request has \"header:T") || !warns && got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestBrokenRatesRepeatNothing: a rule with an invalid rate is not compared.
func TestBrokenRatesRepeatNothing(t *testing.T) {
	t.Parallel()
	_, problems := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte("domain: d\nlimits:\n  - {name: a, key: client_ip, rate: 5/minte}\n  - {name: b, key: client_ip, rate: 7/hur}\n")})
	if len(problems) != 2 {
		t.Errorf("%v", problems)
	}
	for _, p := range problems {
		if strings.Contains(p.String(), "repeats") {
			t.Error(p)
		}
	}
}

func TestOnLimitIsNoStatus(t *testing.T) {
	t.Parallel()
	rs, problems := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte("domain: d\nlimits:\n  - {name: a, rate: 5/minute, on_limit: 503}\n")})
	if rs != nil || len(problems) != 1 || problems[0].Hint != "write on_limit: {status: 503}" {
		t.Errorf("%+v", problems)
	}
	if rs, problems := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte("domain: d\nlimits:\n  - {name: a, rate: 5/minute, on_limit: {status: 503}}\n")}); rs == nil {
		t.Errorf("the hint is wrong: %+v", problems)
	}
}

// TestForeignNames: names of other programs and several names in one text are
// errors with the right word, misspelt ones warnings.
func TestForeignNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"clinet_ip": "warning client_ip", "client_ipp": "warning client_ip", "clientip": "warning client_ip", "mehtod": "warning method",
		"remote_address": "warning client_ip", "x_forwarded_for": "warning client_ip", "xff": "warning client_ip", "pth": "warning path", "hots": "warning host",
		"referer": "warning header:Referer", "authorization": "warning header:Authorization", "url": "warning path",
		"Origin": "error header:Origin", "Cookie": "error header:Cookie", "Referer": "error header:Referer", "Accept": "error header:Accept",
		"Authorization": "error header:Authorization", "X-Forwarded-For": "error header:X-Forwarded-For",
		"jwt.sub": "error jwt:sub", "query.user": "error query:user", "cookie.session": "error cookie:session", "header.X-Api-Key": "error header:X-Api-Key",
		"param:user": "error query:user", "claim:sub": "error jwt:sub", "request.headers.x-api-key": "error header:X-Api-Key",
		"headers[X-Api-Key]": "error header:X-Api-Key", "request.headers['x-plan']": "error header:X-Plan", "hash(header:X-Api-Key)": "error hash:header:X-Api-Key",
		"sha256:client_ip":    "error hash:client_ip",
		"$binary_remote_addr": "error client_ip", "$http_x_api_key": "error header:X-Api-Key", "$arg_user": "error query:user", "$cookie_s": "error cookie:s",
		"${client_ip}": "error client_ip", "{client_ip}": "error client_ip", "{{client_ip}}": "error client_ip", "%{client_ip}": "error client_ip",
		"attribute:user": `error did you mean "user"`, "attributes:plan": `error did you mean "plan"`, "hdr:X-Api-Key": "error header:X-Api-Key", "token:sub": "error jwt:sub",
		"route": "warning path", "endpoint": "warning path", "*": "warning leave the key out", "all": "warning leave the key out",
		"$request_uri": "error path", "$http_host": "error host", "$foo": "error use one of method",
		"client_ip, path": `error ["client_ip", "path"]`, "client_ip path": `error ["client_ip", "path"]`, "client_ip+path": `error ["client_ip", "path"]`,
		"client_ip/path": `error ["client_ip", "path"]`, "client_ip:path": `error ["client_ip", "path"]`, "tenant, client_ip": `error ["tenant", "client_ip"]`,
		"clinet_ip,path": `error ["client_ip", "path"]`,

		"tenant": "", "client_id": "", "client": "", "cost": "", "post": "", "ghost": "", "destination cluster": "", "urn:tenant": "", "path:1": "", "host:name": "",
		"method:weight": "", "user_id": "", "team/plan": "", "a.b": "", "destination.method": "", "plan(free)": "",
	} {
		text := "domain: d\nlimits:\n  - name: a\n    key: ['" + strings.ReplaceAll(name, "'", "''") + "']\n    rate: 1/day\n"
		rs, problems := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte(text)})
		if rs != nil {
			problems = rs.Warnings()
		}
		got := diagnostic.Problems(problems).Error()
		kind, word, _ := strings.Cut(want, " ")
		if (kind == "error") != (rs == nil) || (kind == "") != (got == "") || len(problems) > 1 || !strings.Contains(got, word) {
			t.Errorf("%s: %q, want %s", name, got, want)
		}
	}
}
