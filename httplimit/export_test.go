package httplimit

import (
	"net/http"
	"time"
)

// Hosts returns for how many hosts t remembers when to ask again.
func (t *Transport) Hosts() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.until)
}

// Hint is hint, for the fuzz test.
func Hint(res *http.Response, at time.Time) (time.Duration, bool) { return hint(res, at) }
