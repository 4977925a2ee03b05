package admin

import (
	"net/http"
)

// Guarded returns the door with these routes instead of its own.
func Guarded(o Options, routes map[string]http.Handler) http.Handler {
	o.IsProbe = func(r *http.Request) bool { return r.Method == http.MethodGet }
	return guarded(&o, routes)
}
