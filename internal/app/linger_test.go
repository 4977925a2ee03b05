package app_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/app"
)

// TestLongBodiesGetTheirAnswer: a client that sends all of a long body before it
// reads sees why it was refused, not a connection that was reset.
func TestLongBodiesGetTheirAnswer(t *testing.T) {
	f := run(t, "domain: api\nlimits: [{name: none, rate: 0/minute}]\n", http.NotFoundHandler())
	const size = 8 << 20
	long := bytes.Repeat([]byte("x"), size)
	for _, row := range []struct {
		door, path string
		status     int
	}{
		{app.DoorAPI, "/v1/check", http.StatusRequestEntityTooLarge},
		{app.DoorAPI, "/v1/reserve", http.StatusRequestEntityTooLarge},
		{app.DoorAPI, "/v1/release", http.StatusRequestEntityTooLarge},
		{app.DoorAPI, "/v1/explain", http.StatusRequestEntityTooLarge},
		{app.DoorProxy, "/upload", http.StatusTooManyRequests},
	} {
		for _, field := range []string{fmt.Sprintf("Content-Length: %d\r\n\r\n", size), fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n", size)} {
			nc, err := net.Dial("tcp", f.Addr(row.door))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = nc.Close() }()
			_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
			if _, err := io.WriteString(nc, "POST "+row.path+" HTTP/1.1\r\nHost: 127.0.0.1\r\n"+field); err != nil {
				t.Fatal(err)
			}
			if _, err := nc.Write(long); err != nil {
				t.Errorf("%s %s: %v", row.path, field[:8], err)
				continue
			}
			if field[0] == 'T' {
				_, _ = io.WriteString(nc, "\r\n0\r\n\r\n")
			}
			from := bufio.NewReader(nc)
			res, err := http.ReadResponse(from, nil)
			if err != nil {
				t.Errorf("%s %s: %v", row.path, field[:8], err)
				continue
			}
			_, err = io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err != nil || res.StatusCode != row.status || !res.Close {
				t.Errorf("%s %s: %d, closes %v, %v", row.path, field[:8], res.StatusCode, res.Close, err)
			}
			if _, err := from.ReadByte(); !errors.Is(err, io.EOF) {
				t.Errorf("%s %s: the connection ends with %v", row.path, field[:8], err)
			}
		}
	}
}
