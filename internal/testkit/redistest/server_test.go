package redistest

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"
)

func TestStandaloneLivesAndDies(t *testing.T) {
	s := Standalone(t)
	if got := s.Do("SET", "k", "v"); got != "OK" {
		t.Fatalf("SET: %q", got)
	}
	s.Kill()
	if _, err := s.Command("PING"); err == nil {
		t.Fatal("a killed server answered")
	}
	s.Restart()
	if got := s.Do("GET", "k"); got != "" {
		t.Fatalf("a server without persistence remembered %q", got)
	}
	if _, err := s.Command("NOSUCH"); !errors.As(err, new(ReplyError)) {
		t.Fatalf("NOSUCH: %v", err)
	}
}

func TestPausedServerStallsAndResumes(t *testing.T) {
	s := Standalone(t)
	s.Pause()
	answered := make(chan error, 1)
	go func() {
		_, err := s.Command("PING")
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("a paused server answered: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	s.Resume()
	if err := <-answered; err != nil {
		t.Fatalf("after Resume: %v", err)
	}
}

func TestServerPasswordAndOptions(t *testing.T) {
	s := Standalone(t, "--requirepass", "secret")
	if _, err := s.Command("GET", "k"); err == nil || err.Error()[:6] != "NOAUTH" {
		t.Fatalf("want NOAUTH, got %v", err)
	}
}

// TestNoProcessIsLeft starts servers in a subtest and looks for them afterwards.
func TestNoProcessIsLeft(t *testing.T) {
	var pids []int
	t.Run("inner", func(t *testing.T) {
		a, b := Standalone(t), Standalone(t)
		b.Pause() // a stopped process must be killed too
		pids = append(pids, a.cmd.Process.Pid, b.cmd.Process.Pid)
	})
	for _, pid := range pids {
		p, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		if err := p.Signal(syscall.Signal(0)); err == nil {
			t.Errorf("process %d is still there", pid)
		}
	}
	if !t.Failed() && len(pids) == 0 {
		t.Skip("no server")
	}
}
