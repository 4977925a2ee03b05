// Package api_test writes openapi.yaml, and holds it to the doors: each route has an
// operation, and what real servers answer is as the document says. Structs are described
// from their Go types.
package api_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/store"
)

var update = flag.Bool("update", false, "write openapi.yaml and docs/reference/api.md")

// bodies are the content of a request or an answer, by media type.
func (s *schemas) bodies(b any) dict {
	var list []any
	var content dict
	media := "application/json"
	switch b := b.(type) {
	case nil:
		return nil
	case string:
		for name := range strings.SplitSeq(b, "|") {
			switch {
			case strings.Contains(name, "/"):
				content = append(content, pair{name, dict{{"schema", dict{{"type", "string"}}}}})
			case name == problem || name == refusal:
				media = "application/problem+json"
				list = append(list, ref(name))
			default:
				list = append(list, ref(name))
			}
		}
	case reflect.Type:
		list = append(list, s.goType(b))
	case []reflect.Type:
		for _, t := range b {
			list = append(list, s.goType(t))
		}
	}
	switch len(list) {
	case 0:
	case 1:
		content = append(content, pair{media, dict{{"schema", list[0]}}})
	default:
		content = append(content, pair{media, dict{{"schema", dict{{"anyOf", list}}}}})
	}
	return content
}

// document returns the OpenAPI document.
func document() dict {
	s := &schemas{of: map[reflect.Type]string{}, said: map[reflect.Type]map[string]string{}}
	common(s)
	var paths dict
	for _, o := range operations() {
		var parameters []any
		for _, name := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(o.path, -1) {
			parameters = append(parameters, dict{{"name", name[1]}, {"in", "path"}, {"required", true}, {"schema", dict{{"type", "string"}}}})
		}
		for _, p := range o.query {
			parameter := dict{{"name", p.name}, {"in", "query"}, {"schema", dict{{"type", "string"}}}}
			if p.what != "" {
				parameter = append(parameter, pair{"description", p.what})
			}
			parameters = append(parameters, parameter)
		}
		var tags []any
		for door := range strings.FieldsSeq(o.door) {
			tags = append(tags, door)
		}
		described := dict{{"tags", tags}, {"operationId", o.id()}, {"summary", o.summary}}
		if parameters != nil {
			described = append(described, pair{"parameters", parameters})
		}
		if o.body != nil {
			described = append(described, pair{"requestBody", dict{{"content", s.bodies(o.body)}}})
		}
		var answers dict
		for _, a := range o.answers {
			answer := dict{{"description", http.StatusText(a.status)}}
			if content := s.bodies(a.body); content != nil {
				answer = append(answer, pair{"content", content})
			}
			answers = append(answers, pair{strconv.Itoa(a.status), answer})
		}
		answers = append(answers, pair{"default", dict{{"description", "Any other error"}, {"content", s.bodies(problem)}}})
		described = append(described, pair{"responses", answers})
		if known, ok := paths.get(o.path).(dict); ok {
			i := slices.IndexFunc(paths, func(p pair) bool { return p.name == o.path })
			paths[i].value = append(known, pair{o.method, described})
			continue
		}
		paths = append(paths, pair{o.path, dict{{o.method, described}}})
	}
	slices.SortStableFunc(s.list, func(a, b pair) int { return cmp.Compare(a.name, b.name) })
	return dict{
		{"openapi", "3.1.0"},
		{"info", dict{{"title", "Headgate"}, {"version", "1"}, {"description", "The HTTP API and the admin door of Headgate, a rate limiter."}, {"license", dict{{"name", "Apache-2.0"}, {"identifier", "Apache-2.0"}}}}},
		{"servers", []any{dict{{"url", "http://127.0.0.1:8080"}, {"description", "api"}}, dict{{"url", "http://127.0.0.1:6070"}, {"description", "admin"}}}},
		{"security", []any{dict{}, dict{{"token", []any{}}}}},
		{"tags", []any{dict{{"name", "api"}, {"description", "The HTTP API, for services"}}, dict{{"name", "admin"}, {"description", "The admin door, for operators"}}}},
		{"paths", paths},
		{"components", dict{{"securitySchemes", dict{{"token", dict{{"type", "http"}, {"scheme", "bearer"}}}}}, {"schemas", s.list}}},
	}
}

