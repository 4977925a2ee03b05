package admin

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/rules"
)

// hidden replaces parts of queued requests that operators must not see.
const hidden = "(hidden)"

// idempotencyField is the header field with the sender's name for a request.
const idempotencyField = "Idempotency-Key"

// veils say which parts of queued requests to hide from operators, for one answer.
type veils struct {
	options *Options
	domains map[string]*domainVeil
}

// domainVeil says what to hide in every request of a domain.
type domainVeil struct {
	veil

	rules map[string]*rules.Rule // by name
}

// veil says what to hide in a queued request: credentials, attributes that a rule
// hashes and, if operators see hashed keys, all attributes that a rule counts by.
type veil struct {
	header     map[string]bool // by canonical names
	query      []string        // names of parameters
	allQuery   bool
	path, host bool
}

func newVeils(o *Options) *veils { return &veils{options: o, domains: map[string]*domainVeil{}} }

// of returns what to hide in an entry: the header fields and parameters that any rule
// of its domain hides, and whatever else its own rules hide.
func (v *veils) of(e *queue.Entry) *veil {
	d := v.domains[e.Domain]
	if d == nil {
		d = v.options.domainVeil(e.Domain)
		v.domains[e.Domain] = d
	}
	own := veil{header: maps.Clone(d.header), query: slices.Clone(d.query)}
	names := []string{e.Rule}
	for _, c := range e.Claims {
		names = append(names, c.Rule)
	}
	for _, name := range names {
		r := d.rules[name]
		if r == nil {
			own.coversGone(e, v.options.Keys.Hashes)
			continue
		}
		for _, k := range r.Key {
			if k.Hashed || v.options.Keys.Hashes {
				own.covers(k.Attribute)
			}
		}
	}
	return &own
}

// domainVeil returns the veil of a domain under the active rules.
func (o *Options) domainVeil(domain string) *domainVeil {
	d := &domainVeil{rules: map[string]*rules.Rule{}, veil: veil{header: map[string]bool{
		"Authorization": true, "Cookie": true, "X-Api-Key": true, "Proxy-Authorization": true,
	}}}
	for _, name := range o.Secrets {
		d.header[http.CanonicalHeaderKey(name)] = true
	}
	for _, r := range o.Engine.Rules().Rules() {
		if r.Domain != domain {
			continue
		}
		d.rules[r.Name] = r
		for _, k := range r.Key {
			if (k.Hashed || o.Keys.Hashes) && (k.Kind == rules.Header || k.Kind == rules.Query) {
				d.covers(k.Attribute)
			}
		}
	}
	return d
}

// covers adds an attribute to hide.
func (v *veil) covers(a rules.Attribute) {
	switch a.Kind {
	case rules.Header:
		v.header[http.CanonicalHeaderKey(a.Name)] = true
	case rules.Query:
		v.query = append(v.query, a.Name)
	case rules.Path:
		v.path = true
	case rules.Host:
		v.host, v.header["X-Forwarded-Host"] = true, true
	case rules.ClientIP:
		for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip"} {
			v.header[name] = true
		}
	case rules.Cookie, rules.JWT: // always hidden
	case rules.Method, rules.Other: // not secret, or not part of an HTTP request
	}
}

// coversGone hides everything that a deleted rule may have counted by, if it hashed
// its key: it is unknown which attributes those were.
func (v *veil) coversGone(e *queue.Entry, hashed bool) { //nolint:revive // a fact, not a mode
	parts, ok := rules.SplitKey(e.Key)
	for i := range parts {
		hashed = hashed || strings.HasPrefix(parts[i].Text(), "hash:")
	}
	if ok && !hashed {
		return
	}
	v.path, v.host, v.allQuery = true, true, true
	for name := range e.Header {
		v.header[http.CanonicalHeaderKey(name)] = true
	}
}

// over hides parts of told, except its header: see seenHeader.
func (v *veil) over(told *QueueItem) {
	if v.host {
		told.Host = hidden
	}
	if v.header[idempotencyField] && told.IdempotencyKey != "" {
		told.IdempotencyKey = hidden
	}
	path, query, asked := strings.Cut(told.URI, "?")
	if v.path {
		path = hidden
	}
	if told.URI = path; asked {
		told.URI += "?" + v.overQuery(query)
	}
}

// overQuery hides parameters named in v.query, in upper or lower case, and those whose
// names different servers may read differently.
func (v *veil) overQuery(query string) string {
	switch {
	case v.allQuery:
		return hidden
	case len(v.query) == 0:
		return query
	}
	pieces := strings.Split(query, "&")
	for i, piece := range pieces {
		name, _, _ := strings.Cut(piece, "=")
		plain, err := url.QueryUnescape(name)
		if err != nil || !isPlainName(plain) {
			pieces[i] = hidden
			continue
		}
		if slices.ContainsFunc(v.query, func(n string) bool { return strings.EqualFold(n, plain) }) {
			pieces[i] = name + "=" + hidden
		}
	}
	return strings.Join(pieces, "&")
}

func isPlainName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
	})
}

// seenHeader returns the header of an entry as operators see it.
func (v *veil) seenHeader(e *queue.Entry) http.Header {
	seen := e.Header.Clone()
	for name := range seen {
		if v.header[http.CanonicalHeaderKey(name)] {
			seen[name] = []string{hidden}
		}
	}
	return seen
}
