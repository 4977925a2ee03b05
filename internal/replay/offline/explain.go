package offline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store/memory"
)

// ExplainRequest is a request to explain.
type ExplainRequest struct {
	Domain string // may be empty if the rules have only one
	Cost   int64  // of the request
	Rule   string // Rule, if not empty, is the only rule listed
	At     int64  // the time of the request, in microseconds since the Unix epoch; 0 is the store's

	attributes  map[rules.Attribute]string
	descriptors [][]rules.Entry
}

// Set sets an attribute of the request, named as in rules.
func (q *ExplainRequest) Set(name, value string) error {
	a, err := rules.ParseAttribute(name)
	if err != nil {
		return err
	}
	if a.Kind == rules.ClientIP {
		if address, err := netip.ParseAddr(value); err != nil || address.Zone() != "" {
			return fmt.Errorf("%q is not an IP address", value)
		}
	}
	if q.attributes == nil {
		q.attributes = map[rules.Attribute]string{}
	}
	if _, twice := q.attributes[a]; twice {
		return fmt.Errorf("duplicate %s", a)
	}
	q.attributes[a] = value
	return nil
}

// SetPath sets the path of the request as in a URL: percent-encoded, optionally
// with a query.
func (q *ExplainRequest) SetPath(text string) error {
	if !strings.HasPrefix(text, "/") {
		return fmt.Errorf("%q does not start with /", text)
	}
	u, err := url.ParseRequestURI(text)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err
		}
		return err
	}
	if err := q.Set("path", u.Path); err != nil {
		return err
	}
	for name, values := range u.Query() {
		if err := q.Set("query:"+name, values[0]); err != nil {
			return err
		}
	}
	return nil
}

// AddDescriptor adds a descriptor to the request: key=value,key=value.
func (q *ExplainRequest) AddDescriptor(text string) error {
	entries, err := rules.ParseDescriptor(text)
	if err != nil {
		return err
	}
	q.descriptors = append(q.descriptors, entries)
	return nil
}

// Explained is an explanation and the source of its counts.
type Explained struct {
	httpapi.Explanation
	Counts string `json:"counts"` // "unused" for those of an empty store, or "live"
}

// ExplainFiles explains q with rules from files, as if it were the first request.
// The error is a diagnostic.Problems if a file is wrong.
func ExplainFiles(ctx context.Context, options rulefile.Options, q ExplainRequest, paths ...string) (*Explained, error) {
	rs, err := options.Load(paths...)
	if err != nil {
		return nil, err
	}
	if q.Domain, err = domainOf(rs, q.Domain); err != nil {
		return nil, err
	}
	if err := checkRule(rs, &q); err != nil {
		return nil, err
	}
	clients, err := client.New(client.Config{})
	if err != nil {
		return nil, err
	}
	question, err := q.question(clients)
	if err != nil {
		return nil, err
	}
	store := memory.New(memory.WithMaxKeys(1))
	defer func() { _ = store.Close() }()
	question.Regions = options.Regions
	x, err := question.Explain(ctx, engine.New(store, rs))
	if err != nil {
		return nil, err
	}
	return &Explained{*x, "unused"}, nil
}

// question converts q for the engine.
func (q *ExplainRequest) question(clients *client.Resolver) (*httpapi.Question, error) {
	out := &httpapi.Question{Domain: q.Domain, Rule: q.Rule, Cost: q.Cost, At: q.At}
	switch {
	case q.Cost < 0:
		return nil, errors.New(`"cost" must not be negative`)
	case q.Cost > described.MaxCost:
		return nil, fmt.Errorf(`"cost" must be at most %d`, int64(described.MaxCost))
	}
	for a, value := range q.attributes {
		if must := out.Request.Add(a, value, clients); must != "" {
			return nil, fmt.Errorf("attribute %q %s, not %.64q", a, must, value)
		}
	}
	for _, entries := range q.descriptors {
		out.Descriptors = append(out.Descriptors, &described.Ordered{Given: rules.Descriptor{Entries: entries}, Clients: clients})
	}
	return out, nil
}

// checkRule returns an error if q names an unknown rule.
func checkRule(rs *rules.Ruleset, q *ExplainRequest) error {
	if q.Rule == "" || rs.Rule(q.Domain, q.Rule) != nil {
		return nil
	}
	var names []string
	for _, r := range rs.Rules() {
		if r.Domain == q.Domain {
			names = append(names, r.Name)
		}
	}
	return unknownName("rule", q.Rule, names)
}

// unknownName returns an error that hints at the nearest name, or lists all.
func unknownName(what, name string, known []string) error {
	hint := fmt.Sprintf("known: %s", strings.Join(known, ", "))
	if near := nearest.Word(name, known); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	} else if len(known) > 20 {
		hint = ""
	}
	return flagError(what, fmt.Sprintf("unknown %s %q", what, name), hint)
}

// domainOf returns the domain of that name, or the only one if name is empty.
func domainOf(rs *rules.Ruleset, name string) (string, error) {
	known := rs.Domains()
	switch {
	case name == "" && len(known) == 1:
		return known[0], nil
	case name == "" && len(known) == 0:
		return "", flagError("rules", "no rules found", "pass a rule file or a folder with rule files, or --address to ask a running server")
	case name == "":
		return "", flagError("domain", "the rules have several domains", "choose one of "+strings.Join(known, ", "))
	}
	if slices.Contains(known, name) {
		return name, nil
	}
	return "", unknownName("domain", name, known)
}

// RuleNames are what one may name in rule files.
type RuleNames struct{ Domains, Rules []string }

// NamesOf returns the names of the domains in rule files, and of the rules in
// the domain, or in all if it is empty: for shells to complete. Of files that
// are wrong there are none.
func NamesOf(domain string, paths ...string) RuleNames {
	rs, err := rulefile.Load(paths...)
	if err != nil {
		return RuleNames{}
	}
	n := RuleNames{Domains: rs.Domains()}
	for _, r := range rs.Rules() {
		if domain == "" || r.Domain == domain {
			n.Rules = append(n.Rules, r.Name)
		}
	}
	return n
}

// CallerBody returns the body of POST /v1/limits for the sender of q.
func (q *ExplainRequest) CallerBody() ([]byte, error) {
	body := struct {
		Domain     string            `json:"domain,omitempty"`
		Attributes map[string]string `json:"attributes"`
	}{q.Domain, map[string]string{}}
	for a, value := range q.attributes {
		body.Attributes[a.String()] = value
	}
	return json.Marshal(body)
}

// Body returns q as POST /v1/explain takes it.
func (q *ExplainRequest) Body() ([]byte, error) {
	type entry struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	}
	type descriptor struct {
		Entries []entry `json:"entries"`
	}
	body := struct {
		Domain      string            `json:"domain,omitempty"`
		Cost        int64             `json:"cost"`
		Rule        string            `json:"rule,omitempty"`
		Attributes  map[string]string `json:"attributes,omitempty"`
		Descriptors []descriptor      `json:"descriptors,omitempty"`
	}{Domain: q.Domain, Cost: q.Cost, Rule: q.Rule, Attributes: map[string]string{}}
	for a, value := range q.attributes {
		body.Attributes[a.String()] = value
	}
	for _, entries := range q.descriptors {
		var d descriptor
		for _, e := range entries {
			d.Entries = append(d.Entries, entry(e))
		}
		body.Descriptors = append(body.Descriptors, d)
	}
	return json.Marshal(body)
}