func (o *operation) id() string {
	return o.method + regexp.MustCompile(`[/{}_-]+(\w)|[/{}]`).ReplaceAllStringFunc(o.path, func(part string) string {
		return strings.ToUpper(strings.Trim(part, "/{}_-"))
	})
}

// TestDocument: openapi.yaml and docs/reference/api.md are what the code says.
func TestDocument(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Written by: go test ./api -update\n")
	all := document()
	yaml(&b, "", all)
	for file, want := range map[string]string{"openapi.yaml": b.String(), "../docs/reference/api.md": page(all)} {
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s is out of date: run go test ./api -update (%v)", file, err)
		}
	}
}

// TestMeanings: every field, parameter, reason and status has a meaning, in the source of its struct
// or in operations_test.go.
func TestMeanings(t *testing.T) {
	for i, row := range reasons() {
		if reason := store.Reason(i).String(); reason != row[0] && row[0] != "unknown_domain" {
			t.Errorf("the reason %s has no meaning", reason)
		}
	}
	if next := store.Reason(len(reasons()) - 1).String(); !strings.HasPrefix(next, "reason(") {
		t.Errorf("the reason %s has no meaning", next)
	}
	for _, o := range operations() {
		for _, a := range o.answers {
			if !slices.ContainsFunc(statuses(), func(row [2]string) bool { return row[0] == strconv.Itoa(a.status) }) {
				t.Errorf("the status %d has no meaning", a.status)
			}
		}
	}
	for _, schema := range document().at("components", "schemas") {
		object, _ := schema.value.(dict)
		for _, field := range object.at("properties") {
			if described, _ := field.value.(dict); described.get("description") == nil {
				t.Errorf("%s.%s has no meaning", schema.name, field.name)
			}
		}
	}
	for _, o := range operations() {
		for _, p := range o.query {
			if p.what == "" {
				t.Errorf("%s %s: the parameter %s has no meaning", o.method, o.path, p.name)
			}
		}
	}
}

