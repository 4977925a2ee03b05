package answer_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/answer"
)

// socket is an HTTP/1 ResponseWriter that records calls.
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

// A body without an end does not hold a connection forever.
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

// Lingering does nothing if the handler accepts the request, reads the whole body or
// closes the connection itself, or if the body is short.
func TestLingeringIsForRefusals(t *testing.T) {
	t.Parallel()
	const long = 1 << 20
	for _, row := range []struct {
		name    string
		status  int
		length  int64
		proto   int
		closes  bool // by the handler
		lingers bool
	}{
		{"refused", 401, long, 1, false, true},
		{"wrong", 400, long, 1, false, true},
		{"refused, of unknown length", 404, -1, 1, false, true},
		{"passed", 200, long, 1, false, false},
		{"a short body", 401, 256 << 10, 1, false, false},
		{"HTTP/2", 401, long, 2, false, false},
		{"the handler lingers", 413, long, 1, true, false},
	} {
		w, body := &socket{ResponseRecorder: httptest.NewRecorder()}, &endless{}
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Body, r.ContentLength, r.ProtoMajor = io.NopCloser(body), row.length, row.proto
		answer.Lingering(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if row.closes {
				w.Header().Set("Connection", "close")
			}
			w.WriteHeader(row.status)
		})).ServeHTTP(w, r)
		if w.Code != row.status || w.Flushed != row.lingers || body.read > 0 != row.lingers {
			t.Errorf("%s: %d, lingered %v, read %d", row.name, w.Code, w.Flushed, body.read)
		}
	}
}

// HTTP/2 resets a stream, not the connection, so nothing needs to be read.
func TestLingeringIsForHTTP1(t *testing.T) {
	t.Parallel()
	w, body := &socket{ResponseRecorder: httptest.NewRecorder()}, &endless{}
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.ProtoMajor = 2
	r.ContentLength = 1 << 30
	answer.Linger(w, r, body)()
	answer.Unwanted(w, r, body)()
	if body.read != 0 || w.Flushed || w.Header().Get("Connection") != "" {
		t.Errorf("flushed %v, read %d bytes, %v", w.Flushed, body.read, w.Header())
	}
}

// A client that sends an unneeded body gets its answer: the rest of a long body is
// read, a short one is left to net/http, and a client that waits for 100 (Continue)
// sends nothing.
func TestUnwanted(t *testing.T) {
	t.Parallel()
	const short, all = 256 << 10, 64 << 20
	for _, row := range []struct {
		name           string
		declared, sent int64
		expect         bool
		read           int64
		closes         bool
	}{
		{"none", 0, 0, false, 0, false},
		{"short", short, short, false, 0, false},
		{"long", short + 1, short + 1, false, short + 1, true},
		{"long, and endless", 1 << 40, 1 << 40, false, all, true},
		{"long, but not sent yet", 1 << 40, 0, true, 0, false},
		{"in chunks, short", -1, short - 1, false, short - 1, false},
		{"in chunks, no longer short", -1, short, false, short, true},
		{"in chunks, endless", -1, 1 << 40, false, short + all, true},
		{"in chunks, but not sent yet", -1, 0, true, 0, false},
	} {
		w, body := &socket{ResponseRecorder: httptest.NewRecorder()}, &endless{}
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		if r.ContentLength = row.declared; row.expect {
			r.Header.Set("Expect", "100-continue")
		}
		answer.Unwanted(w, r, &io.LimitedReader{R: body, N: row.sent})()
		if closes := w.Header().Get("Connection") == "close"; body.read != row.read || closes != row.closes || w.Flushed != row.closes {
			t.Errorf("%s: read %d bytes, connection closed: %v; want %d, %v", row.name, body.read, closes, row.read, row.closes)
		}
	}
}
