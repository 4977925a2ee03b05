package proxy

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/headgate/headgate/internal/answer"
)

// maxForwards is how many more servers a TRACE or OPTIONS may reach (RFC 9110, 7.6.2).
const maxForwards = "Max-Forwards"

// hops returns how many more servers r may reach, at most 2^32-1. It reports limited if
// that is said, and valid unless it is not a number.
func hops(r *http.Request) (n uint64, limited, valid bool) {
	values := r.Header[maxForwards]
	if len(values) == 0 || r.Method != http.MethodTrace && r.Method != http.MethodOptions {
		return 0, false, true
	}
	n, err := strconv.ParseUint(values[0], 10, 32)
	return n, true, len(values) == 1 && (err == nil || errors.Is(err, strconv.ErrRange))
}

// endsHere answers a request that may not reach the upstream, and reports whether it did.
func endsHere(w http.ResponseWriter, r *http.Request) bool {
	n, limited, valid := hops(r)
	if !limited || valid && n > 0 {
		return false
	}
	defer answer.Unwanted(w, r, whole(r.Body))()
	switch {
	case !valid:
		answer.Problem(w, http.StatusBadRequest, "Max-Forwards must be one number")
	case r.Method == http.MethodTrace:
		// An echo would show the fields that proxies in front have added.
		w.Header().Set("Allow", http.MethodOptions)
		answer.Problem(w, http.StatusMethodNotAllowed, "Max-Forwards is 0, and this proxy does not answer TRACE itself")
	default:
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusOK)
	}
	return true
}
