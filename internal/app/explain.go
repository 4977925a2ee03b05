package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store/memory"
)

// ExplainRequest is a request that somebody wants explained.
type ExplainRequest struct {
	// Domain may be empty where the rules have only one.
	Domain string
	// Cost is what the request takes.
	Cost int64
	// Rule, if not empty, is the only rule to be listed.
	Rule string

	attributes  map[rules.Attribute]string
	descriptors []descriptorBody
}

type descriptorBody struct {
	Entries []entryBody `json:"entries"`
}

type entryBody struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Set gives the request an attribute, named as rules name it.
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
		return fmt.Errorf("%s is given twice", a)
	}
	q.attributes[a] = value
	return nil
}

// SetPath gives the request a path as it stands in a URL: percent-encoded, and
// with a query, if there is one.
func (q *ExplainRequest) SetPath(text string) error {
	if !strings.HasPrefix(text, "/") {
		return fmt.Errorf("%q does not begin with /", text)
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

// AddDescriptor gives the request a descriptor: key=value,key=value.
func (q *ExplainRequest) AddDescriptor(text string) error {
	entries, err := rules.ParseDescriptor(text)
	if err != nil {
		return err
	}
	var d descriptorBody
	for _, e := range entries {
		d.Entries = append(d.Entries, entryBody(e))
	}
	q.descriptors = append(q.descriptors, d)
	return nil
}

// body returns q as POST /v1/explain takes it.
func (q *ExplainRequest) body() ([]byte, error) {
	body := struct {
		Domain      string            `json:"domain"`
		Cost        int64             `json:"cost"`
		Rule        string            `json:"rule,omitempty"`
		Attributes  map[string]string `json:"attributes,omitempty"`
		Descriptors []descriptorBody  `json:"descriptors,omitempty"`
	}{q.Domain, q.Cost, q.Rule, nil, q.descriptors}
	if len(q.attributes) > 0 {
		body.Attributes = map[string]string{}
		for a, value := range q.attributes {
			body.Attributes[a.String()] = value
		}
	}
	return json.Marshal(body)
}

// Explained is an explanation and where its counts are from.
type Explained struct {
	httpapi.Explanation
	// Counts is "unused" if they are those of a store that nobody has used
	// yet, or "live".
	Counts string `json:"counts"`
}

// The parts of an Explained, for those who print it.
type (
	// ExplainedRule is what one rule makes of the request.
	ExplainedRule = httpapi.ExplainedRule
	// KeyPart is one part of what a rule counts by.
	KeyPart = httpapi.KeyPart
	// LimitCount is how much of a limit is used.
	LimitCount = httpapi.LimitCount
)

// ExplainFiles explains q by the rules of files, as if no request had come
// before. The error is a diagnostic.Problems if a file is wrong.
func ExplainFiles(ctx context.Context, options rules.Options, q ExplainRequest, paths ...string) (*Explained, error) {
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
	store := memory.New(memory.MaxKeys(1))
	defer func() { _ = store.Close() }()
	handler := httpapi.New(httpapi.Options{
		Engine: engine.New(store, rs), Clients: clients, Logger: slog.New(slog.DiscardHandler),
	})
	body, err := q.body()
	if err != nil {
		return nil, err
	}
	x, err := handler.Explain(ctx, body)
	if err != nil {
		return nil, err
	}
	return &Explained{*x, "unused"}, nil
}

// checkRule says so if no rule has the name that q asks for.
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

// unknownName is an error with the nearest name, or with all.
func unknownName(what, name string, known []string) error {
	hint := fmt.Sprintf("there are %s", strings.Join(known, ", "))
	if near := nearest.Word(name, known); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	} else if len(known) > 20 {
		hint = ""
	}
	return &config.SourceError{Source: "--" + what, Message: fmt.Sprintf("there is no %s %q", what, name), Hint: hint}
}

// domainOf returns the domain of that name, or the only one there is.
func domainOf(rs *rules.Ruleset, name string) (string, error) {
	known := rs.Domains()
	switch {
	case name == "" && len(known) == 1:
		return known[0], nil
	case name == "" && len(known) == 0:
		return "", &config.SourceError{Source: "--rules", Message: "there are no rules", Hint: "name a file or folder with rules"}
	case name == "":
		return "", &config.SourceError{
			Source: "--domain", Message: "the rules have several domains, and none is named",
			Hint: "name one of " + strings.Join(known, ", "),
		}
	}
	if slices.Contains(known, name) {
		return name, nil
	}
	return "", unknownName("domain", name, known)
}

// maxAnswer is the largest answer of a server that is read, in bytes.
const maxAnswer = 64 << 20

// Server is the HTTP API of a running server, and how it is asked.
type Server struct {
	// Address is its URL, such as http://127.0.0.1:8080.
	Address string
	// Token is what it wants to know; empty if nothing.
	Token string
	// Client asks it. Required.
	Client *http.Client
}

// serverTimeout is how long an answer of a Server may take.
const serverTimeout = 30 * time.Second

// ExplainServer asks a running server.
func ExplainServer(ctx context.Context, s Server, q ExplainRequest) (*Explained, error) {
	server := s.Address
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	body, err := q.body()
	if err != nil {
		return nil, err
	}
	base, err := url.Parse(server)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		if strings.Contains(server, "@") { // perhaps behind a password
			server = "it"
		} else {
			server = strconv.Quote(server)
		}
		return nil, &config.SourceError{
			Source: "--server", Message: server + " is not the address of a server",
			Hint: "write it as http://127.0.0.1:8080",
		}
	}
	server = base.Redacted()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base.JoinPath("v1/explain").String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	if s.Token != "" {
		r.Header.Set("Authorization", "Bearer "+s.Token)
	}
	answered, err := s.Client.Do(r)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err
		}
		return nil, &config.SourceError{
			Source: server, Message: err.Error(), Hint: "is headgate serve running there? It is the address of listen.api",
		}
	}
	defer func() { _ = answered.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answered.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", server, err)
	}
	if answered.StatusCode != http.StatusOK {
		var problem struct {
			Detail string `json:"detail"`
		}
		_ = json.Unmarshal(text, &problem) // the status says enough
		return nil, fmt.Errorf("%s answers %s: %s", server, answered.Status, problem.Detail)
	}
	x := &Explained{Counts: "live"}
	if err := json.Unmarshal(text, x); err != nil {
		return nil, fmt.Errorf("%s does not answer as Headgate does: %w", server, err)
	}
	return x, nil
}

// RuleNames are what one may name in rule files.
type RuleNames struct{ Domains, Rules []string }

// NamesOf returns the names of the domains in rule files, and of the rules in
// the domain, or in all if it is empty: for shells to complete. Of files that
// are wrong there are none.
func NamesOf(domain string, paths ...string) RuleNames {
	rs, err := rules.Load(paths...)
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
