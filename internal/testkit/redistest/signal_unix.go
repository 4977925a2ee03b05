//go:build unix

package redistest

import "syscall"

// Pause stops the process without closing its connections (SIGSTOP). The kernel still
// accepts connections up to its backlog. On Windows the test is skipped.
func (s *Server) Pause() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
}

// Resume continues a paused process.
func (s *Server) Resume() {
	s.t.Helper()
	s.signal(syscall.SIGCONT)
}
