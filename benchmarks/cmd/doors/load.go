package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/benchmarks/process"
)

// keys is the number of different keys.
const keys = 100_000

// side is a server with its load, and the results.
type side struct {
	server  *process.Server
	load    load
	samples []float64 // seconds of processor time per million requests
}

// load is a kind of request. dial connects; the client then sends a request for a key and
// checks the answer.
type load struct {
	dial  func(address string) (client, error)
	batch int // requests per call of ask
}

type client interface {
	ask(ctx context.Context, key int) error
	Close() error
}

// measure sends n requests and returns the seconds of processor time that a million would
// take.
func (s *side) measure(ctx context.Context, n, connections int) (float64, error) {
	clients := make([]client, connections)
	for i := range clients {
		c, err := s.load.dial(s.server.Address())
		if err != nil {
			return 0, err
		}
		defer c.Close()
		clients[i] = c
	}
	before, err := s.server.CPU()
	if err != nil {
		return 0, err
	}
	var next atomic.Int64
	var group sync.WaitGroup
	errs := make([]error, connections)
	for i, c := range clients {
		group.Go(func() {
			for errs[i] == nil {
				key := int(next.Add(int64(s.load.batch))) - s.load.batch
				if key >= n || ctx.Err() != nil {
					return
				}
				errs[i] = c.ask(ctx, key%keys)
			}
		})
	}
	group.Wait()
	for _, err := range append(errs, ctx.Err()) {
		if err != nil {
			return 0, err // the first error is enough
		}
	}
	after, err := s.server.CPU()
	return (after - before) / float64(n) * 1e6, err
}

// connection sends raw bytes, so that the load costs little.
type connection struct {
	net.Conn
	in      *bufio.Reader
	out     []byte
	request func(dst []byte, key int) []byte
	answer  func(*bufio.Reader) error
}

func (c *connection) ask(_ context.Context, key int) error {
	c.out = c.request(c.out[:0], key)
	if _, err := c.Write(c.out); err != nil {
		return err
	}
	return c.answer(c.in)
}

// wire is a load with one connection per client.
func wire(batch int, request func(dst []byte, key int) []byte, answer func(*bufio.Reader) error) load {
	return load{batch: batch, dial: func(address string) (client, error) {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return nil, err
		}
		return &connection{Conn: c, in: bufio.NewReader(c), request: request, answer: answer}, nil
	}}
}

// number appends key with a fixed number of digits.
func number(dst []byte, key int) []byte { return fmt.Appendf(dst, "%08d", key) }

// check is POST /v1/check, answered with 200 and a body that starts with want.
func check(want string) load {
	const before, after = `{"domain":"api","attributes":{"user":"`, `"}}`
	head := fmt.Sprintf("POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(before)+8+len(after), before)
	return wire(1,
		func(dst []byte, key int) []byte { return append(number(append(dst, head...), key), after...) },
		func(in *bufio.Reader) error {
			_, body, err := readHTTP(in, 200)
			if err == nil && !strings.HasPrefix(body, want) {
				err = fmt.Errorf("answered %q", body)
			}
			return err
		})
}

// get is a request for path, answered with status and the header field want.
func get(path string, status int, want string) load {
	head := "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nUser-Agent: doors\r\nAccept: */*\r\nX-Api-Key: "
	return wire(1,
		func(dst []byte, key int) []byte { return append(number(append(dst, head...), key), "\r\n\r\n"...) },
		func(in *bufio.Reader) error {
			head, _, err := readHTTP(in, status)
			if err == nil && want != "" && head.Get(want) == "" {
				err = fmt.Errorf("answered without %s: %v", want, head)
			}
			return err
		})
}

// readHTTP reads an answer.
func readHTTP(in *bufio.Reader, status int) (head http.Header, body string, err error) {
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		return nil, "", err
	}
	content, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != status {
		err = fmt.Errorf("answered %q, %q, want %d", res.Status, content, status)
	}
	return res.Header, string(content), err
}

// throttle is CL.THROTTLE in pipelines of that length, all allowed.
func throttle(pipeline int) load {
	return wire(pipeline,
		func(dst []byte, key int) []byte {
			for i := range pipeline {
				dst = number(append(dst, "*5\r\n$11\r\nCL.THROTTLE\r\n$8\r\n"...), (key+i)%keys)
				dst = append(dst, "\r\n$7\r\n1000000\r\n$7\r\n1000000\r\n$2\r\n60\r\n"...)
			}
			return dst
		},
		func(in *bufio.Reader) error {
			for range pipeline {
				for i, want := range [...]string{"*5\r\n", ":0\r\n", ":1000001\r\n", "", ":-1\r\n", ""} {
					line, err := in.ReadSlice('\n')
					if err != nil {
						return err
					}
					if want != "" && string(line) != want {
						return fmt.Errorf("answer line %d is %q, want %q", i, line, want)
					}
				}
			}
			return nil
		})
}

// shouldRateLimit is a call of Envoy's service, answered with OK and, if limit is not 0, with
// that limit. Each client has a separate connection, like the workers of a gateway.
func shouldRateLimit(limit uint32) load {
	return load{batch: 1, dial: func(address string) (client, error) {
		c, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		return &caller{ClientConn: c, service: ratelimit.NewRateLimitServiceClient(c), limit: limit}, nil
	}}
}

type caller struct {
	*grpc.ClientConn
	service ratelimit.RateLimitServiceClient
	limit   uint32
}

func (c *caller) ask(ctx context.Context, key int) error {
	got, err := c.service.ShouldRateLimit(ctx, &ratelimit.RateLimitRequest{Domain: "api", Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: string(number(nil, key))}}},
	}})
	if err != nil {
		return err
	}
	if got.OverallCode != ratelimit.RateLimitResponse_OK {
		return fmt.Errorf("answered %v", got.OverallCode)
	}
	if c.limit != 0 && (len(got.Statuses) != 1 || got.Statuses[0].GetCurrentLimit().GetRequestsPerUnit() != c.limit) {
		return fmt.Errorf("answered %v, want a limit of %d", got.Statuses, c.limit)
	}
	return nil
}
