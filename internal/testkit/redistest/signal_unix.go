//go:build unix

package redistest

import "syscall"

// Pause stops the process without closing its connections (SIGSTOP): it is
// stalled, not dead, and still accepts connections as far as the kernel's
// backlog goes. On Windows the test is skipped.
func (s *Server) Pause() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
}

// Resume lets a paused process go on.
func (s *Server) Resume() {
	s.t.Helper()
	s.signal(syscall.SIGCONT)
}
