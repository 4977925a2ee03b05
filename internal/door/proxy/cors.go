package proxy

import (
	"net/http"
	"slices"
)

// CORS says which pages of other origins may read our refusals and header fields.
// The upstream decides what they may read of its own answers.
type CORS struct {
	Origins        []string // origins of the pages, such as https://app.example, or "*"
	PassPreflights bool     // lets their preflight requests pass uncounted

	fields []string // the value of Access-Control-Expose-Headers
}

const (
	allowOrigin      = "Access-Control-Allow-Origin"
	allowCredentials = "Access-Control-Allow-Credentials"
	exposeHeaders    = "Access-Control-Expose-Headers"
)

// origin returns the value to allow for the origin of r, or "" if it may read nothing.
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

// free reports whether r is a preflight request that is not counted.
func (c *CORS) free(r *http.Request, origin string) bool {
	return origin != "" && c.PassPreflights && r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}

// admit lets pages of origin read our own answer.
func (c *CORS) admit(h http.Header, origin string) {
	h[allowOrigin] = []string{origin}
	if origin != "*" {
		h[allowCredentials] = []string{"true"}
	}
	h[exposeHeaders] = c.fields
	h.Add("Vary", "Origin")
}

// withdraw reverts admit, for an answer that is not ours.
func (c *CORS) withdraw(h http.Header) {
	for _, name := range []string{allowOrigin, allowCredentials, exposeHeaders, "Vary"} {
		delete(h, name)
	}
}

// expose lets pages that may read the upstream's answer read our fields too.
func (c *CORS) expose(upstream http.Header) {
	if upstream.Get(allowOrigin) != "" {
		upstream.Add(exposeHeaders, c.fields[0])
	}
}
