package rules

import "strings"

// Conditions returns in one line which requests r applies to, for people, such
// as "method is POST, path is /v1/**". It is empty for a rule that applies to
// all.
func (r *Rule) Conditions() string {
	var out []string
	for i := range r.steps {
		out = append(out, r.steps[i].describe())
	}
	out = r.match.method.summary(out, "method")
	out = r.match.path.summary(out, "path")
	out = r.match.host.summary(out, "host")
	out = r.match.addresses.summary(out, "client_ip is ")
	out = r.match.notAddresses.summary(out, "client_ip is not ")
	for i := range r.match.values {
		v := &r.match.values[i]
		switch name := v.attribute.String(); v.presence {
		case Present:
			out = append(out, name+" is there")
		case Absent:
			out = append(out, name+" is absent")
		case AnyPresence:
			out = v.summary(out, name)
		}
	}
	return strings.Join(out, ", ")
}

// summary appends what c says about an attribute, if it says anything.
func (c *textCondition) summary(out []string, name string) []string {
	if len(c.any.all) > 0 {
		out = append(out, name+" is "+c.any.describe(""))
	}
	if len(c.not.all) > 0 {
		out = append(out, name+" is not "+c.not.describe(""))
	}
	return out
}

// summary appends the addresses, if there are any.
func (s *addressSet) summary(out []string, begin string) []string {
	var texts []string
	for _, p := range s.prefixes {
		if p.IsSingleIP() {
			texts = append(texts, p.Addr().String())
		} else {
			texts = append(texts, p.String())
		}
	}
	if len(texts) == 0 {
		return out
	}
	return append(out, begin+oneOf(texts))
}
