package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/headgate/headgate/benchmarks/process"
)

// rules let everybody pass who has a key, and on /refused
// nobody but the first.
const rules = `domain: api
limits:
  - {name: user, match: {attributes: {user: {present: true}}}, key: [user], rate: 1000000/minute}
  - {name: key, match: {path: /}, key: ["header:X-Api-Key"], rate: 1000000/minute}
  - {name: refused, match: {path: /refused}, key: [path], rate: 1/day}
`

// proxyRules are those of a request through the proxy, which has no user.
const proxyRules = `domain: api
limits:
  - {name: key, match: {path: /}, key: ["header:X-Api-Key"], rate: 1000000/minute}
  - {name: refused, match: {path: /refused}, key: [path], rate: 1/day}
`

// servers are all that is running.
type servers struct {
	folder                                         string
	http, grpc, resp, proxy                        *process.Server // Headgate's
	upstream                                       *process.Server
	floorHTTP, floorGRPC, floorResp, floorReversed *process.Server
}

func startAll(ctx context.Context) (s servers, err error) {
	if s.folder, err = os.MkdirTemp("", "headgate-doors"); err != nil {
		return s, err
	}
	binary, ruleFile := filepath.Join(s.folder, "headgate"), filepath.Join(s.folder, "rules.yaml")
	if err := process.Headgate(ctx, binary); err != nil {
		return s, err
	}
	if err := os.WriteFile(ruleFile, []byte(rules), 0o600); err != nil {
		return s, err
	}
	proxyFile := filepath.Join(s.folder, "proxy.yaml")
	if err := os.WriteFile(proxyFile, []byte(proxyRules), 0o600); err != nil {
		return s, err
	}
	self, err := os.Executable()
	if err != nil {
		return s, err
	}
	var errs []error
	start := func(to **process.Server, command func(address string) []string) {
		server, err := process.Start(ctx, func(port string) []string { return command("127.0.0.1:" + port) })
		*to = server
		errs = append(errs, err)
	}
	headgate := func(to **process.Server, open string) {
		start(to, func(address string) []string {
			args := []string{binary, "serve", "--rules", ruleFile, "--log-level", "error"}
			for _, door := range []string{"api", "grpc", "resp", "admin"} {
				where := "off"
				if door == open {
					where = address
				}
				args = append(args, "--listen-"+door, where)
			}
			return args
		})
	}
	headgate(&s.http, "api")
	headgate(&s.grpc, "grpc")
	headgate(&s.resp, "resp")
	floor := func(to **process.Server, kind string) {
		start(to, func(address string) []string { return []string{self, "floor", kind, address} })
	}
	floor(&s.floorHTTP, "http")
	floor(&s.floorGRPC, "grpc")
	floor(&s.floorResp, "resp")
	floor(&s.upstream, "upstream")
	if err := errors.Join(errs...); err != nil {
		return s, err
	}
	to := "http://" + s.upstream.Address()
	start(&s.proxy, func(address string) []string {
		return []string{binary, "proxy", "--rules", proxyFile, "--log-level", "error", "--upstream", to, "--listen", address}
	})
	start(&s.floorReversed, func(address string) []string { return []string{self, "floor", "proxy", address, to} })
	if err := errors.Join(errs...); err != nil {
		return s, err
	}
	return s, first(ctx, "http://"+s.proxy.Address()+"/refused")
}

// first uses up what the limit of a page lets pass.
func first(ctx context.Context, page string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, page, http.NoBody)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

func (s *servers) stop() {
	for _, one := range []*process.Server{s.http, s.grpc, s.resp, s.proxy, s.upstream, s.floorHTTP, s.floorGRPC, s.floorResp, s.floorReversed} {
		one.Stop()
	}
	if s.folder != "" {
		_ = os.RemoveAll(s.folder)
	}
}

// doors returns what is compared with what.
func (s *servers) doors() []*door {
	of := func(at *process.Server, l load) side { return side{server: at, load: l} }
	// The reverse proxies answer the same requests: with a key, to the same
	// upstream. Its 429 is compared with the request that is forwarded.
	return []*door{
		{name: "HTTP /v1/check", goal: 1.6, floor: of(s.floorHTTP, check("")), door: of(s.http, check(`{"allowed":true,"rule":"user"`))},
		{name: "gRPC ShouldRateLimit", goal: 1.25, floor: of(s.floorGRPC, shouldRateLimit(0)), door: of(s.grpc, shouldRateLimit(1_000_000))},
		{name: "Redis protocol, CL.THROTTLE", goal: 1.3, floor: of(s.floorResp, throttle(1)), door: of(s.resp, throttle(1))},
		{name: "Redis protocol, 16 at a time", goal: 1.3, floor: of(s.floorResp, throttle(16)), door: of(s.resp, throttle(16))},
		{name: "proxy, forwarded", goal: 1.15, floor: of(s.floorReversed, get("/", 200, "")), door: of(s.proxy, get("/", 200, "X-Ratelimit-Remaining"))},
		{name: "proxy, refused with 429", goal: 0.4, floor: of(s.floorReversed, get("/", 200, "")), door: of(s.proxy, get("/refused", 429, "Retry-After"))},
	}
}

// serveFloor is a server that does nothing: args are its kind, its address and,
// of a proxy, that of the upstream.
func serveFloor(args []string) error {
	kind, address := args[0], args[1]
	switch kind {
	case "proxy":
		return serveProxy(address, args[2])
	case "http":
		return serveHTTP(address, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	case "upstream":
		return serveHTTP(address, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello\n") }))
	case "resp":
		return process.RESPFloor(address)
	case "grpc":
		l, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		server := grpc.NewServer()
		ratelimit.RegisterRateLimitServiceServer(server, alwaysOK{})
		return server.Serve(l)
	}
	return fmt.Errorf("there is no floor %q", kind)
}

// alwaysOK is the rate limit service that reads a request and says OK.
type alwaysOK struct {
	ratelimit.UnimplementedRateLimitServiceServer
}

// ShouldRateLimit implements the service.
func (alwaysOK) ShouldRateLimit(context.Context, *ratelimit.RateLimitRequest) (*ratelimit.RateLimitResponse, error) {
	return &ratelimit.RateLimitResponse{OverallCode: ratelimit.RateLimitResponse_OK}, nil
}

// serveProxy is httputil's proxy with nothing but an address. Its transport may
// keep its connections: with the default, of two for each host, it would dial
// for nearly every request, and be no floor.
func serveProxy(address, upstream string) error {
	to, err := url.Parse(upstream)
	if err != nil {
		return err
	}
	return serveHTTP(address, &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to); r.SetXForwarded() },
		Transport: &http.Transport{MaxIdleConns: 2048, MaxIdleConnsPerHost: 1024, DisableCompression: true},
	})
}

func serveHTTP(address string, h http.Handler) error {
	server := &http.Server{Addr: address, Handler: h, ReadHeaderTimeout: 10 * time.Second}
	return server.ListenAndServe()
}
