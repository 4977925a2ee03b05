package redistest

// Pause skips the test: nothing here stops a process.
func (s *Server) Pause() { s.t.Skip("redistest: no SIGSTOP on this system") }

// Resume does nothing.
func (s *Server) Resume() {}
