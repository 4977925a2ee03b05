package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
)

// asker sends one request after another until it cannot connect. It keeps its
// connection as long as the server lets it.
type asker struct {
	address, question string
	keep              bool         // reuse connections while the server allows it
	answered, lost    atomic.Int64 // lost requests were sent and not answered
}

// run sends requests until the door is closed.
func (c *asker) run() {
	for {
		nc, err := net.Dial("tcp", c.address)
		if err != nil {
			return
		}
		c.use(nc)
		_ = nc.Close()
	}
}

// use sends requests on nc until it ends.
func (c *asker) use(nc net.Conn) {
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	from := bufio.NewReader(nc)
	for {
		_, err := io.WriteString(nc, c.question)
		closes := false
		if err == nil {
			closes, err = c.reads(from)
		}
		if err != nil {
			c.lost.Add(1)
			return
		}
		c.answered.Add(1)
		if closes || !c.keep {
			return
		}
	}
}

func (c *asker) reads(from *bufio.Reader) (closes bool, err error) {
	if !strings.Contains(c.question, "HTTP/1.1") {
		line, err := from.ReadString('\n')
		if err == nil && line != "+PONG\r\n" {
			err = errors.New(line)
		}
		return false, err
	}
	res, err := http.ReadResponse(from, nil)
	if err != nil {
		return false, err
	}
	_, err = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("%s", res.Status))
	}
	return res.Close, err
}

// busy starts many clients of a door, waits until all are sending, stops the process
// and returns how many of their requests were answered and lost.
func (f *fixture) busy(t *testing.T, door, question string, keep bool) (answered, lost int64) {
	t.Helper()
	all := make([]*asker, 24)
	var wg sync.WaitGroup
	for i := range all {
		c := &asker{address: f.Addr(door), question: question, keep: keep}
		all[i] = c
		wg.Go(c.run)
	}
	f.await(t, func() bool {
		return !slices.ContainsFunc(all, func(c *asker) bool { return c.answered.Load() < 20 })
	})
	if err := f.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	wg.Wait()
	for _, c := range all {
		answered, lost = answered+c.answered.Load(), lost+c.lost.Load()
	}
	return answered, lost
}

// A stopping process answers every request it was sent: on kept connections, whose
// clients are asked to close them, and on connections made before the door closed.
func TestStopAnswersBusyCallers(t *testing.T) {
	t.Parallel()
	const (
		stops  = 4
		health = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
	)
	for _, row := range []struct {
		name, door, question string
		keep                 bool
	}{
		{"the API", doorAPI, health, true},
		{"the proxy", doorProxy, health, true},
		{"a shared port", doorShared, health, true},
		{"the API, a connection for each", doorAPI, health, false},
		{"the Redis protocol, a connection for each", doorRESP, "PING\r\n", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			if !row.keep && runtime.GOOS != "linux" {
				t.Skip("connections that wait to be accepted are reset here")
			}
			for range stops {
				f := newFixture(t, "domain: api\nlimits: []\n", hello, func(c *config.Config) {
					// Much longer than busy clients wait, even on a slow machine.
					c.Door("resp").Address, c.ShutdownTimeout, c.ShutdownIdle = "127.0.0.1:0", time.Minute, 10*time.Second
					if row.door == doorShared {
						listenAt(c, addresses{"shared": "127.0.0.1:0", "admin": "127.0.0.1:0"})
					}
				})
				if err := f.Start(context.Background()); err != nil {
					t.Fatal(err)
				}
				if answered, lost := f.busy(t, row.door, row.question, row.keep); lost > 0 {
					t.Errorf("%d requests were not answered, %d were", lost, answered)
				}
			}
		})
	}
}

