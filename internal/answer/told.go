package answer

import (
	"net/http"
	"slices"
)

// Written remembers what [Tell] has set, so that a handler's own fields of the same names can
// be told apart from ours.
type Written struct {
	names  [maxFields]field
	values []string
}

// Write sets the fields like [Headers], for an answer that a handler is about to give.
func Write(h http.Header, d Dialect, list ...Policy) (t Written) {
	var f fields
	var space [384]byte // not in f, where the slice would escape
	t.values = f.set(h, f.fill(space[:0], d, list))
	t.names = f.names
	return t
}

// Settle makes the fields of h final before they are sent. A handler may have added its
// own to ours, or replaced ours: its lists of limits stay in front of ours, and in other
// fields ours is the only value, as with [Join]. A field that it has removed stays away.
func (t *Written) Settle(h http.Header, d Dialect, list ...Policy) {
	for i, ours := range t.values {
		if v := h[fieldNames[t.names[i]]]; len(v) != 1 || v[0] != ours {
			t.Update(h, d, list...)
			return
		}
	}
}

// Update is Settle for a list that has changed since Tell.
func (t *Written) Update(h http.Header, d Dialect, list ...Policy) {
	removed := make([]bool, len(t.values))
	for i, ours := range t.values {
		name := fieldNames[t.names[i]]
		theirs := h[name]
		removed[i] = len(theirs) == 0
		if at := slices.Index(theirs, ours); at >= 0 {
			theirs = slices.Delete(slices.Clone(theirs), at, at+1)
		}
		if h[name] = theirs; len(theirs) == 0 {
			delete(h, name)
		}
	}
	Join(h, d, list...)
	for i := range t.values {
		if removed[i] {
			delete(h, fieldNames[t.names[i]])
		}
	}
}
