package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

// The parts of a request that can contain a value, with their attributes.
func valueParts() map[string]string {
	return map[string]string{
		"query": "query:user_id", "cookie": "cookie:session", "field": "header:X-Api-Key",
		"bearer": "header:Authorization", "basic": "header:Authorization",
	}
}

// A value known to the rules, and another one.
const (
	realValue  = "real"
	otherValue = "other"

	unclearValue = rules.UnclearWord // of all clients, each for itself
)

// asAttribute returns a plainly written value as the attribute of a part.
func asAttribute(part, value string) string {
	switch part {
	case "bearer":
		return "Bearer " + value
	case "basic":
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(value+":pass"))
	}
	return value
}

// conditionsOfValues are the conditions of rules without a key.
func conditionsOfValues(part string) map[string]string {
	known := asAttribute(part, realValue)
	return map[string]string{
		"is": fmt.Sprintf("%q", known), "not": fmt.Sprintf("{not: %q}", known), "absent": "{present: false}", "present": "{present: true}",
	}
}

// rulesOfValues count each part by its value, and the requests that meet each kind of
// condition.
func rulesOfValues() string {
	var b strings.Builder
	b.WriteString("domain: site\nlimits:\n")
	for part, attribute := range valueParts() {
		const rate = "rate: 1_000_000_000/day, algorithm: fixed_window}\n"
		fmt.Fprintf(&b, "  - {name: %s, match: {path: /values/%s}, key: [%q], %s", part, part, attribute, rate)
		kind, name, _ := strings.Cut(attribute, ":")
		kind = map[string]string{"query": "query", "cookie": "cookies", "header": "headers"}[kind]
		for what, condition := range conditionsOfValues(part) {
			fmt.Fprintf(&b, "  - {name: %s-%s, match: {path: /values/%s, %s: {%s: %s}}, %s", part, what, part, kind, name, condition, rate)
		}
	}
	return b.String()
}

// However the known value is spelled, the request is charged to its budget if the server
// reads it, or else to that of all unclear values of the client: no spelling gives more
// than one budget besides. Conditions hold for what the server reads, and for what is
// unclear.
func TestNoSpellingGivesAThirdBudget(t *testing.T) {
	servers := upstreams()
	delete(servers, "php files")
	delete(servers, "fastify4") // reads queries from the first semicolon on: docs/rules/rules.md
	servers["nginx"] = startNginxOfValues
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream := start(t)
			to := func(c *config.Config) { proxyOf(c).Upstream = &url.URL{Scheme: "http", Host: upstream} }
			allow := func(c *config.Config) { proxyOf(c).Underscores = "allow" }
			spellValues(t, newValueDoor(t, to), newValueDoor(t, to, allow))
		})
	}
}

// valueDoor is a proxy in front of a server.
type valueDoor struct {
	*fixture
	client *rawClient
	left   map[string]int64 // remaining, by budget, at the last check
}

func newValueDoor(t *testing.T, change ...set) *valueDoor {
	t.Helper()
	f := run(t, rulesOfValues(), nil, change...)
	d := &valueDoor{fixture: f, client: &rawClient{address: f.Addr(doorProxy)}, left: map[string]int64{}}
	for part := range valueParts() {
		d.charged(t, part)
		// Plainly written values have one budget.
		plainly := spelled{part, []string{map[string]string{"query": "user_id=", "cookie": "Cookie: session=", "field": "X-Api-Key: "}[part], asAttribute(part, realValue)}}
		if part == "bearer" || part == "basic" {
			plainly.pieces[0] = "Authorization: "
		}
		d.client.ask(t, plainly.request())
		charged := d.charged(t, part)
		if slices.Sort(charged); !slices.Equal(charged, []string{"is", asBudget(realValue), "present"}) {
			t.Errorf("%q is charged to %q", plainly.request(), charged)
		}
	}
	return d
}

