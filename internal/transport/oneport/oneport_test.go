package oneport_test

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/internal/testkit/certtest"
	"github.com/headgate/headgate/internal/transport/certs"
	"github.com/headgate/headgate/internal/transport/oneport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTell(t *testing.T) {
	for head, want := range map[string]oneport.Protocol{
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": oneport.GRPC,
		"GET / HTTP/1.1\r\n":               oneport.HTTP,
		"POST /v1/check HTTP/1.1\r\n":      oneport.HTTP,
		"PUT / HTTP/1.1\r\n":               oneport.HTTP,
		"PATCH / HTTP/1.1\r\n":             oneport.HTTP,
		"HEAD / HTTP/1.1\r\n":              oneport.HTTP,
		"DELETE / HTTP/1.1\r\n":            oneport.HTTP,
		"OPTIONS * HTTP/1.1\r\n":           oneport.HTTP,
		"CONNECT x:1 HTTP/1.1\r\n":         oneport.HTTP,
		"TRACE / HTTP/1.1\r\n":             oneport.HTTP,
		"\x16\x03\x01\x02":                 oneport.HTTP, // TLS where there is none
		"*1\r\n$4\r\nPING\r\n":             oneport.RESP,
		"PING\r\n":                         oneport.RESP,
		"HELLO 3\r\n":                      oneport.RESP,
		"COMMAND DOCS\r\n":                 oneport.RESP,
		"CLIENT ID\r\n":                    oneport.RESP,
		"hg.check api user ann\r\n":        oneport.RESP,
		"\r\n":                             oneport.RESP,
		"\x00":                             oneport.RESP,
	} {
		for i := range len(head) + 1 {
			of, known := oneport.Tell([]byte(head[:i]))
			if i == len(head) && !known || i >= 8 && !known || known && of != want {
				t.Errorf("%q: %s %t, want %s", head[:i], of, known, want)
			}
		}
	}
}

func FuzzTell(f *testing.F) {
	f.Add([]byte("PRI * HTTP/2.0"))
	f.Add([]byte("POST "))
	f.Fuzz(func(t *testing.T, head []byte) {
		of, known := oneport.Tell(head)
		if !known && len(head) >= 8 {
			t.Fatalf("%q: unknown", head)
		}
		if more, still := oneport.Tell(append(slices.Clip(head), "xyz"...)); known && (!still || more != of) {
			t.Fatalf("%q: %s, and with more bytes %s", head, of, more)
		}
	})
}

// echo serves a port whose doors send their name and then what they receive.
func echo(t *testing.T, o oneport.Options) *oneport.Port {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := oneport.New(l, o)
	done := make(chan error, 4)
	var doors []net.Listener
	for _, of := range []oneport.Protocol{oneport.HTTP, oneport.GRPC, oneport.RESP} {
		door := p.Listener(of)
		doors = append(doors, door)
		go func() {
			for {
				c, err := door.Accept()
				if err != nil {
					done <- nil
					return
				}
				go func() {
					defer func() { _ = c.Close() }()
					_, _ = io.WriteString(c, of.String()+":")
					_, _ = io.Copy(c, c)
				}()
			}
		}()
	}
	go func() { done <- p.Serve() }()
	t.Cleanup(func() {
		_ = p.Close()
		for _, d := range doors {
			_ = d.Close()
		}
		for range 4 {
			if err := <-done; err != nil {
				t.Errorf("Serve: %v", err)
			}
		}
	})
	return p
}

func dial(t *testing.T, p *oneport.Port) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", p.Listener(oneport.HTTP).Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	tc, ok := c.(*net.TCPConn)
	if !ok {
		t.Fatal("not TCP")
	}
	return tc
}

// No byte is lost, however the first ones are split.
func TestEveryByteArrives(t *testing.T) {
	p := echo(t, oneport.Options{})
	for _, text := range []string{"POST / HTTP/1.1\r\n", "PRI * HTTP/2.0\r\n", "*1\r\n$4\r\nPING\r\n", "OPTIONS * HTTP/1.1", strings.Repeat("x", 100_000)} {
		for _, cut := range []int{1, 2, 3, 5, 8, 9} {
			c := dial(t, p)
			go func() {
				_, _ = io.WriteString(c, text[:cut])
				runtime.Gosched()
				_, _ = io.WriteString(c, text[cut:])
				_ = c.CloseWrite()
			}()
			got, err := io.ReadAll(c)
			of, _ := oneport.Tell([]byte(text))
			if want := of.String() + ":" + text; err != nil || string(got) != want {
				t.Errorf("%.20q cut at %d: %.40q, %v", text, cut, got, err)
			}
		}
	}
}

// Connections that send nothing or too little, or do not finish a handshake, are closed,
// and do not delay others.
func TestSilence(t *testing.T) {
	a := certtest.New(t)
	cert, key := a.Issue("server", 2)
	server, err := certs.Load(certs.Files{Cert: cert, Key: key}, certs.Options{Protocols: oneport.Protocols(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]oneport.Options{"plain": {}, "TLS": {TLS: server.Config()}} {
		o.Timeout = time.Second
		p := echo(t, o)
		var silent []*net.TCPConn
		for i := range 300 {
			c := dial(t, p)
			if i%2 == 0 {
				_, _ = io.WriteString(c, "PO"[:1+i%4/2])
			}
			silent = append(silent, c)
		}
		if name == "plain" {
			c := dial(t, p)
			_, _ = io.WriteString(c, "GET / ")
			_ = c.CloseWrite()
			if got, err := io.ReadAll(c); err != nil || string(got) != "http:GET / " {
				t.Errorf("next to them: %q, %v", got, err)
			}
		}
		for _, c := range silent {
			if got, err := io.ReadAll(c); errors.Is(err, errTimeout(err)) || strings.Contains(string(got), ":") {
				t.Fatalf("%s: %q, %v", name, got, err)
			}
		}
	}
}

// errTimeout returns err if it is a deadline.
func errTimeout(err error) error {
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return err
	}
	return errNever
}

var errNever = errors.New("never")

// Close closes connections that have sent nothing.
func TestClose(t *testing.T) {
	p := echo(t, oneport.Options{Timeout: time.Hour})
	c := dial(t, p)
	known := dial(t, p)
	_, _ = io.WriteString(known, "PING\r\n")
	if _, err := io.ReadFull(known, make([]byte, len("resp:PING\r\n"))); err != nil {
		t.Fatal(err)
	}
	_ = p.Close()
	if _, err := io.ReadAll(c); errors.Is(err, errTimeout(err)) {
		t.Error(err)
	}
	_, _ = io.WriteString(known, "PONG\r\n")
	if _, err := io.ReadFull(known, make([]byte, len("PONG\r\n"))); err != nil {
		t.Errorf("what was handed on: %v", err)
	}
	_ = known.CloseWrite()
}
