package main

import (
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
)

// TestAsk runs the program against a server with the configuration in its folder.
func TestAsk(t *testing.T) {
	c, err := config.Load(config.Sources{Doors: app.Sections(), File: "headgate.yaml", Environment: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	c.Door("grpc").Address = "127.0.0.1:0"
	server, err := app.New(app.Options{Config: c, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Stop(t.Context()) }()
	conn, err := grpc.NewClient(server.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	var out strings.Builder
	if err := ask(t.Context(), headgatev1.NewLimiterClient(conn), &out); err != nil {
		t.Fatal(err)
	}
	const want = "reserved 500, 99500 left of 100000\ntook 312: ENDING_DONE\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
