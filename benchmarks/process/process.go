// Package process runs the servers that are measured, each as a process of its
// own, so that its processor time is not that of the load.
package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Server is one process under load.
type Server struct {
	// Port is where it listens, on 127.0.0.1.
	Port int
	cmd  *exec.Cmd
}

// Headgate builds the binary of the source beside this module into a file.
func Headgate(ctx context.Context, file string) error {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/headgate/headgate").Output()
	if err != nil {
		return fmt.Errorf("run this in the folder benchmarks: %w", err)
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", file, "./cmd/headgate")
	build.Dir, build.Stderr = strings.TrimSpace(string(root)), os.Stderr
	return build.Run()
}

// Start runs a server on a free port and waits until it listens. command
// returns the program and its arguments.
func Start(ctx context.Context, command func(port string) []string) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	args := command(strconv.Itoa(port))
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &Server{Port: port, cmd: cmd}
	for range 1000 {
		if c, err := net.Dial("tcp", s.Address()); err == nil {
			return s, c.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.Stop()
	return nil, fmt.Errorf("%s does not listen", args[0])
}

// Redis starts a Redis that keeps nothing on disk; HEADGATE_REDIS_BIN names another
// binary than redis-server.
func Redis(ctx context.Context) (*Server, error) {
	return Start(ctx, func(port string) []string {
		return []string{
			cmp.Or(os.Getenv("HEADGATE_REDIS_BIN"), "redis-server"), "--port", port, "--bind", "127.0.0.1",
			"--save", "", "--appendonly", "no", "--dir", os.TempDir(),
		}
	})
}

// Stop ends the process. It may be called for nil.
func (s *Server) Stop() {
	if s != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
}

// Address is where the server listens.
func (s *Server) Address() string { return "127.0.0.1:" + strconv.Itoa(s.Port) }

// CPU returns the seconds of processor time that the server has had.
func (s *Server) CPU() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 13 {
		return 0, errors.New("/proc has another form here")
	}
	user, err1 := strconv.ParseFloat(fields[11], 64)
	system, err2 := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100, errors.Join(err1, err2) // USER_HZ is 100 on Linux
}
