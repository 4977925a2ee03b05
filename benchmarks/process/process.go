// Package process runs the measured servers in separate processes, so that their processor
// time excludes the load.
package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tidwall/redcon"
)

// Main calls run with a context that ends on interrupt, and exits with status 1 if run fails.
func Main(run func(ctx context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// Server is one process under load.
type Server struct {
	// Port is where it listens, on 127.0.0.1.
	Port int
	cmd  *exec.Cmd
}

// Address returns the address of the server.
func (s *Server) Address() string { return "127.0.0.1:" + strconv.Itoa(s.Port) }

// CPU returns the processor time of the server in seconds.
func (s *Server) CPU() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 13 {
		return 0, errors.New("unexpected format of /proc/PID/stat")
	}
	user, err1 := strconv.ParseFloat(fields[11], 64)
	system, err2 := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100, errors.Join(err1, err2) // USER_HZ is 100 on Linux
}

// Stall stops the server after a while, for a time. With a time of 0 it does nothing.
func (s *Server) Stall(ctx context.Context, long, after time.Duration) error {
	if long == 0 {
		return nil
	}
	if err := pause(ctx, after); err != nil {
		return err
	}
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	err := pause(ctx, long)
	return errors.Join(err, s.cmd.Process.Signal(syscall.SIGCONT))
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// Group is a set of servers that end together, and the folder of their files.
type Group struct {
	// Err is the first error. Servers must not be used after one.
	Err    error
	ctx    context.Context
	folder string
	all    []*Server
}

// NewGroup returns a group without servers. Call Stop at the end.
func NewGroup(ctx context.Context) *Group {
	g := &Group{ctx: ctx}
	g.folder, g.Err = os.MkdirTemp("", "headgate-benchmarks")
	return g
}

// Stop ends all servers.
func (g *Group) Stop() {
	for _, s := range g.all {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
	_ = os.RemoveAll(g.folder)
}

// start runs a server on a free port and waits until it listens. command returns the program
// and its arguments for a port.
func (g *Group) start(command func(port string) []string) *Server {
	s := &Server{}
	if g.Err == nil {
		g.Err = g.listening(s, command)
	}
	return s
}

func (g *Group) listening(s *Server, command func(port string) []string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.Port = l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	args := command(strconv.Itoa(s.Port))
	s.cmd = exec.CommandContext(g.ctx, args[0], args[1:]...)
	s.cmd.Stderr = os.Stderr
	if err := s.cmd.Start(); err != nil {
		return err
	}
	g.all = append(g.all, s)
	for range 1000 {
		if c, err := net.Dial("tcp", s.Address()); err == nil {
			return c.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("%s did not start listening", args[0])
}

// Redis starts a Redis without persistence, from HEADGATE_REDIS_BIN or redis-server.
func (g *Group) Redis() *Server {
	return g.start(func(port string) []string {
		return []string{
			cmp.Or(os.Getenv("HEADGATE_REDIS_BIN"), "redis-server"), "--port", port, "--bind", "127.0.0.1",
			"--save", "", "--appendonly", "no", "--dir", g.folder,
		}
	})
}

// Floor starts this program again, with the arguments floor, kind, its address, and args.
func (g *Group) Floor(kind string, args ...string) *Server {
	self, err := os.Executable()
	g.Err = cmp.Or(g.Err, err)
	return g.start(func(port string) []string {
		return append([]string{self, "floor", kind, "127.0.0.1:" + port}, args...)
	})
}

// Door starts headgate serve with a single door and these rules.
func (g *Group) Door(open, rules string) *Server {
	return g.headgate(rules, func(address string) []string {
		args := []string{"serve"}
		for _, door := range []string{"api", "grpc", "resp", "admin"} {
			where := "off"
			if door == open {
				where = address
			}
			args = append(args, "--listen-"+door, where)
		}
		return args
	})
}

// Proxy starts headgate proxy with these rules.
func (g *Group) Proxy(rules, upstream string) *Server {
	return g.headgate(rules, func(address string) []string { return []string{"proxy", "--upstream", upstream, "--listen", address} })
}

// headgate starts the binary, built from the source next to this module.
func (g *Group) headgate(rules string, args func(address string) []string) *Server {
	binary := filepath.Join(g.folder, "headgate")
	if _, err := os.Stat(binary); err != nil && g.Err == nil {
		g.Err = g.build(binary)
	}
	file := filepath.Join(g.folder, fmt.Sprintf("rules-%d.yaml", len(g.all)))
	if g.Err == nil {
		g.Err = os.WriteFile(file, []byte(rules), 0o600)
	}
	return g.start(func(port string) []string {
		return append(append([]string{binary}, args("127.0.0.1:"+port)...), "--rules", file, "--log-level", "error")
	})
}

func (g *Group) build(file string) error {
	root, err := exec.CommandContext(g.ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/headgate/headgate").Output()
	if err != nil {
		return fmt.Errorf("run this in the benchmarks folder: %w", err)
	}
	build := exec.CommandContext(g.ctx, "go", "build", "-o", file, "./cmd/headgate")
	build.Dir, build.Stderr = strings.TrimSpace(string(root)), os.Stderr
	return build.Run()
}

// RESPFloor serves the cheapest possible answer with redcon: five constant integers.
func RESPFloor(address string) error {
	return redcon.ListenAndServe(address,
		func(c redcon.Conn, _ redcon.Command) {
			c.WriteArray(5)
			for _, n := range [...]int{0, 1_000_001, 1_000_000, -1, 1} {
				c.WriteInt(n)
			}
		},
		func(redcon.Conn) bool { return true }, func(redcon.Conn, error) {})
}
