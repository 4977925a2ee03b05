package app

import (
	"cmp"
	_ "embed"
	"fmt"
	"net/http"
	"net/url"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

//go:embed quickstart.yaml
var quickstartRules []byte

// Quickstart adds to o rules from the binary and a demo backend behind the proxy. It
// changes o.Config.
func Quickstart(o Options) Options {
	o.BuiltIn = []rulefile.Source{{Name: "quickstart.yaml", Data: quickstartRules}}
	o.Backend = http.HandlerFunc(demo)
	o.Config.Rules = nil
	c := config.Own[proxy.Settings](o.Config)
	c.Upstream = &url.URL{Scheme: "http", Host: "localhost"} // replaced by Backend
	c.Domain = cmp.Or(c.Domain, "api")
	return o
}

// QuickstartRules returns the rule file of the quickstart.
func QuickstartRules() string { return string(quickstartRules) }

// demo is the backend of the quickstart.
func demo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	switch r.URL.Path {
	case "/login":
		_, _ = fmt.Fprintln(w, "the demo backend: welcome")
	default:
		_, _ = fmt.Fprintf(w, "the demo backend: %s %q\n", r.Method, r.URL.Path) //nolint:gosec // plain text, and quoted
	}
}
