package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"google.golang.org/grpc/grpclog"
)

// LogPackages sends the log of gRPC to slog's default logger instead of standard
// error, at level debug, since most of it is about what untrusted clients send. The
// main program calls it first.
//
// Package log, which net/http uses, is redirected by slog.SetDefault.
func LogPackages() { grpclog.SetLoggerV2(packageLog{}) }

// packageLog is gRPC's logger. It drops messages at info level.
type packageLog struct{}

func (packageLog) say(text string) {
	slog.Debug(strings.TrimSpace(text), "package", "grpc") //nolint:sloglint // the message is theirs
}

func (packageLog) fail(text string) {
	slog.Error(strings.TrimSpace(text), "package", "grpc") //nolint:sloglint // the message is theirs
	os.Exit(1)                                             // as grpclog wants it
}

func (packageLog) Info(...any)                    {}
func (packageLog) Infoln(...any)                  {}
func (packageLog) Infof(string, ...any)           {}
func (l packageLog) Warning(args ...any)          { l.say(fmt.Sprint(args...)) }
func (l packageLog) Warningln(args ...any)        { l.say(fmt.Sprintln(args...)) }
func (l packageLog) Warningf(f string, a ...any)  { l.say(fmt.Sprintf(f, a...)) }
func (l packageLog) Error(args ...any)            { l.say(fmt.Sprint(args...)) }
func (l packageLog) Errorln(args ...any)          { l.say(fmt.Sprintln(args...)) }
func (l packageLog) Errorf(f string, args ...any) { l.say(fmt.Sprintf(f, args...)) }
func (l packageLog) Fatal(args ...any)            { l.fail(fmt.Sprint(args...)) }
func (l packageLog) Fatalln(args ...any)          { l.fail(fmt.Sprintln(args...)) }
func (l packageLog) Fatalf(f string, args ...any) { l.fail(fmt.Sprintf(f, args...)) }

// V reports whether verbose messages are logged.
func (packageLog) V(int) bool { return slog.Default().Enabled(context.Background(), slog.LevelDebug) }
