package app

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/observe/metrics"
)

// serveEvents answers GET /v1/events.
func (a *App) serveEvents(w http.ResponseWriter, r *http.Request) {
	if !onlyParameters(w, r, "domain", "rule", "outcome", "key", "sample") {
		return
	}
	q := r.URL.Query()
	f := metrics.Filter{
		Domain: q.Get("domain"), Rule: q.Get("rule"), Outcome: q.Get("outcome"), Key: q.Get("key"), Sample: 1,
	}
	var known []string
	for o := range engine.Outcomes {
		known = append(known, o.String())
	}
	if f.Outcome != "" && !slices.Contains(known, f.Outcome) {
		wrongParameter(w, "outcome", f.Outcome, known)
		return
	}
	if text := q.Get("sample"); text != "" {
		share, err := strconv.ParseFloat(text, 64)
		if err != nil || !(share > 0 && share <= 1) {
			answer.Problem(w, http.StatusBadRequest, fmt.Sprintf("sample is %q; it must be a number above 0, at most 1", text))
			return
		}
		f.Sample = share
	}
	if !a.events.Serve(w, r, f) {
		answer.Problem(w, http.StatusServiceUnavailable, "too many are watching events already")
	}
}

// onlyParameters refuses a request with query parameters other than known.
func onlyParameters(w http.ResponseWriter, r *http.Request, known ...string) bool {
	for name, values := range r.URL.Query() {
		if !slices.Contains(known, name) {
			answer.Problem(w, http.StatusBadRequest, fmt.Sprintf("there is no parameter %q%s", name, nearestOf(name, known)))
			return false
		}
		if len(values) > 1 {
			answer.Problem(w, http.StatusBadRequest, fmt.Sprintf("the parameter %q is there twice", name))
			return false
		}
	}
	return true
}

// wrongParameter answers a request whose parameter has none of the known values.
func wrongParameter(w http.ResponseWriter, name, value string, known []string) {
	answer.Problem(w, http.StatusBadRequest, fmt.Sprintf("%s is %q%s", name, value, nearestOf(value, known)))
}

// nearestOf says what may have been meant, or what there is.
func nearestOf(text string, known []string) string {
	if near := config.Nearest(text, known); near != "" {
		return fmt.Sprintf(", did you mean %q?", near)
	}
	const most = 10
	switch list := strings.Join(known[:min(most, len(known))], ", "); {
	case len(known) == 0:
		return ""
	case len(known) > most:
		return fmt.Sprintf("; there are %s and %d more", list, len(known)-most)
	default:
		return cmp.Or("; there are "+list, "")
	}
}
