package answer

import (
	"errors"
	"fmt"
	"net/http"
	"os"
)

// Unread answers a request whose body could not be read, for err: with 413 if it
// is an http.MaxBytesError, 408 if the body did not arrive in time, else 400. A
// client that sends all of a large body before it reads gets the answer too.
func Unread(w http.ResponseWriter, r *http.Request, err error) {
	if big, ok := errors.AsType[*http.MaxBytesError](err); ok {
		w.Header().Set("Connection", "close")
		if r.ContentLength < 0 || r.Header["Expect"] == nil { // else it waits to be asked for more
			defer Linger(w, r, r.Body)()
		}
		Problem(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body must be at most %d bytes", big.Limit))
		return
	}
	if errors.Is(err, ErrManyBodies) || errors.Is(err, ErrManyLarge) {
		defer Unwanted(w, r, r.Body)()
		w.Header().Set("Retry-After", "1")
		Problem(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		Problem(w, http.StatusRequestTimeout, "the body did not arrive in time")
		return
	}
	Problem(w, http.StatusBadRequest, "the body could not be read")
}
