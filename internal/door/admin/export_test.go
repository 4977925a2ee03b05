package admin

import (
	"net/http"
)

// Guarded returns the door with these routes instead of its own.
func Guarded(o Options, routes map[string]http.Handler) http.Handler {
	o.IsProbe = func(r *http.Request) bool { return r.Method == http.MethodGet }
	return guarded(&o, routes)
}

// Answered answers with v as JSON, as all operations do.
func Answered(v any) http.Handler {
	return reply(func(http.ResponseWriter, *http.Request) (any, error) { return v, nil })
}
