package httpapi_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/store/memory"
)

func TestSizeIsBounded(t *testing.T) {
	a := newAPI(t, memory.New())
	body := `{"domain":"api","attributes":{"path":"` + strings.Repeat("x", httpapi.MaxBody) + `"}}`
	if w := a.check(body); w.Code != http.StatusRequestEntityTooLarge || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("announced: %d %s", w.Code, w.Body)
	}
	r := httptest.NewRequest(http.MethodPost, "/v1/check", io.MultiReader(strings.NewReader(body)))
	r.ContentLength = -1 // chunked: the size is not known in advance
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, r)
	if w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("chunked: %d %s", w.Code, w.Body)
	}
}

// If the client fails to send the body, the status says how.
func TestBodyThatDoesNotCome(t *testing.T) {
	a := newAPI(t, memory.New())
	for _, row := range []struct {
		err  error
		want int
	}{
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, http.StatusRequestTimeout},
		{io.ErrUnexpectedEOF, http.StatusBadRequest},
	} {
		for _, length := range []int64{int64(len(loginBody)), -1} {
			r := httptest.NewRequest(http.MethodPost, "/v1/check", io.MultiReader(strings.NewReader(loginBody[:9]), iotest.ErrReader(row.err)))
			r.ContentLength = length
			w := httptest.NewRecorder()
			a.handler.ServeHTTP(w, r)
			if w.Code != row.want || w.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("%v, length %d: %d %s, want %d", row.err, length, w.Code, w.Body, row.want)
			}
		}
	}
}

// The memory of large bodies that do not end is bounded, and returned later; small
// bodies are still answered.
func TestLargeBodiesAreBoundedTogether(t *testing.T) {
	const most = 1 << 20
	a := newBoundedAPI(t, memory.New(), most)
	begun := `{"domain":"api","attributes":{"path":"/` + strings.Repeat("x", 300<<10)
	for _, length := range []int64{1 << 20, -1} {
		var writers []*io.PipeWriter
		answers := make(chan *httptest.ResponseRecorder, 20)
		for range cap(answers) {
			body, w := io.Pipe()
			writers = append(writers, w)
			r := httptest.NewRequest(http.MethodPost, "/v1/check", body)
			r.ContentLength = length
			go func() {
				w := httptest.NewRecorder()
				a.handler.ServeHTTP(w, r)
				_ = body.Close()
				answers <- w
			}()
			_, _ = io.WriteString(w, begun) // returns when it is read or refused
		}
		if w := a.check(loginBody); w.Code != http.StatusOK {
			t.Errorf("a small body: %d %s", w.Code, w.Body)
		}
		a.now = a.now.Add(time.Hour)
		for _, w := range writers {
			_ = w.CloseWithError(io.ErrUnexpectedEOF)
		}
		refused := 0
		for range cap(answers) {
			switch w := <-answers; {
			case w.Code == http.StatusServiceUnavailable && w.Header().Get("Retry-After") == "1":
				refused++
			case w.Code != http.StatusBadRequest:
				t.Errorf("%d %s", w.Code, w.Body)
			}
		}
		if refused < 16 || refused == cap(answers) {
			t.Errorf("%d of %d were refused", refused, cap(answers))
		}
		if w := a.check(begun + `"}}`); w.Code != http.StatusOK {
			t.Errorf("when all is given back: %d %.100s", w.Code, w.Body)
		}
	}
}

// Bodies that do not end give way to others, and are answered.
func TestSlowBodiesMakeRoomForLargeOnes(t *testing.T) {
	t.Parallel()
	a := newBoundedAPI(t, memory.New(), 1<<20)
	server := httptest.NewServer(a.handler)
	defer server.Close()
	var slow []net.Conn
	for range 4 {
		nc, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = nc.Close() }()
		_, _ = io.WriteString(nc, "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000\r\n\r\n"+strings.Repeat(" ", 250_000))
		slow = append(slow, nc)
	}
	large := loginBody + strings.Repeat(" ", 500_000)
	for begun := time.Now(); ; { // until they count as slow
		answer, err := http.Post(server.URL+"/v1/check", "application/json", strings.NewReader(large))
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			break
		}
		if answer.StatusCode != http.StatusServiceUnavailable || time.Since(begun) > 20*time.Second {
			t.Fatalf("%d after %s", answer.StatusCode, time.Since(begun))
		}
	}
	refused := 0
	for _, nc := range slow {
		_, _ = io.WriteString(nc, strings.Repeat(" ", 50_000-len(loginBody))+loginBody)
		answer, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		switch {
		case answer.StatusCode == http.StatusServiceUnavailable && answer.Header.Get("Retry-After") == "1":
			refused++
		case answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusTooManyRequests:
			t.Errorf("a slow one: %s", answer.Status)
		}
	}
	if refused == 0 || refused == len(slow) {
		t.Errorf("%d of %d were refused", refused, len(slow))
	}
}

// Bodies of a known length are read into a buffer of that size, up to a limit. All
// lengths must be accepted or refused alike.
func TestBodyOfAnyLength(t *testing.T) {
	t.Parallel()
	a := newAPI(t, memory.New())
	for _, size := range []int{len(loginBody), 4096, 64 << 10, 64<<10 + 1, httpapi.MaxBody} {
		body := loginBody + strings.Repeat(" ", size-len(loginBody))
		for name, length := range map[string]int64{"known": int64(size), "unknown": -1} {
			r := httptest.NewRequest(http.MethodPost, "/v1/check", strings.NewReader(body))
			r.ContentLength = length
			w := httptest.NewRecorder()
			a.handler.ServeHTTP(w, r)
			if w.Code != http.StatusOK && w.Code != http.StatusTooManyRequests {
				t.Errorf("%d bytes, length %s: %d %s", size, name, w.Code, w.Body)
			}
		}
		// The caller went away in the middle.
		r := httptest.NewRequest(http.MethodPost, "/v1/check", strings.NewReader(body[:size-1]))
		r.ContentLength = int64(size)
		r.Body = io.NopCloser(io.MultiReader(strings.NewReader(body[:size-1]), failing{}))
		w := httptest.NewRecorder()
		a.handler.ServeHTTP(w, r)
		if w.Code != http.StatusBadRequest {
			t.Errorf("%d bytes of which one is missing: %d %s", size, w.Code, w.Body)
		}
	}
}

// failing is the reading end of a cut connection.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
