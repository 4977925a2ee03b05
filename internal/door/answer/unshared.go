package answer

import (
	"net/http"
	"slices"
	"strings"
)

// unshare keeps shared caches from storing an answer that is meant for one client: to
// others it would be wrong. It changes Cache-Control only as far as that takes. Without
// Cache-Control and Expires, caches store no answer that has no Last-Modified.
func unshare(h http.Header) {
	values := h["Cache-Control"]
	if values == nil && h["Expires"] == nil {
		return
	}
	directives := []string{"private"}
	var names []string
	for text := range strings.SplitSeq(strings.Join(values, ","), ",") {
		text = strings.TrimSpace(text)
		switch name, _, hasArgument := strings.Cut(strings.ToLower(text), "="); {
		case !hasArgument && (name == "private" || name == "no-store" || name == "no-cache"):
			return // with an argument they are about some header fields
		case name == "" || name == "public" || name == "private" || name == "s-maxage":
			names = append(names, name)
		default:
			names = append(names, name)
			directives = append(directives, text)
		}
	}
	usesStale := func(name string) bool { return name == "s-maxage" || strings.HasPrefix(name, "stale-") }
	if slices.Contains(directives, "max-age=0") && !slices.ContainsFunc(names, usesStale) {
		return
	}
	h["Cache-Control"] = []string{strings.Join(directives, ", ")}
}
