package conformance

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// request sends a request to the application that the runner serves.
func (r *runner) request(t *testing.T, s *step) any {
	t.Helper()
	text := func(name string) string { v, _ := s.With[name].(string); return v }
	base, _ := r.saved["url"].(string)
	address := strings.TrimPrefix(base, "http://")
	if text("method") == http.MethodHead {
		return head(t, address, text("path"))
	}
	if s.With["hold"] == true {
		return r.hold(t, address, text("path"))
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+text("path"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if plan := text("plan"); plan != "" {
		request.Header.Set("X-Plan", plan)
	}
	fields, _ := s.With["headers"].(map[string]any)
	for name, value := range fields {
		request.Header.Set(name, fmt.Sprint(value))
	}
	answer, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return shown(answer, string(body))
}

// head sends a HEAD request. Its body is all that follows the head of the answer, where
// clients expect the next answer.
func head(t *testing.T, address, path string) any {
	t.Helper()
	c := send(t, http.MethodHead, address, path)
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	answer, err := http.ReadResponse(in, &http.Request{Method: http.MethodHead})
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	body, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	return shown(answer, string(body))
}

// hold sends a request, and lets the answer go on until the runner lets it go; one that is refused ends at once.
func (r *runner) hold(t *testing.T, address, path string) any {
	t.Helper()
	c := send(t, http.MethodGet, address, path)
	r.held = func() { _ = c.Close() }
	var version string
	var status float64
	if _, err := fmt.Fscanf(c, "%s %g", &version, &status); err != nil {
		t.Fatal(err)
	}
	if status != http.StatusOK {
		r.held()
	}
	return map[string]any{"status": status}
}

// send sends a request on a connection of its own.
func send(t *testing.T, method, address, path string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", method, path, address); err != nil {
		t.Fatal(err)
	}
	return c
}

func shown(answer *http.Response, body string) map[string]any {
	headers := map[string]any{}
	for name := range answer.Header {
		headers[strings.ToLower(name)] = answer.Header.Get(name)
	}
	return map[string]any{"status": float64(answer.StatusCode), "headers": headers, "body": body}
}
