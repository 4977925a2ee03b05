// Package redistest starts real Redis or Valkey servers on loopback for tests: one
// alone, a Sentinel set and a Cluster, which tests can kill, pause, restart, fail over
// and reshard, and a TCP [Proxy] that simulates network failures.
//
// The server binary is named by the environment variable HEADGATE_REDIS_BIN, or else is
// redis-server or valkey-server from PATH. Without one the test is skipped, or fails if
// HEADGATE_REQUIRE_REDIS=1, which make test sets. Tests that use [Each] also run on
// Valkey, if HEADGATE_VALKEY_BIN names one, one is in PATH, or scripts/ensure-valkey.sh
// has fetched one.
//
// Every process is killed when its test ends, even by a panic, and on Linux also when
// the test binary dies. Data is in the test's temporary folder.
package redistest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// startTimeout is how long a server may take to answer while the machine runs other
// tests.
const startTimeout = 20 * time.Second

// Server is one running server. Its methods must be called from the test's goroutine,
// except for Command.
type Server struct {
	Addr string // host:port; does not change
	Port int    // the port of Addr
	Dir  string // the server's working folder

	t    testing.TB
	bin  string
	args []string

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{}
}

// Bin returns the server binary, or skips or fails the test; see the package comment.
func Bin(t testing.TB) string {
	t.Helper()
	if path := find(t, "HEADGATE_REDIS_BIN", "redis-server", "valkey-server"); path != "" {
		return path
	}
	const hint = "no redis-server and no valkey-server in PATH: run scripts/ensure-redis.sh, or apt-get install redis-server"
	if os.Getenv("HEADGATE_REQUIRE_REDIS") == "1" {
		t.Fatal(hint)
	}
	t.Skip(hint)
	return ""
}

// find returns the program named by an environment variable, or else the first of names
// that exists, or "".
func find(t testing.TB, variable string, names ...string) string {
	t.Helper()
	if named := os.Getenv(variable); named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			t.Fatalf("%s: %v", variable, err)
		}
		return path
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// Each runs f on a server like Standalone's, and on Valkey if there is one, as subtests
// of t.
func Each(t *testing.T, f func(t *testing.T, server *Server)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) { f(t, Standalone(t)) })
	t.Run("valkey", func(t *testing.T) {
		names := []string{"valkey-server"}
		if cache, err := os.UserCacheDir(); err == nil {
			names = append(names, filepath.Join(cache, "headgate", "valkey", "usr", "bin", "valkey-server"))
		}
		bin := find(t, "HEADGATE_VALKEY_BIN", names...)
		if bin == "" {
			t.Skip("no valkey-server: scripts/ensure-valkey.sh tries to get one")
		}
		f(t, start(t, bin, (*Server).defaults))
	})
}

// Standalone starts one server without persistence and waits until it answers. args are
// extra command-line options, such as "--requirepass", "secret"; they override the
// defaults.
func Standalone(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, Bin(t), func(s *Server) []string { return append(s.defaults(), args...) })
}

// defaults are the options of a server for tests.
func (s *Server) defaults() []string {
	return []string{
		"--port", strconv.Itoa(s.Port), "--bind", "127.0.0.1", "--dir", s.Dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no",
		"--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0",
	}
}

// start runs bin with the arguments that options returns for its port and folder. If
// another process takes the port first, it tries another one.
func start(t testing.TB, bin string, options func(*Server) []string) *Server {
	t.Helper()
	var err error
	for range 5 {
		port := freePort(t)
		s := &Server{
			Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Port: port,
			Dir: filepath.Join(t.TempDir(), strconv.Itoa(port)), t: t, bin: bin,
		}
		if err = os.MkdirAll(s.Dir, 0o700); err != nil {
			t.Fatalf("redistest: %v", err)
		}
		s.args = options(s)
		t.Cleanup(s.Kill)
		if err = s.run(); err == nil {
			return s
		}
		s.Kill()
	}
	t.Fatalf("redistest: %v", err)
	return nil
}

// run starts the process and waits until it answers.
func (s *Server) run() error {
	cmd := exec.Command(s.bin, s.args...)
	cmd.Dir = s.Dir
	cmd.SysProcAttr = dieWithParent()
	log := new(logBuffer)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the log shows how it ended
		close(exited)
	}()
	s.mu.Lock()
	s.cmd, s.exited = cmd, exited
	s.mu.Unlock()
	return await(startTimeout, func() error {
		select {
		case <-exited:
			return final{fmt.Errorf("%s %v ended at once:\n%s", s.bin, s.args, log)}
		default:
		}
		return s.answers()
	})
}

// answers returns nil once the server is up, even if it requires a password.
func (s *Server) answers() error {
	_, err := s.Command("PING")
	if _, refused := err.(ReplyError); refused { //nolint:errorlint // Command returns it unwrapped
		if bytes.HasPrefix([]byte(err.Error()), []byte("LOADING")) {
			return err
		}
		return nil
	}
	return err
}

// Kill ends the process at once, like a crash. It may be called more than once.
func (s *Server) Kill() {
	s.mu.Lock()
	cmd, exited := s.cmd, s.exited
	s.cmd = nil
	s.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill() // it may have ended already
	<-exited
}

// Restart starts the server again after Kill, on the same port with the same options,
// and waits until it answers. Without persistence it is empty.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	var err error
	for range 5 { // a client may be using the port for a moment
		if err = s.run(); err == nil {
			return
		}
		s.Kill()
	}
	s.t.Fatalf("redistest: restarting %s: %v", s.Addr, err)
}

func (s *Server) signal(sig os.Signal) {
	s.t.Helper()
	s.mu.Lock()
	cmd := s.cmd
	s.mu.Unlock()
	if cmd == nil {
		s.t.Fatalf("redistest: %s is not running", s.Addr)
	}
	if err := cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("redistest: %s: %v", s.Addr, err)
	}
}

// Do runs a command on a new connection and fails the test on an error. It returns
// strings unchanged, numbers in decimal, nil as "", and arrays with one element per
// line.
func (s *Server) Do(args ...string) string {
	s.t.Helper()
	reply, err := s.Command(args...)
	if err != nil {
		s.t.Fatalf("redistest: %s %v: %v", s.Addr, args, err)
	}
	return text(reply)
}

// logBuffer keeps the output of a process.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
