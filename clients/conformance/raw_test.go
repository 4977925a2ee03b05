package conformance

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

const allowed = `{"allowed":true,"reason":"ok"}`

// raw serves answers that no server of Go's library gives:
//
//	negative   a negative length
//	bytes      a good answer, byte by byte: after other answers to come, in chunks, with trailers. Its
//	           end comes at once: Java takes the first byte of it for all, and then races with the others
//	chunks     a good answer behind 200,000 chunks of a byte
//	heads      answers to come, without end
//	twice      two answers to one request
//	unasked    a good answer, and another one when the channel says so, before the next request. Who
//	           looks for that between requests has the time to
func raw(t *testing.T, what string, unasked chan struct{}) string {
	t.Helper()
	const end = "0\r\nX-Sum: 1\r\n\r\n"
	const ok, chunked = "HTTP/1.1 200 OK\r\n", "Transfer-Encoding: chunked\r\n\r\n"
	const good, refused = ok + "Content-Length: 30\r\n\r\n" + allowed, "HTTP/1.1 429 No\r\nContent-Length: 36\r\n\r\n" + `{"allowed":false,"reason":"limited"}`
	answers := map[string]string{
		"negative": ok + "Content-Length: -5\r\n\r\n" + allowed,
		"bytes":    "HTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\n" + ok + "Trailer: X-Sum\r\n" + chunked + "4;x=y\r\n" + allowed[:4] + "\r\n1a\r\n" + allowed[4:] + "\r\n" + end,
		"chunks":   ok + chunked + strings.Repeat("1\r\n \r\n", 200_000) + "1e\r\n" + allowed + "\r\n0\r\n\r\n",
		"heads":    strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100_000),
		"twice":    good + refused,
		"unasked":  good,
	}
	answer, known := answers[what]
	if !known {
		t.Fatalf("unknown server %q", what)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	serve := func(c net.Conn) {
		defer func() { _ = c.Close() }()
		for in := bufio.NewReader(c); ; {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			switch what {
			case "bytes":
				for i := range len(answer) - len(end) {
					_, _ = io.WriteString(c, answer[i:i+1])
				}
				_, _ = io.WriteString(c, end)
			case "unasked":
				_, _ = io.WriteString(c, answer)
				<-unasked
				_, _ = io.WriteString(c, refused)
				_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
				_, _ = in.Peek(1)
				_ = c.SetReadDeadline(time.Time{})
				unasked <- struct{}{}
			default:
				_, _ = io.WriteString(c, answer)
			}
			if what == "heads" {
				return
			}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return l.Addr().String()
}
