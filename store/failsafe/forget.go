package failsafe

// Forget drops every refusal that the deny cache remembers, and does not
// remember those that are under way: for when another process has given keys
// budget.
func (s *Store) Forget() {
	if s.denied != nil {
		s.denied.forgetAll()
	}
}

func (d *denied) forgetAll() {
	sets := len(d.entries) / ways
	for i := range d.stripes {
		s := &d.stripes[i]
		s.mu.Lock()
		s.changes++
		for set := i; set < sets; set += stripes {
			clear(d.entries[set*ways : (set+1)*ways])
		}
		s.mu.Unlock()
	}
}
