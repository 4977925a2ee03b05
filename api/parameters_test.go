package api_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestParameters: the parameters of a query are those that its door names to a caller with
// another one, which is answered with 400.
func TestParameters(t *testing.T) {
	c := &checker{doors: started(t)}
	named := regexp.MustCompile(`^unknown (?:parameter|setting) "xyzzy"[^;]*(?:; known are (.*))?$`)
	found := 0
	for _, o := range operations() {
		for door := range strings.FieldsSeq(o.door) {
			status, _, text := c.send(t, strings.ToUpper(o.method), "http://"+c.doors[door]+o.path+"?xyzzy", "")
			var said struct{ Detail string }
			if status != http.StatusBadRequest || json.Unmarshal(text, &said) != nil || !named.MatchString(said.Detail) {
				if len(o.query) > 0 && o.path != "/readyz" {
					t.Errorf("%s %s: cannot tell which parameters are known: %d %s", o.method, o.path, status, text)
				}
				continue
			}
			known := regexp.MustCompile(`\w+`).FindAllString(strings.Replace(named.FindStringSubmatch(said.Detail)[1], " and ", " ", 1), -1)
			var want []string
			for _, p := range o.query {
				want = append(want, p.name)
			}
			slices.Sort(known)
			slices.Sort(want)
			if !slices.Equal(known, want) {
				t.Errorf("%s %s has the parameters %q, the document %q", o.method, o.path, known, want)
			}
			if !slices.ContainsFunc(o.answers, func(a reply) bool { return a.status == status }) {
				t.Errorf("%s %s: the document does not have %d", o.method, o.path, status)
			}
			found++
		}
	}
	if found < 12 {
		t.Errorf("only %d operations compared", found)
	}
}

// TestKeyBody: the fields for single keys are those that some action names.
func TestKeyBody(t *testing.T) {
	whole, _ := plain(document()).(map[string]any)
	components, _ := whole["components"].(map[string]any)
	list, _ := components["schemas"].(map[string]any)
	want, _ := list["KeyBody"].(map[string]any)["properties"].(map[string]any)
	c := &checker{doors: started(t)}
	known := map[string]bool{}
	for _, o := range operations() {
		if o.body != "KeyBody" {
			continue
		}
		_, _, text := c.send(t, "POST", "http://"+c.doors["admin"]+o.path, `{"xyzzy":1}`)
		var said struct{ Detail string }
		err := json.Unmarshal(text, &said)
		_, names, ok := strings.Cut(said.Detail, "; known are ")
		if err != nil || !ok {
			t.Errorf("%s: %v %s", o.path, err, text)
		}
		for name := range strings.SplitSeq(names, ", ") {
			if known[name] = true; want[name] == nil {
				t.Errorf("%s: the document does not have %q", o.path, name)
			}
		}
	}
	for name := range want {
		if !known[name] {
			t.Errorf("%q of the document is known to no action", name)
		}
	}
}
