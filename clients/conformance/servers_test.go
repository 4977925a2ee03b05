package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testkit/certtest"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

// binary is the real server, once it is built.
var binary string

// TestMain builds the real server for all tests.
func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "conformance")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(folder) }()
	binary = filepath.Join(folder, "headgate")
	if out, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", binary, "../../cmd/headgate").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// servers are what a client calls:
//
//	real      Headgate with rules.yaml
//	counted   the same, where connections are counted
//	mortal    Headgate that can be stopped and started
//	secure    Headgate with TLS and a token
//	stranger  TLS with a certificate of another authority
//	gone      nothing listens there
//	fake/X    a server that answers as misbehaving and others say
//	raw/X     a server that breaks HTTP itself, as raw says
//	other/X   a service with limits of its own
type servers struct {
	t         *testing.T // of the client, which outlives its scenes
	authority *certtest.Authority
	addresses map[string]string // by name, after the first use
	processes map[string]*process
	counters  map[string]*atomic.Int64
	fake      *httptest.Server
	unasked   chan struct{} // for raw/unasked: send what nobody asked for; it is sent
}

func newServers(t *testing.T) *servers {
	s := &servers{
		t: t, authority: certtest.New(t), addresses: map[string]string{}, processes: map[string]*process{}, counters: map[string]*atomic.Int64{},
		unasked: make(chan struct{}),
	}
	s.fake = httptest.NewServer(fake())
	t.Cleanup(func() {
		s.fake.CloseClientConnections() // some hang
		s.fake.Close()
	})
	return s
}

// url returns the address of a server, which it starts if nobody has asked before.
func (s *servers) url(name string) string {
	s.t.Helper()
	if path, ok := strings.CutPrefix(name, "fake/"); ok {
		return s.fake.URL + "/" + path
	}
	if s.addresses[name] == "" {
		s.addresses[name] = s.open(name)
	}
	return s.addresses[name]
}

func (s *servers) open(name string) string {
	t := s.t
	t.Helper()
	switch name {
	case "real", "mortal":
		s.processes[name] = start(t, "127.0.0.1:0")
		return "http://" + s.processes[name].address
	case "counted":
		s.url("real")
		s.counters[name] = new(atomic.Int64)
		return "http://" + forward(t, s.processes["real"].address, s.counters[name])
	case "secure":
		cert, key := s.authority.Issue("server", 2)
		s.processes[name] = start(t, "127.0.0.1:0", "HEADGATE_API_TLS_CERT="+cert, "HEADGATE_API_TLS_KEY="+key, "HEADGATE_API_TOKEN=conformance-token-1234567890")
		return "https://" + s.processes[name].address
	case "stranger":
		server := httptest.NewUnstartedServer(fake())
		server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0) // handshakes fail
		server.StartTLS()
		t.Cleanup(server.Close)
		return server.URL + "/more"
	case "gone":
		return "http://" + redistest.FreeAddress(t)
	}
	if what, ok := strings.CutPrefix(name, "raw/"); ok {
		return "http://" + raw(t, what, s.unasked)
	}
	what, ok := strings.CutPrefix(name, "other/")
	if !ok {
		t.Fatalf("unknown server %q", name)
	}
	server := httptest.NewServer(other(t, what))
	t.Cleanup(server.Close)
	return server.URL
}

// accepted returns how many connections a server has accepted.
func (s *servers) accepted(name string) int {
	if n := s.counters[name]; n != nil {
		return int(n.Load())
	}
	return 0
}

// change stops, starts or restarts a server at its address.
func (s *servers) change(name, how string) {
	s.t.Helper()
	address := s.processes[name].address
	if how != "start" {
		s.processes[name].stop()
	}
	if how != "stop" {
		s.processes[name] = start(s.t, address)
	}
}

// process is a running Headgate.
type process struct {
	address string
	stop    func()
}

// start starts Headgate and waits until it listens.
func start(t *testing.T, address string, environment ...string) *process {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, binary, "serve", "--rules", "rules.yaml", "--listen-api", address,
		"--listen-grpc", "off", "--listen-resp", "off", "--listen-admin", "off")
	command.Env = append(os.Environ(), environment...)
	said, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{stop: sync.OnceFunc(func() {
		cancel()
		_ = command.Wait()
	})}
	t.Cleanup(p.stop)
	var all []string
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		var line struct{ Msg, Door, Address string }
		all = append(all, lines.Text())
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "listening" && line.Door == "api" {
			p.address = line.Address
			go func() { _, _ = io.Copy(io.Discard, said) }()
			return p
		}
	}
	t.Fatalf("headgate has ended:\n%s", strings.Join(all, "\n"))
	return nil
}

// forward forwards connections to a server and counts them.
func forward(t *testing.T, to string, accepted *atomic.Int64) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			go func() {
				defer func() { _ = in.Close() }()
				out, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				go func() {
					_, _ = io.Copy(out, in)
					_ = out.Close()
				}()
				_, _ = io.Copy(in, out)
			}()
		}
	}()
	return l.Addr().String()
}

