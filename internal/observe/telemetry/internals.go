package telemetry

import (
	"log/slog"

	"github.com/go-logr/logr"
)

// internals is where the SDK logs what it would otherwise write to standard
// error by itself. What it says beside the message is dropped: of a header that
// it cannot read that is the header, with whatever secret is in it.
type internals struct{ log *slog.Logger }

// Init implements logr.LogSink.
func (internals) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink: for warnings. The rest is for authors of the SDK.
func (internals) Enabled(level int) bool { return level <= 1 }

// Info implements logr.LogSink.
func (i internals) Info(_ int, message string, _ ...any) {
	i.log.Warn("OpenTelemetry", "message", message)
}

// Error implements logr.LogSink.
func (i internals) Error(_ error, message string, _ ...any) {
	i.log.Warn("OpenTelemetry did not understand a setting", "message", message)
}

// WithValues implements logr.LogSink.
func (i internals) WithValues(...any) logr.LogSink { return i }

// WithName implements logr.LogSink.
func (i internals) WithName(string) logr.LogSink { return i }
