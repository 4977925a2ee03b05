package admin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/door/answer"
)

// maxBody is how large the body of a request may be.
const maxBody = 64 << 10

// onlyParameters refuses a request with query parameters other than known.
func onlyParameters(w http.ResponseWriter, r *http.Request, known ...string) bool {
	for name, values := range r.URL.Query() {
		if !slices.Contains(known, name) {
			answer.Problem(w, http.StatusBadRequest, fmt.Sprintf("there is no parameter %q%s", name, nearestOf(name, known)))
			return false
		}
		if len(values) > 1 {
			answer.Problem(w, http.StatusBadRequest, fmt.Sprintf("the parameter %q is there twice", name))
			return false
		}
	}
	return true
}

// wrongParameter answers a request whose parameter has none of the known values.
func wrongParameter(w http.ResponseWriter, name, value string, known []string) {
	answer.Problem(w, http.StatusBadRequest, fmt.Sprintf("%s is %q%s", name, value, nearestOf(value, known)))
}

// nearestOf says what may have been meant, or what there is.
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
		return fmt.Sprintf("; there are %s and %d more", list, len(known)-most)
	}
	return "; there are " + list
}

// numberParameter returns the parameter n, or usual if it is not there.
func numberParameter(w http.ResponseWriter, r *http.Request, usual, least, most int) (int, bool) {
	text := r.URL.Query().Get("n")
	n, err := strconv.Atoi(cmp.Or(text, strconv.Itoa(usual)))
	if err != nil || n < least || n > most {
		answer.Problem(w, http.StatusBadRequest, fmt.Sprintf("n is %q; it must be a number from %d to %d", text, least, most))
		return 0, false
	}
	return n, true
}

// readBody returns the body of r.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		answer.Problem(w, http.StatusBadRequest, fmt.Sprintf("the body cannot be read: %v", err))
	}
	return body, err == nil
}

// decode reads a JSON object that has no other fields than out.
func decode(body io.Reader, out any) error {
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	return decoder.Decode(out)
}

// emptyBody refuses a request with contents.
func emptyBody(w http.ResponseWriter, r *http.Request) bool {
	err := decode(http.MaxBytesReader(w, r.Body, maxBody), &struct{}{})
	if err != nil && !errors.Is(err, io.EOF) {
		answer.Problem(w, http.StatusBadRequest, fmt.Sprintf("the body must be empty or {}: %v", err))
		return false
	}
	return true
}

// writeJSON answers with v.
func writeJSON(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		answer.Problem(w, http.StatusInternalServerError, "the answer cannot be encoded")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(body, '\n'))
}
