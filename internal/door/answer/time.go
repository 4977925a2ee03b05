package answer

import (
	"net/http"
	"strconv"
	"time"
)

// TimeField names the header field in which a door tells when it decided about
// the request, for access logs: a replay of those decides at the very same
// times.
const TimeField = "X-Headgate-Time"

// TellTime sets [TimeField]: seconds since the Unix epoch, with six digits
// after the point, which is as fine as limits count.
func TellTime(h http.Header, at time.Time) {
	const second = 1_000_000
	micros := at.UnixMicro()
	text := strconv.AppendInt(make([]byte, 0, 20), micros/second, 10)
	text = append(text, '.')
	from := len(text)
	text = strconv.AppendInt(text, second+micros%second, 10) // a 1 and six digits
	h[TimeField] = []string{string(append(text[:from], text[from+1:]...))}
}
