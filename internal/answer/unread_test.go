package answer_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/answer"
)

func TestUnread(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		err    error
		status int
		says   string
	}{
		{&http.MaxBytesError{Limit: 4096}, http.StatusRequestEntityTooLarge, "at most 4096 bytes"},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, http.StatusRequestTimeout, "in time"},
		{io.ErrUnexpectedEOF, http.StatusBadRequest, "could not be read"},
		{errors.New("secret of the machine"), http.StatusBadRequest, "could not be read"},
	} {
		w := httptest.NewRecorder()
		answer.Unread(w, httptest.NewRequest(http.MethodPost, "/", nil), row.err)
		body := w.Body.String()
		if w.Code != row.status || !strings.Contains(body, row.says) || strings.Contains(body, "secret") {
			t.Errorf("%v: %d %s, want %d …%s…", row.err, w.Code, body, row.status, row.says)
		}
		// The rest of a body that is too large is not awaited.
		if closes := w.Header().Get("Connection") == "close"; closes != (row.status == http.StatusRequestEntityTooLarge) {
			t.Errorf("%v: connection closed: %v", row.err, closes)
		}
	}
}

// A client that sends all of a too large body before it reads gets the answer. There
// is no waiting for a client that itself waits for 100 (Continue).
func TestUnreadLingers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		declared int64
		expect   string
		lingers  bool
	}{
		{1 << 20, "", true},
		{1 << 20, "100-continue", false},
		{-1, "", true},
		{-1, "100-continue", true}, // reading sent 100 (Continue); otherwise the size would be unknown
	} {
		w, body := &socket{ResponseRecorder: httptest.NewRecorder()}, &endless{}
		r := httptest.NewRequest(http.MethodPost, "/", io.LimitReader(body, 1<<20))
		if r.ContentLength = row.declared; row.expect != "" {
			r.Header.Set("Expect", row.expect)
		}
		answer.Unread(w, r, &http.MaxBytesError{Limit: 4096})
		if lingers := body.read > 0; lingers != row.lingers || w.Code != http.StatusRequestEntityTooLarge {
			t.Errorf("%d bytes declared, Expect: %s: %d, read %d bytes, want some: %v", row.declared, row.expect, w.Code, body.read, row.lingers)
		}
	}
}