// A connection that is idle when the process stops gets one more answer, which asks to
// close it. New connections are refused.
func TestStopAnswersIdleConnections(t *testing.T) {
	const question = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
	f := run(t, loginRules, hello, func(c *config.Config) { c.ShutdownTimeout, c.ShutdownIdle = time.Minute, 20*time.Second })
	var conns []net.Conn
	for _, door := range []string{doorAPI, doorProxy} {
		c := stays(t, f.Addr(door), "", question)
		conns = append(conns, c)
		from := bufio.NewReader(io.MultiReader(strings.NewReader("H"), c)) // stays has read the first byte
		res, err := http.ReadResponse(from, nil)
		if err != nil || res.Close {
			t.Fatalf("%s: %v, %+v", door, err, res)
		}
		_ = read(t, res)
	}
	stopped := make(chan error)
	go func() { stopped <- f.Stop(context.Background()) }()
	f.await(t, func() bool {
		c, err := net.Dial("tcp", f.Addr(doorAPI))
		if err == nil {
			_ = c.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	for i, c := range conns {
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		from := bufio.NewReader(c)
		for closes := false; !closes; { // this door may not be draining yet
			_, _ = io.WriteString(c, question)
			res, err := http.ReadResponse(from, nil)
			if err != nil {
				t.Fatalf("connection %d: %v", i, err)
			}
			if _ = read(t, res); res.StatusCode != http.StatusOK {
				t.Errorf("connection %d: %s", i, res.Status)
			}
			closes = res.Close
		}
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A stopping process waits no longer than necessary for idle connections, and cuts off
// requests that take too long.
func TestStopWaitsForIdleConnections(t *testing.T) {
	const question = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
	f := run(t, loginRules, nil, func(c *config.Config) { c.ShutdownIdle = 200 * time.Millisecond })
	c := stays(t, f.Addr(doorAPI), "", question)
	begin := time.Now()
	if err := f.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	if d := time.Since(begin); d < 200*time.Millisecond || d > 5*time.Second {
		t.Errorf("stopping took %s", d)
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Errorf("the connection ends with %v", err)
	}
}

// Connections that have sent nothing delay a stop no longer than idle ones, at any door.
func TestStopDoesNotWaitForSilentConnections(t *testing.T) {
	doors := []string{doorAPI, doorGRPC, doorRESP, doorAdmin, doorProxy}
	f := run(t, loginRules, hello, func(c *config.Config) {
		c.ShutdownIdle, c.ShutdownTimeout = 100*time.Millisecond, time.Minute
		for _, door := range doors {
			c.Door(door).Address = "127.0.0.1:0"
		}
	})
	for _, door := range doors {
		c, err := net.Dial("tcp", f.Addr(door))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
	}
	begin := time.Now()
	if err := f.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	if d := time.Since(begin); d > 3*time.Second {
		t.Errorf("stopping took %s", d)
	}
}

// HTTP/2 clients are told to open no more streams, and no stream that they have opened
// is lost.
func TestStopAnswersBusyCallersOverHTTP2(t *testing.T) {
	f := newFixture(t, "domain: api\nlimits: []\n", hello, func(c *config.Config) {
		c.ShutdownTimeout, c.ShutdownIdle = time.Minute, 10*time.Second
	})
	if err := f.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 20 * time.Second}
	var answered atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				// The client only repeats it if it knows that it was not served.
				res, err := client.Post(f.proxyURL("/"), "text/plain", strings.NewReader("x"))
				if err != nil {
					if !errors.Is(err, syscall.ECONNREFUSED) {
						t.Errorf("lost: %v", err)
					}
					return
				}
				_, err = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				if err != nil || res.StatusCode != http.StatusOK || res.ProtoMajor != 2 {
					t.Errorf("%s, %s, %v", res.Proto, res.Status, err)
				}
				answered.Add(1)
			}
		})
	}
	f.await(t, func() bool { return answered.Load() > 200 })
	begin := time.Now()
	if err := f.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	if d := time.Since(begin); d > 9*time.Second {
		t.Errorf("clients were not told: stopping took %s", d)
	}
	wg.Wait()
}
