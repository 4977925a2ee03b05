package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/headgate/headgate/benchmarks/process"
)

// rules allow every request with a key, and only the first to /refused.
const rules = proxyRules + "  - {name: user, match: {attributes: {user: {present: true}}}, key: [user], rate: 1000000/minute}\n"

// proxyRules are rules for the proxy, whose requests have no user.
const proxyRules = `domain: api
limits:
  - {name: key, match: {path: /}, key: ["header:X-Api-Key"], rate: 1000000/minute}
  - {name: refused, match: {path: /refused}, key: [path], rate: 1/day}
`

// start starts all servers and returns the comparisons.
func start(g *process.Group) ([]*door, error) {
	upstream := g.Floor("upstream")
	to := "http://" + upstream.Address()
	of := func(at *process.Server, l load) side { return side{server: at, load: l} }
	resp, floorResp := g.Door("resp", rules), g.Floor("resp")
	// The reverse proxies answer the same requests with the same upstream. A 429 is compared
	// with a forwarded request.
	proxy, reversed := g.Proxy(proxyRules, to), g.Floor("proxy", to)
	doors := []*door{
		{
			name: "HTTP /v1/check", goal: 1.6,
			floor: of(g.Floor("http"), check("")), door: of(g.Door("api", rules), check(`{"allowed":true,"rule":"user"`)),
		},
		{
			name: "gRPC ShouldRateLimit", goal: 1.25,
			floor: of(g.Floor("grpc"), shouldRateLimit(0)), door: of(g.Door("grpc", rules), shouldRateLimit(1_000_000)),
		},
		{name: "Redis protocol, CL.THROTTLE", goal: 1.3, floor: of(floorResp, throttle(1)), door: of(resp, throttle(1))},
		{name: "Redis protocol, 16 at a time", goal: 1.3, floor: of(floorResp, throttle(16)), door: of(resp, throttle(16))},
		{name: "proxy, forwarded", goal: 1.15, floor: of(reversed, get("/", 200, "")), door: of(proxy, get("/", 200, "X-Ratelimit-Remaining"))},
		{name: "proxy, refused with 429", goal: 0.4, floor: of(reversed, get("/", 200, "")), door: of(proxy, get("/refused", 429, "Retry-After"))},
	}
	if g.Err != nil {
		return nil, g.Err
	}
	res, err := http.Get("http://" + proxy.Address() + "/refused") // uses up the limit
	if err != nil {
		return nil, err
	}
	return doors, res.Body.Close()
}

// serveFloor runs a floor. args are its kind, its address and, for a proxy, the upstream.
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
	return fmt.Errorf("unknown floor %q", kind)
}

// alwaysOK is a rate limit service that reads the request and answers OK.
type alwaysOK struct {
	ratelimit.UnimplementedRateLimitServiceServer
}

// ShouldRateLimit implements the service.
func (alwaysOK) ShouldRateLimit(context.Context, *ratelimit.RateLimitRequest) (*ratelimit.RateLimitResponse, error) {
	return &ratelimit.RateLimitResponse{OverallCode: ratelimit.RateLimitResponse_OK}, nil
}

// serveProxy is httputil.ReverseProxy with an address only. Its transport keeps its
// connections: with the default of two per host it would dial for nearly every request, and be
// no floor.
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
