package proxy

import (
	"net/http"
	"slices"
)

// CORS says which pages of other origins may read our refusals and header
// fields. What they may read of the upstream's answers is the upstream's to say.
type CORS struct {
	Origins        []string // the pages, such as https://app.example, or "*".
	PassPreflights bool     // lets their preflights pass without counting them

	fields []string // the value of Access-Control-Expose-Headers
}

const (
	allowCredentials = "Access-Control-Allow-Credentials"
	exposeHeaders    = "Access-Control-Expose-Headers"
)

// origin returns that of r, or an empty string if it is not among them.
func (c *CORS) origin(r *http.Request) string {
	if len(c.Origins) == 0 {
		return ""
	}
	origin := r.Header.Get("Origin")
	switch {
	case origin == "":
	case slices.Contains(c.Origins, origin):
		return origin
	case slices.Contains(c.Origins, "*"):
		return "*"
	}
	return ""
}

// free reports whether r, of origin, is a preflight that is not counted.
func (c *CORS) free(r *http.Request, origin string) bool {
	return origin != "" && c.PassPreflights && r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}

// admit lets pages of origin read an answer of our own.
func (c *CORS) admit(h http.Header, origin string) {
	h[allowOrigin] = []string{origin}
	if origin != "*" {
		h[allowCredentials] = []string{"true"}
	}
	h[exposeHeaders] = c.fields
	h.Add("Vary", "Origin")
}

// withdraw takes that back, for an answer that is not ours.
func (c *CORS) withdraw(h http.Header) {
	for _, name := range []string{allowOrigin, allowCredentials, exposeHeaders, "Vary"} {
		delete(h, name)
	}
}

// expose lets those read our fields whom the upstream lets read its answer.
func (c *CORS) expose(upstream http.Header) {
	if upstream.Get(allowOrigin) != "" {
		upstream.Add(exposeHeaders, c.fields[0])
	}
}