// charged returns the budgets of a part that have less remaining than last time: for
// each value, for the empty one, for none (missing), for what is unclear, and for each
// condition.
func (d *valueDoor) charged(t *testing.T, part string) []string {
	t.Helper()
	var charged []string
	for _, value := range []string{realValue, otherValue, "", "missing", unclearValue} {
		attributes := map[string]string{"client_ip": "127.0.0.1", "path": "/values/" + part}
		text := asAttribute(part, value)
		if value == "" || value == unclearValue {
			text = value
		}
		if value != "missing" {
			attributes[valueParts()[part]] = text
		}
		question, err := json.Marshal(map[string]any{"domain": "site", "attributes": attributes})
		if err != nil {
			t.Fatal(err)
		}
		var x httpapi.Explanation
		if status, body := d.post(t, "/v1/explain", string(question)); status != http.StatusOK || json.Unmarshal([]byte(body), &x) != nil || len(x.Parts) != 1 {
			t.Fatalf("%d %s", status, body)
		}
		for _, rule := range x.Parts[0].Rules {
			budget := rule.Rule
			if _, budget, _ = strings.Cut(budget, "-"); budget == "" {
				budget = asBudget(value)
			}
			if rule.Applies {
				was, known := d.left[part+budget]
				if known && was != rule.Count.Remaining {
					charged = append(charged, budget)
				}
				d.left[part+budget] = rule.Count.Remaining
			}
		}
	}
	return charged
}

// outcome is the result of one request.
type outcome struct {
	reached bool
	real    bool // some reader reads the known value
	wrong   string
}

// ask sends one request.
func (d *valueDoor) ask(t *testing.T, s spelled) (o outcome) {
	t.Helper()
	_, body := d.client.ask(t, s.request())
	charged := d.charged(t, s.part)
	for reader, v := range saidBy(body)[s.part] {
		if s.part == "bearer" && reader == "cut" {
			continue // seven bytes, whatever they are: docs/rules/rules.md
		}
		c := heard{part: s.part, value: v, seen: textsOf(v), charged: charged}
		o.reached, o.real = true, o.real || c.has(realValue)
		if wrong := c.wrong(); wrong != "" {
			o.wrong = fmt.Sprintf("%s reads %q, and %s, but %q", reader, c.seen, wrong, charged)
		}
	}
	return o
}

// heard is what one of a server's readers reads in a part of a request, nil for
// nothing, and the budgets that were charged.
type heard struct {
	part    string
	value   any
	seen    []string
	charged []string
}

// has reports whether a value was read.
func (r *heard) has(value string) bool {
	if r.part == "basic" {
		value += ":pass"
	}
	return slices.Contains(r.seen, value)
}

// pays reports whether the budget of a value or of a condition was charged.
func (r *heard) pays(budget string) bool { return slices.Contains(r.charged, budget) }

// wrong describes what is wrong, or returns "".
func (r *heard) wrong() string {
	if r.pays(asBudget(unclearValue)) {
		for _, condition := range []string{"is", "not", "absent", "present"} {
			if !r.pays(condition) {
				return "it is unclear, and " + condition + " does not hold"
			}
		}
		return ""
	}
	// A reader may find no credentials although the field is present, and a condition
	// that excludes a token need not hold then. Conditions compare it with its scheme.
	whole := r.part != "bearer" && r.part != "basic"
	isReal, none := r.has(realValue), r.value == nil
	switch {
	case isReal && !r.pays(asBudget(realValue)):
		return "its budget is not charged"
	case r.has(otherValue) && !r.pays(asBudget(otherValue)):
		return "the budget of the other is not charged"
	case whole && none && !r.pays(asBudget("missing")):
		return "that of requests without one is not charged"
	case r.part != "bearer" && isReal && !r.pays("is"):
		return "the condition for it does not hold"
	case (whole || !none && r.part == "basic") && !r.hasOnlyReal() && !r.pays("not"):
		return "it is excluded"
	case whole && none && !r.pays("absent"):
		return "present: false does not hold"
	case !none && !r.pays("present"):
		return "present: true does not hold"
	}
	return ""
}

// hasOnlyReal reports whether nothing but the known value was read, perhaps twice, or
// undecoded.
func (r *heard) hasOnlyReal() bool {
	for _, text := range r.seen {
		for part := range strings.SplitSeq(text, ", ") {
			if plain, err := url.QueryUnescape(part); err != nil || strings.TrimSuffix(plain, ":pass") != realValue {
				return false
			}
		}
	}
	return len(r.seen) > 0
}

