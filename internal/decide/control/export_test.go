package control

// Decode is decode.
func Decode(text string) (*Entry, error) { return decode(text) }

// NameOf returns the name of an entry in the table.
func NameOf(e *Entry) string { return e.name() }

// Granted reports whether a grant is recorded.
func (m *Manager) Granted(e *Entry) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.active(e.name()) != nil
}
