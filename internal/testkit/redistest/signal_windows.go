package redistest

// Pause skips the test: Windows has no SIGSTOP.
func (s *Server) Pause() { s.t.Skip("redistest: no SIGSTOP on this system") }

// Resume does nothing.
func (s *Server) Resume() {}
