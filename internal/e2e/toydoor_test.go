package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/transport/netbound"
)

// toySettings are the toy door's own settings.
type toySettings struct{ domain string }

// toyDoor is a door made as CONTRIBUTING describes: it answers a line with a user with
// ok or no.
func toyDoor() door.Door {
	return door.Door{
		Policy: netbound.ByRead,
		Section: config.Section{
			Name: "toy", Default: config.Off, Public: true, Own: func() any { return &toySettings{domain: "api"} },
			Settings: []config.Setting{config.Text("toy.domain", func(s *toySettings) *string { return &s.domain })},
		},
		Open: func(p *door.Process) (door.Server, error) {
			t := &toy{Process: p, domain: config.Own[toySettings](p.Config).domain}
			t.base, t.cut = context.WithCancel(context.Background())
			answered := t.Counter("headgate_toy_lines_total", "Lines that were answered.")
			t.Ask(func(out chan<- prometheus.Metric) { answered(out, float64(t.lines.Load())) })
			return t, nil
		},
	}
}

type toy struct {
	*door.Process
	metrics.Asked
	domain string
	lines  atomic.Int64
	base   context.Context
	cut    context.CancelFunc
	conns  sync.WaitGroup
}

// Serve implements [door.Server].
func (t *toy) Serve(l net.Listener) error {
	go func() { <-t.base.Done(); _ = l.Close() }()
	return netbound.AcceptAll(t.base, l, func(c net.Conn) {
		t.conns.Go(func() { t.answer(c) })
	})
}

// Shutdown implements [door.Server].
func (t *toy) Shutdown(context.Context) error {
	t.cut()
	t.conns.Wait()
	return nil
}

func (t *toy) answer(c net.Conn) {
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(t.base, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })()
	for in := bufio.NewScanner(c); in.Scan(); t.lines.Add(1) {
		var r described.Request
		r.Add(rules.Attribute{Kind: rules.Other, Name: "user"}, in.Text(), t.Clients)
		v, err := t.Engine.Decide(t.base, engine.Query{Domain: t.domain, Part: engine.Part{Request: &r, Cost: 1}, At: t.Clock().UnixMicro()})
		if err != nil {
			t.Logger.Debug("degraded", "err", err)
		}
		answer := "no\n"
		if v.Allowed {
			answer = "ok\n"
		}
		v.Release()
		if _, err := c.Write([]byte(answer)); err != nil {
			return
		}
	}
}

// A door that this package does not know is opened, limited, served, measured and
// drained like its own doors, and has settings like them.
func TestDoorOfAnother(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	writeFile(t, filepath.Join(folder, "headgate.yaml"), `
rules: [rules.yaml]
listen: {toy: "127.0.0.1:0", api: "off", grpc: "off", resp: "off", admin: "127.0.0.1:0"}
toy: {domain: lines, max_connections: 7, max_connections_per_client: 3}
`)
	writeFile(t, filepath.Join(folder, "rules.yaml"), "domain: lines\nlimits:\n  - {name: user, key: [user], rate: 2/hour}\n")
	c, err := config.Load(config.Sources{
		File: filepath.Join(folder, "headgate.yaml"), Doors: append(app.Sections(), toyDoor().Section),
		Environment: func(string) (string, bool) { return "", false },
	})
	if err != nil {
		t.Fatal(err)
	}
	journal := newJournal()
	a, err := app.New(app.Options{Config: c, Logger: journal.logger(), Doors: []door.Door{toyDoor()}})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	nc, err := net.Dial("tcp", a.Addr("toy"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	lines := bufio.NewReader(nc)
	for i, want := range []string{"ok\n", "ok\n", "no\n"} {
		_, _ = fmt.Fprintln(nc, "ann")
		if got, err := lines.ReadString('\n'); err != nil || got != want {
			t.Fatalf("line %d: %q, %v, want %q", i, got, err, want)
		}
	}
	f := &fixture{App: a, client: new(http.Client)}
	_, body := f.get(t, f.adminURL("/metrics"))
	for _, want := range []string{
		"headgate_toy_lines_total 3", `headgate_connections{door="toy"} 1`, `headgate_connections_max{door="toy"} 7`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
	if err := a.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := lines.ReadByte(); err == nil {
		t.Error("the connection is still open")
	}
}
