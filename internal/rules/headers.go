package rules

import (
	"fmt"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// headersChoice is a domain's own dialect of header fields.
type headersChoice struct {
	dialect string // empty if it has none
	at      string // file:line:column
}

// dialects are the names of the dialects of header fields. Package answer, which
// knows what they mean, has the same, by a test.
func dialects() []string {
	return []string{"default", "ietf", "github", "openai", "draft-03", "none"}
}

// parseHeaders reads the headers of a document: the dialect of its domain, on
// which all documents of the domain have to agree. d is nil if the domain is
// unknown.
func (p *parser) parseHeaders(n *yamltext.Node, d *domain) {
	word, ok := p.Choice(n, "headers", dialects()...)
	switch {
	case !ok || d == nil:
	case d.headers.dialect == "":
		d.headers = headersChoice{word, fmt.Sprintf("%s:%d:%d", p.File, n.Line, n.Column)}
	case d.headers.dialect != word:
		p.Errorf(n, "a domain speaks one dialect", "\"headers\" is %s for this domain already: %s", clip.Quote(d.headers.dialect), d.headers.at)
	}
}
