package admin

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/door/admin/dashboard"
)

// maxBody is the largest body of a request, in bytes.
const maxBody = 64 << 10

// problem is an error with its HTTP status.
type problem struct {
	status int
	text   string
}

func (p *problem) Error() string { return p.text }

func problemf(status int, format string, args ...any) error {
	return &problem{status, fmt.Sprintf(format, args...)}
}

func wrong(format string, args ...any) error { return problemf(http.StatusBadRequest, format, args...) }

// reply returns the value to send as JSON, or nil if it has already answered. An
// error that is not a problem means that a store does not answer.
type reply func(w http.ResponseWriter, r *http.Request) (any, error)

// ServeHTTP implements [http.Handler].
func (f reply) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out, err := f(w, r)
	if p, ok := errors.AsType[*problem](err); ok {
		answer.Problem(w, p.status, p.text)
	} else if err != nil {
		answer.Problem(w, http.StatusServiceUnavailable, err.Error())
	} else if out != nil {
		writeJSON(w, r, out)
	}
}

// asked serves f, and refuses query parameters other than known.
func asked(f reply, known ...string) http.Handler {
	return reply(func(w http.ResponseWriter, r *http.Request) (any, error) {
		for name, values := range r.URL.Query() {
			if !slices.Contains(known, name) {
				return nil, wrong("unknown parameter %q%s", name, nearestOf(name, known))
			}
			if len(values) > 1 {
				return nil, wrong("duplicate parameter %q", name)
			}
		}
		return f(w, r)
	})
}

// wrongParameter returns an error for a parameter whose value is not known.
func wrongParameter(name, value string, known []string) error {
	return wrong("%s is %q%s", name, value, nearestOf(value, known))
}

// nearestOf suggests the known word closest to text, or lists the known ones.
func nearestOf(text string, known []string) string {
	if near := nearest.Word(text, known); near != "" {
		return fmt.Sprintf(", did you mean %q?", near)
	}
	const most = 10
	list := strings.Join(known[:min(most, len(known))], ", ")
	switch {
	case len(known) == 0:
		return ""
	case len(known) > most:
		return fmt.Sprintf("; known are %s and %d more", list, len(known)-most)
	}
	return "; known are " + list
}

// numberParameter returns the parameter n, or usual if it is missing.
func numberParameter(r *http.Request, usual, least, most int) (int, error) {
	text := r.URL.Query().Get("n")
	n, err := strconv.Atoi(cmp.Or(text, strconv.Itoa(usual)))
	if err != nil || n < least || n > most {
		return 0, wrong("n is %q, must be a number from %d to %d", text, least, most)
	}
	return n, nil
}

// readBody returns the body of r.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, wrong("the body cannot be read: %v", err)
	}
	return body, nil
}

// decode reads a JSON object into out and refuses unknown fields.
func decode(body io.Reader, out any) error {
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	return decoder.Decode(out)
}

// emptyBody refuses a request whose body is neither empty nor {}.
func emptyBody(w http.ResponseWriter, r *http.Request) error {
	err := decode(http.MaxBytesReader(w, r.Body, maxBody), &struct{}{})
	if err != nil && !errors.Is(err, io.EOF) {
		return wrong("the body must be empty or {}: %v", err)
	}
	return nil
}

// writeJSON answers with v as JSON.
func writeJSON(w http.ResponseWriter, r *http.Request, v any) {
	const short = 2048 // not worth compressing
	body, err := json.Marshal(v)
	if err != nil {
		answer.Problem(w, http.StatusInternalServerError, "the response could not be encoded")
		return
	}
	body = append(body, '\n')
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept-Encoding")
	if len(body) <= short || !dashboard.TakesGzip(r.Header.Values("Accept-Encoding")) {
		_, _ = w.Write(body)
		return
	}
	h.Set("Content-Encoding", "gzip")
	z := gzip.NewWriter(w)
	_, _ = z.Write(body)
	_ = z.Close()
}