func asBudget(value string) string { return fmt.Sprintf("of %q", value) }

// textsOf returns all texts that a server has read.
func textsOf(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		var all []string
		for _, one := range v {
			all = append(all, textsOf(one)...)
		}
		return all
	case map[string]any:
		var all []string
		for _, one := range v {
			all = append(all, textsOf(one)...)
		}
		return all
	case nil:
		return nil
	}
	return []string{fmt.Sprint(v)}
}

// spellValues sends requests to the doors of one server.
func spellValues(t *testing.T, doors ...*valueDoor) {
	t.Helper()
	const seed = 16
	r := rand.New(rand.NewPCG(uint64(*spellings), seed))
	reached, real, failures := 0, 0, 0
	for n := range *spellings {
		s, d := spelledValue(r), doors[n%len(doors)]
		o := d.ask(t, s)
		if o.reached {
			reached++
		}
		if o.real {
			real++
		}
		if o.wrong == "" {
			continue
		}
		small := s.shrunk(func(s spelled) bool { return d.ask(t, s).wrong != "" })
		t.Errorf("case %d of seed %d,%d: %s\nfrom %s\n%s", n, *spellings, seed, small, s, d.ask(t, small).wrong)
		if failures++; failures == 20 {
			t.Fatal("and perhaps more")
		}
	}
	t.Logf("%d spellings: %d reached the server, which read the known value in %d", *spellings, reached, real)
	if real*20 < *spellings || real*10 > reached*9 {
		t.Error("the test tests nothing")
	}
}

// answerValues answers with what net/http reads in a request, like
// testdata/upstreams/server.js.
func answerValues(w http.ResponseWriter, r *http.Request) {
	each := func(values []string) map[string]any {
		said := map[string]any{"first": nil}
		for i, value := range values {
			if said[strconv.Itoa(i)] = value; i == 0 {
				said["first"], said["trimmed"] = value, strings.TrimSpace(value)
			}
		}
		return said
	}
	var cookies []string
	for _, c := range r.CookiesNamed("session") {
		cookies = append(cookies, c.Value)
	}
	field := r.Header.Get("Authorization")
	said := map[string]map[string]any{
		"query": each(r.URL.Query()["user_id"]), "cookie": each(cookies), "field": each(r.Header["X-Api-Key"]),
		"bearer": {"second": nil, "cut": nil}, "basic": {"own": nil},
	}
	if words := strings.Fields(field); len(words) > 1 {
		said["bearer"]["second"] = words[1]
	}
	if token, ok := strings.CutPrefix(field, "Bearer "); ok {
		said["bearer"]["cut"] = token
	}
	if user, password, ok := r.BasicAuth(); ok {
		said["basic"]["own"] = user + ":" + password
	}
	_ = json.NewEncoder(w).Encode(said)
}

// startNginxOfValues starts nginx, which answers with the values of its variables.
func startNginxOfValues(t *testing.T) string {
	t.Helper()
	nginx, address, folder := program(t, "nginx"), redistest.FreeAddress(t), t.TempDir()
	text := strings.NewReplacer("FOLDER", folder, "ADDRESS", address).Replace(readFile(t, "testdata/upstreams/nginx-values.conf"))
	writeFile(t, folder+"/nginx.conf", text)
	return serveAt(t, address, exec.CommandContext(context.Background(), nginx, "-p", folder, "-c", "nginx.conf", "-e", "stderr"))
}

// saidBy returns what each reader read in each part, nil for nothing. It is empty if
// the request did not reach the server.
func saidBy(body string) (said map[string]map[string]any) {
	if err := json.Unmarshal([]byte(body), &said); err == nil || !strings.HasPrefix(body, "query ") {
		return said
	}
	said = map[string]map[string]any{} // nginx does not distinguish empty from missing values
	for line := range strings.Lines(body) {
		if part, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " "); text != "" {
			said[part] = map[string]any{"own": strings.TrimPrefix(text, "Bearer ")}
		}
	}
	return said
}