// fake answers as a broken server, a proxy in between or a later release may. The first
// element of the path says how.
func fake() http.Handler {
	mux := http.NewServeMux()
	for name, answer := range map[string]struct {
		status int
		body   string
	}{
		"500": {500, "{}"}, "503": {503, `{"allowed":true,"reason":"ok"}`}, "408": {408, ""}, "204": {204, ""},
		"page": {200, "<html>Welcome</html>"}, "empty": {200, ""}, "array": {200, "[]"}, "null": {200, "null"},
		"undecided": {200, `{"reason":"ok"}`}, "text": {200, `{"allowed":"yes","reason":"ok"}`}, "type": {200, `{"allowed":true,"reason":"ok","limit":"5"}`}, "soft": {200, `{"allowed":true,"reason":"ok","soft":"a"}`},
		"cut": {200, `{"allowed":true,"reason":"o`}, "disagree": {200, `{"allowed":false,"reason":"limited"}`}, "balancer": {429, "too many requests"},
		"elsewhere": {404, "<html>default backend - 404</html>"}, "forbidden": {403, `{"message":"Forbidden"}`},
		"few":    {200, `{"results":[{"allowed":true,"reason":"ok"}]}`},
		"large":  {200, `{"allowed":true,"rule":"r","limit":9007199254740991,"remaining":9007199254740990,"reason":"ok"}`},
		"more":   {200, `{"allowed":true,"reason":"ok","new":{"a":[1,2.5e3,null,true,"\ud83d\ude00\n"]},"limit":5}`},
		"script": {200, `{"allowed":true,"rule":"größe \"\u2603\" \\ \ud835\udcb3","reason":"ok"}`},
	} {
		mux.HandleFunc("/"+name+"/", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(answer.status)
			_, _ = io.WriteString(w, answer.body)
		})
	}
	mux.HandleFunc("/huge/", func(w http.ResponseWriter, _ *http.Request) {
		for piece := strings.Repeat(" ", 1<<20); piece != ""; {
			if _, err := io.WriteString(w, piece); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/exact/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "12")
		w.Header().Set("RateLimit", `"login";r=0;t=12`)
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, `{"allowed":false,"rule":"login","limit":5,"remaining":0,"retry_after_ms":11250,"reset_after_ms":60000,"reason":"limited"}`)
	})
	mux.HandleFunc("/redirect/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/more/v1/check")
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/close/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		_, _ = io.WriteString(w, `{"allowed":true,"reason":"ok"}`)
	})
	mux.HandleFunc("/short/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, `{"allowed":true,"reason":"ok"}`)
		panic(http.ErrAbortHandler)
	})
	mux.HandleFunc("/reset/", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("/hangs/", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // so that the server notices that the client has gone
		<-r.Context().Done()
	})
	mux.HandleFunc("/drips/", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		drip := time.NewTicker(10 * time.Millisecond)
		defer drip.Stop()
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, " ")
			_ = http.NewResponseController(w).Flush()
			<-drip.C
		}
	})
	return mux
}

// other is a service with limits of its own.
func other(t *testing.T, what string) http.Handler {
	var calls atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		first, status := calls.Add(1) == 1, http.StatusTooManyRequests
		switch what {
		case "busy-once", "busy-by-date":
			w.Header().Set("Retry-After", "7")
			if what == "busy-by-date" {
				w.Header().Set("Retry-After", time.Now().Add(30*time.Second).UTC().Format(http.TimeFormat))
			}
			if !first {
				w.Header().Del("Retry-After")
				status = http.StatusOK
			}
		case "busy":
			w.Header().Set("Retry-After", "1")
		case "busy-long":
			w.Header().Set("Retry-After", "3600")
		case "busy-silent":
		case "overloaded":
			w.Header().Set("Retry-After", "2")
			status = http.StatusServiceUnavailable
		case "broken":
			status = http.StatusServiceUnavailable
		case "used-up":
			w.Header().Set("RateLimit", `"a;r=0;t=99";r=5;t=1, "b,c";r=0;t=9`)
			status = http.StatusOK
		case "ahead": // its clock is an hour ahead
			there := time.Now().Add(time.Hour)
			w.Header().Set("Date", there.UTC().Format(http.TimeFormat))
			w.Header().Set("Retry-After", there.Add(5*time.Second).UTC().Format(http.TimeFormat))
		case "epoch": // a time of day instead of seconds
			w.Header().Set("Retry-After", strconv.FormatInt(time.Now().Add(30*time.Second).Unix(), 10))
		case "epoch-ns":
			w.Header().Set("Retry-After", strconv.FormatInt(time.Now().Add(30*time.Second).UnixNano(), 10))
		default:
			if limits, ok := strings.CutPrefix(what, "says:"); ok {
				w.Header().Set("RateLimit", limits)
				status = http.StatusOK
				break
			}
			after, ok := strings.CutPrefix(what, "odd:")
			if !ok {
				t.Errorf("unknown service %q", what)
			}
			w.Header().Set("Retry-After", after)
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprintln(w, "answer")
	})
}
