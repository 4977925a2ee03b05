package admin

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/observe/metrics"
)

// live answers GET /v1/live.
func (d reports) live(w http.ResponseWriter, r *http.Request) {
	if onlyParameters(w, r) && !d.Live.Serve(w, r) {
		answer.Problem(w, http.StatusServiceUnavailable, "too many live views are open")
	}
}

// events answers GET /v1/events.
func (d reports) events(w http.ResponseWriter, r *http.Request) {
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
	if !d.Events.Serve(w, r, f) {
		answer.Problem(w, http.StatusServiceUnavailable, "too many are watching events already")
	}
}

// logLevel answers GET /v1/log-level.
func (d reports) logLevel(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]string{"level": levelName(d.LogLevel.Level())})
}

// setLogLevel answers PUT /v1/log-level, whose body is {"level":"debug"}.
func (d reports) setLogLevel(w http.ResponseWriter, r *http.Request) {
	body, ok := readBody(w, r)
	if !ok {
		return
	}
	var want struct {
		Level string `json:"level"`
	}
	if err := decode(bytes.NewReader(body), &want); err != nil {
		answer.Problem(w, http.StatusBadRequest, fmt.Sprintf(`the body must be {"level":"debug"} or so: %v`, err))
		return
	}
	names := []string{"debug", "info", "warn", "error"}
	for i, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if names[i] != want.Level {
			continue
		}
		old := d.LogLevel.Level()
		d.LogLevel.Set(level)
		d.Log.Warn("log level set", "level", want.Level, "was", levelName(old))
		d.logLevel(w, r)
		return
	}
	wrongParameter(w, "level", want.Level, names)
}

// levelName is the name that the configuration uses.
func levelName(l slog.Level) string {
	switch {
	case l < slog.LevelInfo:
		return "debug"
	case l < slog.LevelWarn:
		return "info"
	case l < slog.LevelError:
		return "warn"
	}
	return "error"
}
