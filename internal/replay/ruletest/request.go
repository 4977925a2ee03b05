package ruletest

import (
	"net/netip"
	"strings"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
)

// request is the rules.Request of a step. Clients' addresses are grouped as
// every door groups them.
type request struct {
	attributes []Attribute
	clients    *client.Resolver
}

// Attribute implements rules.Request.
func (r *request) Attribute(a rules.Attribute) (value string, ok bool) {
	for i := range r.attributes {
		if r.attributes[i].Attribute != a {
			continue
		}
		if a.Kind == rules.ClientIP {
			return r.clients.Group(r.ClientIP()), true
		}
		return r.attributes[i].Value, true
	}
	return "", false
}

// ClientIP implements rules.Request.
func (r *request) ClientIP() netip.Addr {
	for i := range r.attributes {
		if r.attributes[i].Kind == rules.ClientIP {
			address, err := netip.ParseAddr(r.attributes[i].Value)
			if err != nil {
				return netip.Addr{} // the file has been checked
			}
			return address.Unmap()
		}
	}
	return netip.Addr{}
}

// describe writes the request of a step for people.
func describe(s *Step) string {
	var out []string
	for _, a := range s.Attributes {
		switch a.Kind {
		case rules.Method, rules.Path:
			out = append(out, a.Value)
		case rules.Other, rules.Host, rules.ClientIP, rules.Header, rules.Query, rules.Cookie, rules.JWT:
			out = append(out, a.String()+"="+a.Value)
		}
	}
	for _, entries := range s.Descriptors {
		var parts []string
		for _, e := range entries {
			parts = append(parts, e.Key+"="+e.Value)
		}
		out = append(out, "("+strings.Join(parts, ", ")+")")
	}
	const most = 120
	return clip.Text(strings.ToValidUTF8(strings.Join(out, " "), ""), most)
}
