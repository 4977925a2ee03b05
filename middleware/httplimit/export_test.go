package httplimit

import (
	"net/http"
	"time"
)

// Hosts returns how many hosts t remembers as exhausted.
func (t *Transport) Hosts() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.until)
}

// Hint exports hint for the fuzz test.
func Hint(res *http.Response, at time.Time) (time.Duration, bool) { return hint(res, at) }