// TestRoutes: every route of both doors has an operation. The pages, the profiler and the
// answer to unknown actions are not part of the API.
func TestRoutes(t *testing.T) {
	known := map[string]bool{}
	for _, o := range operations() {
		for door := range strings.FieldsSeq(o.door) {
			known[door+" "+strings.ToUpper(o.method)+" "+o.path] = true
			known[door+" "+o.path] = true
		}
	}
	files, err := filepath.Glob("../internal/door/admin/*.go")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	found := 0
	for _, file := range append(files, "../internal/app/doors.go") {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, route := range regexp.MustCompile(`"(/v1/[^"]*)": `).FindAllStringSubmatch(read(t, file), -1) {
			t.Errorf("%s: %s answers every method: name one", file, route[1])
		}
		for _, route := range regexp.MustCompile(`"((?:GET|POST|PUT|PATCH|DELETE) /[^"]*)"`).FindAllStringSubmatch(read(t, file), -1) {
			if strings.Contains(route[1], "/debug/pprof/") || route[1] == "POST /v1/keys/" || route[1] == "POST /v1/keys/{action}" {
				continue
			}
			if found++; !known["admin "+route[1]] {
				t.Errorf("%s: %s has no operation in operations_test.go", file, route[1])
			}
		}
	}
	source := read(t, "../internal/door/httpapi/handler.go")
	_, serve, _ := strings.Cut(source, "ServeHTTP(w http.ResponseWriter, r *http.Request) {")
	serve, _, _ = strings.Cut(serve, "\n}\n")
	for _, path := range regexp.MustCompile(`"(/[\w/]+)"`).FindAllStringSubmatch(serve, -1) {
		if found++; !known["api "+path[1]] && !known["api "+path[1]+"{id}"] {
			t.Errorf("%s has no operation in operations_test.go", path[1])
		}
	}
	if found < 40 {
		t.Errorf("only %d routes found", found)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const rules = `domain: api
limits:
  - {name: login, match: {path: /login}, key: client_ip, rate: 5/minute}
  - {name: trial, match: {path: /trial}, rate: 1/minute, mode: shadow}
  - {name: near, match: {path: /trial}, rate: 100/minute, soft: 1%}
  - {name: slot, match: {path: /slot}, concurrency: 5}
  - {name: failed, match: {path: /failed}, rate: 5/minute, charge_on: {status: 401}}
  - {name: delay, match: {path: /delay}, rate: 1/second, burst: 5, algorithm: leaky_bucket, on_limit: {action: delay, max_wait: 5s}}
  - {name: later, match: {path: /later}, rate: 1/hour, on_limit: queue}
deny: {client_ip: 203.0.113.9}
`

// started returns the addresses of the doors of a server, by their names.
func started(t *testing.T) map[string]string {
	t.Helper()
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(backend.Close)
	folder := t.TempDir()
	for name, text := range map[string]string{
		"rules.yaml": rules, "candidate.yaml": rules,
		"headgate.yaml": `rules: [rules.yaml]
candidate: [candidate.yaml]
trusted_proxies: [127.0.0.1]
listen: {api: 127.0.0.1:0, grpc: "off", resp: "off", admin: 127.0.0.1:0}
proxy: {listen: 127.0.0.1:0, upstream: "` + backend.URL + `"}
queue: {path: queue.db}
store: {key_times: true}
`,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	none := func(string) (string, bool) { return "", false }
	c, err := config.Load(config.Sources{Doors: app.Sections(), File: filepath.Join(folder, "headgate.yaml"), Environment: none})
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.New(app.Options{Config: c, Logger: slog.New(slog.DiscardHandler), LogLevel: new(slog.LevelVar)})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Stop(context.Background()) })
	return map[string]string{"api": a.Addr("api"), "admin": a.Addr("admin"), "proxy": a.Addr("proxy")}
}

// checker compares answers with the document, and remembers what it has seen.
type checker struct {
	compiler *jsonschema.Compiler
	doors    map[string]string
	saved    map[string]string // tokens in answers, by name
	seen     map[string]bool   // members of answers, as schema.member
	members  func(schema string) map[string]any
}

// TestAnswers: every operation answers with the statuses and the fields that the document
// has, and with no others.
func TestAnswers(t *testing.T) {
	whole, _ := plain(document()).(map[string]any)
	components, _ := whole["components"].(map[string]any)
	list, _ := components["schemas"].(map[string]any)
	for _, s := range list {
		schema, _ := s.(map[string]any)
		if properties, _ := schema["properties"].(map[string]any); len(properties) > 0 {
			schema["additionalProperties"] = false // here, so that no field goes unseen
		}
	}
	properties := func(name string) map[string]any {
		schema, _ := list[name].(map[string]any)
		members, _ := schema["properties"].(map[string]any)
		return members
	}
	c := &checker{compiler: jsonschema.NewCompiler(), doors: started(t), saved: map[string]string{}, seen: map[string]bool{}, members: properties}
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	if err := c.compiler.AddResource("openapi.json", whole); err != nil {
		t.Fatal(err)
	}
	c.queueOne(t)
	for _, o := range operations() {
		for door := range strings.FieldsSeq(o.door) {
			statuses := map[int]bool{}
			for _, try := range o.tries {
				statuses[c.try(t, &o, door, try)] = true
			}
			for _, a := range o.answers {
				if !a.rare && !statuses[a.status] {
					t.Errorf("%s %s: no request was answered with %d", o.method, o.path, a.status)
				}
			}
		}
	}
	// These need time, or rules that change.
	later := []string{"in_debt", "rules_gone", "next_attempt_at", "given_up_at", "delivered_at", "response"}
	for _, name := range []string{"Decision", "Reservation", "Committed", "Cancelled", "Reported", "Released", "Renewed", "QueuedRequest", "Ready"} {
		for member := range properties(name) {
			if !c.seen[name+"."+member] && !slices.Contains(later, member) && name+"."+member != "Renewed.reason" {
				t.Errorf("no answer had %s.%s", name, member)
			}
		}
	}
}

// queueOne has the proxy queue a request.
func (c *checker) queueOne(t *testing.T) {
	t.Helper()
	for range 2 {
		status, header, body := c.send(t, "POST", "http://"+c.doors["proxy"]+"/later", "hello")
		if status == http.StatusAccepted {
			c.saved["id"] = header.Get("Location")[strings.LastIndex(header.Get("Location"), "/")+1:]
			return
		}
		_ = body
	}
	t.Fatal("nothing was queued")
}

func (c *checker) send(t *testing.T, method, url, body string) (int, http.Header, []byte) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Original-URI", "/login") // as a proxy asks forward-auth
	r.Header.Set("X-Original-Method", http.MethodPost)
	r.Header.Set("X-Forwarded-For", "198.51.100.7")
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") {
		return answer.StatusCode, answer.Header, nil
	}
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, answer.Header, text
}

