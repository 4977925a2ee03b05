package answer_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/answer"
)

// socket is a writer of HTTP/1 that notes what it is asked for.
type socket struct {
	*httptest.ResponseRecorder
	deadline time.Duration
}

func (*socket) EnableFullDuplex() error { return nil }

func (s *socket) SetReadDeadline(t time.Time) error {
	s.deadline = time.Until(t)
	return nil
}

// endless is a body that never ends.
type endless struct{ read int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.read += int64(len(p))
	return len(p), nil
}

// Nobody keeps a connection by a body without an end.
func TestLingeringEnds(t *testing.T) {
	t.Parallel()
	w, body := &socket{ResponseRecorder: httptest.NewRecorder()}, &endless{}
	rest := answer.Linger(w, httptest.NewRequest(http.MethodPost, "/", nil), body)
	answer.Problem(w, http.StatusRequestEntityTooLarge, "no")
	if body.read != 0 || w.Flushed {
		t.Error("read before the answer was there")
	}
	rest()
	if !w.Flushed || body.read != 64<<20 || w.deadline <= 4*time.Second || w.deadline > 5*time.Second {
		t.Errorf("flushed %v, read %d bytes, until %v", w.Flushed, body.read, w.deadline)
	}
	if h := w.Header(); h.Get("Connection") != "close" || h.Get("Content-Length") == "" {
		t.Errorf("%v", h)
	}
}
