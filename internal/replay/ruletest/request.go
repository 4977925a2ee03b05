package ruletest

import (
	"strings"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/described"
	"github.com/headgate/headgate/internal/rules"
)

// request returns the attributes of a step as a request. The file has been checked,
// so that each of them is right.
func (s *Step) request(clients *client.Resolver) *described.Request {
	q := new(described.Request)
	for _, a := range s.Attributes {
		q.Add(a.Attribute, a.Value, clients)
	}
	return q
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
