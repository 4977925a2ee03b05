package ruletest

import (
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// AnswerKeys returns the keys of the answer to a step.
func AnswerKeys() []string { return []string{"status", "grpc", "headers"} }

// answer reads the answer to a request, for rules with charge_on.
func (p *testParser) answer(n *yamltext.Node) *rules.Answer {
	a := &rules.Answer{Header: map[string][]string{}}
	f := p.Fields(n, "answer", AnswerKeys())
	if n.Kind == yamltext.Map && len(n.Pairs) == 0 {
		p.Errorf(n, "for example answer: {status: 401}", "the answer is empty")
	}
	var status int64
	if p.IntegerOf(f, "status", 100, 599, &status) {
		a.Status = int(status)
	}
	if n := f.Get("grpc"); n != nil {
		if name, ok := p.Choice(n, "grpc", rules.CodeNames()...); ok {
			a.Code, _ = rules.ParseCode(name)
		}
	}
	headers := f.Get("headers")
	if headers == nil {
		return a
	}
	if headers.Kind != yamltext.Map {
		p.Errorf(headers, "for example headers: {X-Login: failed}", "\"headers\" must be a mapping (name: value), not %s", headers.Kind)
		return a
	}
	for _, field := range headers.Pairs {
		name, ok := rules.CanonicalHeader(field.Key.Text)
		if !ok {
			p.Errorf(field.Key, "", "invalid header name %s", clip.Quote(field.Key.Text))
			continue
		}
		for _, value := range p.Texts(field.Value, name) {
			a.Header[name] = append(a.Header[name], value.Text)
		}
	}
	return a
}
