package rules

import (
	"slices"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// headerMap reads the headers of an answer.
func (p *parser) headerMap(n *yamltext.Node) map[string]string {
	if n.Kind != yamltext.Map {
		p.Errorf(n, "", "\"headers\" must be a mapping of names to values, not %s", n.Kind)
		return nil
	}
	headers := make(map[string]string, len(n.Pairs))
	for _, field := range n.Pairs {
		name, ok := canonicalHeader(field.Key.Text)
		switch {
		case !ok:
			p.Errorf(field.Key, "", "%s is not a header name", clip.Quote(field.Key.Text))
		case slices.Contains(framingHeaders(), name):
			p.Errorf(field.Key, "", "the header %s belongs to the connection and cannot be set", name)
		case name == "Content-Type":
			p.Errorf(field.Key, "", "set the content type as content_type, beside the body")
		case field.Value.Kind == yamltext.List || field.Value.Kind == yamltext.Map || field.Value.Kind == yamltext.Null:
			p.Errorf(field.Value, "", "the header %s must be text, not %s", name, field.Value.Kind)
		case !isHeaderValue(field.Value.Text):
			p.Errorf(field.Value, "", "the value of the header %s has characters that no header may have", name)
		default:
			headers[name] = field.Value.Text
		}
	}
	return headers
}

// framingHeaders are those that would break the answer's framing.
func framingHeaders() []string {
	return []string{"Connection", "Content-Length", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}
}

// isHeaderValue reports whether text may be the value of a header: no control
// characters, so that nobody can end the header early.
func isHeaderValue(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
