package proxy

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/httprequest"
	"github.com/headgate/headgate/internal/door/selfservice"
	"github.com/headgate/headgate/internal/request/client"
)

// limits returns the path where callers read their limits, and whether that is so only
// while header fields tell the same.
func (s *Settings) limits() (path string, whileTold bool) {
	switch s.LimitsPath {
	case "":
		return selfservice.DefaultPath, true
	case config.Off:
		return "", false
	}
	return s.LimitsPath, false
}

// limitsPath parses the path where callers read their limits.
func limitsPath(v string) (string, error) {
	if v == config.Off {
		return v, nil
	}
	if len(v) < 2 || v[0] != '/' || strings.ContainsAny(v, `?#%\ ;`) || strings.Contains(v, "//") || strings.Contains(v+"/", "/./") || strings.Contains(v+"/", "/../") {
		return "", config.Hinted(fmt.Sprintf("%q is not a valid path", v), "write "+selfservice.DefaultPath+`, or "off"`)
	}
	return v, nil
}

// tellsLimits reports whether requests for the limits of their sender are answered here.
func (p *Proxy) tellsLimits() bool {
	return !p.options.LimitsWhileTold || p.options.Dialect.Or(p.options.Engine.Rules().Headers(p.options.Domain())) != answer.None
}

// tellLimits answers a request for the limits of its sender. It is not counted by rules.
func (p *Proxy) tellLimits(w http.ResponseWriter, r *http.Request) {
	defer answer.Unwanted(w, r, whole(r.Body))()
	at := p.options.Clock()
	var q httprequest.Request
	q.SetRequest(r, p.options.Clients, client.Identify(p.options.Tokens, r.Header, at))
	if failed := p.limits.Serve(w, r, &q, p.options.Domain(), at); failed != nil {
		p.options.Report(r.Context(), p.options.Domain(), failed)
	}
}
