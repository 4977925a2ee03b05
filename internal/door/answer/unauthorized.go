package answer

import (
	"net/http"
	"strings"
)

// Unauthorized answers 401 to a request with a token that is no good. err says
// why in words that the client may read.
func Unauthorized(w http.ResponseWriter, err error) {
	w.Header().Set("Www-Authenticate", `Bearer error="invalid_token", error_description="`+quotable(err.Error())+`"`)
	Problem(w, http.StatusUnauthorized, err.Error())
}

// quotable keeps of text what may stand in error_description (RFC 6750, 3):
// printable ASCII without quotes and backslashes.
func quotable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r > 0x7e || r == '"' || r == '\\' {
			return -1
		}
		return r
	}, text)
}
