package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/observe/telemetry"
	"github.com/headgate/headgate/internal/transport/overload"
	"github.com/headgate/headgate/store/failsafe"
	"github.com/headgate/headgate/store/memory"
)

// observation is what operators see of an App.
type observation struct {
	started   time.Time // as the App's clock has it
	began     time.Time // on the monotonic clock
	registry  *prometheus.Registry
	metrics   *metrics.Observer
	telemetry *telemetry.Telemetry // nil if nothing is sent
	opened    atomic.Bool          // all that there are metrics of is there
	otlp      *telemetry.Options
	events    *metrics.Stream
	live      live
	memory    *memory.Store   // the store, or the one that stands in for Redis
	safe      *failsafe.Store // nil without Redis

	storeError atomic.Pointer[string] // the last time the circuit opened
	keySecret  struct {
		once   sync.Once
		secret [32]byte
	}
}

type failsafeStats = failsafe.Stats

const closedCircuit = failsafe.Closed

// observationRoutes are those of the admin door.
func (a *App) observationRoutes() map[string]http.Handler {
	return map[string]http.Handler{
		"GET /metrics":      a.metricsHandler(),
		"GET /v1/status":    http.HandlerFunc(a.status),
		"GET /v1/rules":     http.HandlerFunc(a.listRules),
		"GET /v1/live":      a.shedding(overload.Extra, http.HandlerFunc(a.serveLive)),
		"GET /v1/events":    a.shedding(overload.Extra, http.HandlerFunc(a.serveEvents)),
		"GET /v1/top":       http.HandlerFunc(a.serveTop),
		"GET /v1/log-level": http.HandlerFunc(a.logLevel),
		"PUT /v1/log-level": http.HandlerFunc(a.setLogLevel),
	}
}

// logLevel answers GET /v1/log-level.
func (a *App) logLevel(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]string{"level": levelName(a.options.LogLevel.Level())})
}

// maxBody is how large the body of a request to the admin door may be.
const maxBody = 64 << 10

// setLogLevel answers PUT /v1/log-level, whose body is {"level":"debug"}.
func (a *App) setLogLevel(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		answer.Problem(w, http.StatusBadRequest, fmt.Sprintf("the body cannot be read: %v", err))
		return
	}
	var want struct {
		Level string `json:"level"`
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&want); err != nil {
		answer.Problem(w, http.StatusBadRequest, fmt.Sprintf(`the body must be {"level":"debug"} or so: %v`, err))
		return
	}
	names := []string{"debug", "info", "warn", "error"}
	for i, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if names[i] != want.Level {
			continue
		}
		old := a.options.LogLevel.Level()
		a.options.LogLevel.Set(level)
		a.log.Warn("log level set", "level", want.Level, "was", levelName(old))
		a.logLevel(w, r)
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