// try sends a request and compares the answer with the document.
func (c *checker) try(t *testing.T, o *operation, door string, try try) int {
	t.Helper()
	fill := func(s string) string { return os.Expand(s, func(name string) string { return c.saved[name] }) }
	path, query := o.path, try.query
	if strings.Contains(path, "{id}") {
		path, query = strings.Replace(path, "{id}", fill(query), 1), ""
	}
	status, header, text := c.send(t, strings.ToUpper(o.method), "http://"+c.doors[door]+path+query, fill(try.body))
	if status != try.status {
		t.Errorf("%s: %s %s%s %s: %d, want %d: %s", door, o.method, path, query, try.body, status, try.status, text)
		return status
	}
	if empty := slices.ContainsFunc(o.answers, func(a reply) bool { return a.status == status && a.body == nil }); empty {
		if len(text) > 0 {
			t.Errorf("%s %s, %d: %q, the document says that it is empty", o.method, o.path, status, text)
		}
		return status
	}
	media, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	pointer := fmt.Sprintf("openapi.json#/paths/%s/%s/responses/%d/content/%s/schema", escaped(o.path), o.method, status, escaped(media))
	schema, err := c.compiler.Compile(pointer)
	if err != nil {
		t.Errorf("%s %s answers %d as %q, which the document does not have: %v", o.method, o.path, status, media, err)
		return status
	}
	if !strings.HasSuffix(media, "json") {
		return status
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err == nil {
		err = schema.Validate(value)
	}
	if err != nil {
		t.Errorf("%s %s, %d: %v\n%s", o.method, o.path, status, err, text)
	}
	members, _ := value.(map[string]any)
	c.see(o, status, members)
	for name, v := range members {
		if token, ok := v.(string); ok && slices.Contains([]string{"lease", "report", "reservation"}, name) {
			c.saved[name] = token
		}
	}
	return status
}

// see remembers the members of an answer, for the schema by name that has them all.
func (c *checker) see(o *operation, status int, members map[string]any) {
	for _, a := range o.answers {
		names, _ := a.body.(string)
		for schema := range strings.SplitSeq(names, "|") {
			properties, fits := c.members(schema), a.status == status
			for name := range members {
				fits = fits && properties[name] != nil
			}
			for name := range members {
				c.seen[schema+"."+name] = c.seen[schema+"."+name] || fits
			}
		}
	}
}

func escaped(s string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(s)
}

var unknown = regexp.MustCompile(`known (?:are|is) (.*?)(?: \(at byte|$)`)

// TestFields: the fields of a request are those that its door names to a caller with
// another field.
func TestFields(t *testing.T) {
	whole, _ := plain(document()).(map[string]any)
	components, _ := whole["components"].(map[string]any)
	list, _ := components["schemas"].(map[string]any)
	c := &checker{doors: started(t)}
	found := 0
	for _, o := range operations() {
		name, _ := o.body.(string)
		for schema := range strings.SplitSeq(name, "|") {
			if schema == "" || schema == "Checks" || !strings.HasPrefix(o.door, "api") {
				continue
			}
			_, _, text := c.send(t, "POST", "http://"+c.doors["api"]+o.path, `{"xyzzyxyzzy":1}`)
			var said struct{ Detail string }
			if err := json.Unmarshal(text, &said); err != nil || !unknown.MatchString(said.Detail) {
				continue
			}
			var names []string
			for _, quoted := range regexp.MustCompile(`"(\w+)"`).FindAllStringSubmatch(unknown.FindStringSubmatch(said.Detail)[1], -1) {
				if quoted[1] != "checks" && (quoted[1] != "peek" || o.path != "/v1/reserve") { // which refuses it
					names = append(names, quoted[1])
				}
			}
			properties, _ := list[schema].(map[string]any)["properties"].(map[string]any)
			for _, n := range names {
				if _, ok := properties[n]; !ok {
					t.Errorf("%s: the document does not have %q of %s", o.path, n, said.Detail)
				}
			}
			for p := range properties {
				if !slices.Contains(names, p) {
					t.Errorf("%s: %q of the document is not in %s", o.path, p, said.Detail)
				}
			}
			found++
		}
	}
	if found < 8 {
		t.Errorf("only %d bodies compared", found)
	}
}
