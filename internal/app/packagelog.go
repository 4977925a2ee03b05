package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"google.golang.org/grpc/grpclog"
)

// LogPackages sends what the packages of gRPC say to the default logger of slog
// instead of raw to standard error, at level debug, as those of HTTP: what
// strangers send is mostly what it is about. It is for the main program, before
// anything else.
//
// Package log, by which net/http tells of odd upstreams, follows from
// slog.SetDefault.
func LogPackages() { grpclog.SetLoggerV2(packageLog{}) }

// packageLog is a logger of gRPC. What is only of interest to those who debug
// gRPC is left out.
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

// V reports whether what is this verbose is wanted.
func (packageLog) V(int) bool { return slog.Default().Enabled(context.Background(), slog.LevelDebug) }
