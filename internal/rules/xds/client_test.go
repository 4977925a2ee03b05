package xds_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	conf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/rules/xds"
	"github.com/headgate/headgate/internal/transport/certs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const node = "envoy-ratelimit"

// plane is a control plane as Envoy Gateway has one.
type plane struct {
	address  string
	cache    cache.SnapshotCache
	requests chan *discovery.DiscoveryRequest
	stop     func()
	refused  string // the last reason
}

// startPlane opens a control plane; an empty address chooses one.
func startPlane(t *testing.T, address string, options ...grpc.ServerOption) *plane {
	t.Helper()
	if address == "" {
		address = "127.0.0.1:0"
	}
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	p := &plane{
		address: l.Addr().String(), requests: make(chan *discovery.DiscoveryRequest, 100),
		cache: cache.NewSnapshotCache(true, cache.IDHash{}, nil),
	}
	ctx, cancel := context.WithCancel(context.Background())
	heard := server.CallbackFuncs{StreamRequestFunc: func(_ int64, r *discovery.DiscoveryRequest) error {
		p.requests <- r
		return nil
	}}
	s := grpc.NewServer(options...)
	discovery.RegisterAggregatedDiscoveryServiceServer(s, server.NewServer(ctx, p.cache, heard))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	p.stop = sync.OnceFunc(func() {
		s.Stop()
		cancel()
		<-done
	})
	t.Cleanup(p.stop)
	return p
}

// set publishes a snapshot.
func (p *plane) set(t *testing.T, version string, configs ...types.Resource) {
	t.Helper()
	s, err := cache.NewSnapshot(version, map[string][]types.Resource{xds.TypeURL: configs})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cache.SetSnapshot(t.Context(), node, s); err != nil {
		t.Fatal(err)
	}
}

// next waits for what the client says next.
func (p *plane) next(t *testing.T) *discovery.DiscoveryRequest {
	t.Helper()
	select {
	case r := <-p.requests:
		return r
	case <-time.After(20 * time.Second):
		t.Fatal("the client says nothing")
		return nil
	}
}

// expect waits for the answer to a snapshot: the active version, and a part
// of the reason if another was refused.
func (p *plane) expect(t *testing.T, version, reason string) {
	t.Helper()
	r := p.next(t)
	for reason == "" && r.GetErrorDetail() != nil && r.GetErrorDetail().GetMessage() == p.refused {
		r = p.next(t) // this cache sends again what was refused
	}
	detail := r.GetErrorDetail().GetMessage()
	p.refused = detail
	if r.GetVersionInfo() != version || (reason == "") != (r.GetErrorDetail() == nil) || !strings.Contains(detail, reason) {
		t.Fatalf("client in version %q says %q, want version %q and %q", r.GetVersionInfo(), detail, version, reason)
	}
	if r.GetTypeUrl() != xds.TypeURL || r.GetNode().GetId() != node {
		t.Errorf("request of %q for %q", r.GetNode().GetId(), r.GetTypeUrl())
	}
}

// await waits until something is true.
func await(t *testing.T, is func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	timeout := time.After(20 * time.Second)
	for !is() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatal("it never became true")
		}
	}
}

// ruler compiles rules as the process does.
type ruler struct {
	mu      sync.Mutex
	set     *rules.Ruleset
	applied int
	log     lockedText // of the client
}

func (r *ruler) apply(sources []rulefile.Source) error {
	set, diagnostics := rulefile.Parse(sources...)
	if set == nil {
		return diagnostic.Problems(diagnostics)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set = set
	r.applied++
	return nil
}

// limits lists the active rules, as domain:limit.
func (r *ruler) limits() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, rule := range r.set.Rules() {
		out = append(out, fmt.Sprintf("%s:%d", rule.Domain, rule.Limit.N()))
	}
	return strings.Join(out, " ")
}

// follow runs a client until the test ends or stop is called.
func follow(t *testing.T, o xds.Options) (r *ruler, c *xds.Client, stop func()) {
	t.Helper()
	r = &ruler{}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(&r.log, nil))
	}
	if o.Apply == nil {
		o.Apply = r.apply
	}
	o.NodeID = node
	o.Backoff = xds.Backoff{Base: 5 * time.Millisecond, Max: 20 * time.Millisecond}
	c, err := xds.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(stop)
	return r, c, stop
}

// config returns a configuration with one limit a minute.
func config(name, domain string, limit uint32) *conf.RateLimitConfig {
	return &conf.RateLimitConfig{Name: name, Domain: domain, Descriptors: []*conf.RateLimitDescriptor{{
		Key: "user", RateLimit: &conf.RateLimitPolicy{Unit: conf.RateLimitUnit_MINUTE, RequestsPerUnit: limit},
	}}}
}

// bad returns one that the rules refuse.
func bad(name, domain string) *conf.RateLimitConfig {
	c := config(name, domain, 1)
	c.Descriptors[0].RateLimit.Unit = conf.RateLimitUnit_UNKNOWN
	return c
}

// What happens between Envoy Gateway and a rate-limit service in a week.
func TestClientFollowsAControlPlane(t *testing.T) {
	p := startPlane(t, "")
	r, _, _ := follow(t, xds.Options{Address: p.address})
	p.expect(t, "", "") // the first request

	p.set(t, "1", config("b", "second", 20), config("a", "first", 10))
	p.expect(t, "1", "")
	if got := r.limits(); got != "first:10 second:20" {
		t.Errorf("first snapshot: %s", got)
	}

	p.set(t, "2", config("a", "first", 11), config("b", "second", 20))
	p.expect(t, "2", "")
	if got := r.limits(); got != "first:11 second:20" {
		t.Errorf("update: %s", got)
	}

	p.set(t, "3", config("a", "first", 99), bad("b", "second"))
	p.expect(t, "2", "xds:b")
	if got := r.limits(); got != "first:11 second:20" {
		t.Errorf("after a bad snapshot: %s, want the previous rules", got)
	}
	if log := r.log.String(); r.applied != 2 || strings.Count(log, "refused") != 1 || !strings.Contains(log, "version=3") {
		t.Errorf("after a bad snapshot: %d were accepted; %s", r.applied, log)
	}

	p.set(t, "4", config("a", "first", 12))
	p.expect(t, "4", "")
	if got := r.limits(); got != "first:12" {
		t.Errorf("a resource removed: %s", got)
	}
	if log := r.log.String(); strings.Count(log, "refused") != 1 || strings.Contains(log, "no connection") {
		t.Errorf("after a good snapshot: %s", log)
	}

	p.set(t, "5")
	p.expect(t, "5", "")
	if got := r.limits(); got != "" {
		t.Errorf("all removed: %s", got)
	}
}

// A control plane that restarts counts its versions from one again; a client that sent
// the last version would not receive changes.
func TestControlPlaneRestarts(t *testing.T) {
	p := startPlane(t, "")
	r, _, _ := follow(t, xds.Options{Address: p.address})
	p.expect(t, "", "")
	p.set(t, "1", config("a", "first", 10))
	p.expect(t, "1", "")
	p.stop()

	same := startPlane(t, p.address)
	same.set(t, "7", config("a", "first", 10))
	same.expect(t, "", "")
	same.expect(t, "7", "")
	if r.applied != 1 {
		t.Errorf("%d times applied, want the same rules left alone", r.applied)
	}
	same.stop()

	changed := startPlane(t, p.address)
	changed.set(t, "7", config("a", "first", 15))
	changed.expect(t, "", "")
	changed.expect(t, "7", "")
	if got := r.limits(); got != "first:15" {
		t.Errorf("after the restart: %s", got)
	}
	if log := r.log.String(); strings.Count(log, "connected to the control plane") != 3 || strings.Count(log, "no connection") != 2 {
		t.Errorf("after the restart: %s", log)
	}
}

func TestUnreachableControlPlane(t *testing.T) {
	p := startPlane(t, "")
	p.stop()
	var log lockedText
	r := &ruler{}
	c, err := xds.New(xds.Options{
		Address: p.address, NodeID: node, Apply: r.apply, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Backoff: xds.Backoff{Base: time.Millisecond, Max: 2 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx)
	}()
	await(t, func() bool { return strings.Contains(log.String(), "no connection") })
	back := startPlane(t, p.address)
	back.set(t, "1", config("a", "first", 10))
	back.expect(t, "", "")
	back.expect(t, "1", "")
	cancel()
	<-done
	if n := strings.Count(log.String(), "no connection"); n != 1 {
		t.Errorf("said %d times that there is no connection, want once per outage:\n%s", n, log.String())
	}
}

type lockedText struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// The cache of go-control-plane sends what was refused again at once. Without
// a pause both sides would be busy with nothing else; but a better snapshot has
// to come through.
func TestRefusedSnapshotIsNotRefusedInALoop(t *testing.T) {
	p := startPlane(t, "")
	var tries atomic.Int32
	r, _, _ := follow(t, xds.Options{
		Address: p.address,
		Apply: func(s []rulefile.Source) error {
			if strings.Contains(string(s[0].Data), "domain: \"bad\"") {
				tries.Add(1)
				return errors.New("bad")
			}
			return nil
		},
	})
	p.expect(t, "", "")
	p.set(t, "1", config("a", "bad", 1))
	p.expect(t, "", "bad")
	p.expect(t, "", "bad")
	p.set(t, "2", config("a", "good", 1))
	p.expect(t, "2", "")
	if n, told := tries.Load(), strings.Count(r.log.String(), "refused"); n != 1 || told != 1 {
		t.Errorf("%d tries of the same snapshot, %d refusals told of, want 1 and 1", n, told)
	}
}

// A refused snapshot that an operator has activated is accepted for the control plane
// too, and the previous one is a change.
func TestOverruledRefusals(t *testing.T) {
	p := startPlane(t, "")
	var inForce atomic.Value
	_, c, _ := follow(t, xds.Options{
		Address: p.address,
		Apply: func(s []rulefile.Source) error {
			if strings.Contains(string(s[0].Data), "domain: \"small\"") {
				return errors.New("rules are gone")
			}
			inForce.Store(string(s[0].Data))
			return nil
		},
	})
	p.expect(t, "", "")
	p.set(t, "1", config("a", "large", 1))
	p.expect(t, "1", "")
	p.set(t, "2", config("a", "small", 1))
	p.expect(t, "1", "gone")
	inForce.Store("small")
	c.Overrule()
	p.expect(t, "2", "")
	p.set(t, "3", config("a", "large", 1))
	p.expect(t, "3", "")
	if text, _ := inForce.Load().(string); !strings.Contains(text, "large") {
		t.Errorf("active is %q", text)
	}
	p.set(t, "4", config("a", "small", 1))
	p.expect(t, "3", "gone")
}

func TestReasonsAreBounded(t *testing.T) {
	p := startPlane(t, "")
	long := errors.New(strings.Repeat("é", 10_000))
	follow(t, xds.Options{Address: p.address, Apply: func([]rulefile.Source) error { return long }})
	p.expect(t, "", "")
	p.set(t, "1", config("a", "first", 1))
	r := p.next(t)
	if got := r.GetErrorDetail().GetMessage(); len(got) > 5000 || !strings.HasSuffix(got, "é …") {
		t.Errorf("a reason of %d bytes, ending in %q", len(got), got[len(got)-10:])
	}
}

func TestMutualTLS(t *testing.T) {
	a := newAuthority(t)
	pair, err := tls.LoadX509KeyPair(a.issue(t, "server", "control-plane"))
	if err != nil {
		t.Fatal(err)
	}
	p := startPlane(t, "", grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.pool, MinVersion: tls.VersionTLS13,
	})))
	p.set(t, "1", config("a", "first", 10))
	cert, key := a.issue(t, "client", "headgate")
	rows := []struct {
		name  string
		files *certs.ClientFiles
		want  string // of the failure; empty if there is none
	}{
		{"all is well", &certs.ClientFiles{CA: a.file, Cert: cert, Key: key, ServerName: "control-plane"}, ""},
		{"another name", &certs.ClientFiles{CA: a.file, Cert: cert, Key: key, ServerName: "other"}, "certificate"},
		{"no certificate", &certs.ClientFiles{CA: a.file, ServerName: "control-plane"}, "unavailable"},
		{"unknown authority", &certs.ClientFiles{Cert: cert, Key: key, ServerName: "control-plane"}, "authority"},
		{"in the clear", nil, ""},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r, _, stop := follow(t, xds.Options{Address: p.address, TLS: row.files})
			defer stop()
			if row.want == "" && row.files != nil {
				p.expect(t, "", "")
				p.expect(t, "1", "")
				return
			}
			await(t, func() bool { return strings.Contains(r.log.String(), "no connection") })
			if log := r.log.String(); r.applied != 0 || strings.Contains(log, "connected to") || !strings.Contains(log, row.want) {
				t.Errorf("%d were accepted; %s", r.applied, log)
			}
		})
	}
}

func TestTLSFilesAreCheckedAtOnce(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.issue(t, "client", "headgate")
	rows := []struct {
		files certs.ClientFiles
		want  string
	}{
		{certs.ClientFiles{CA: "nowhere.pem"}, "nowhere.pem"},
		{certs.ClientFiles{CA: key}, "no certificate, only"},
		{certs.ClientFiles{Cert: cert}, "must be set together"},
		{certs.ClientFiles{Cert: cert, Key: cert}, cert},
	}
	for _, row := range rows {
		if _, err := xds.New(xds.Options{Address: "127.0.0.1:1", TLS: &row.files}); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%+v: %v, want %q", row.files, err, row.want)
		}
	}
	if _, err := xds.New(xds.Options{}); err == nil {
		t.Error("no address, and no error")
	}
	if _, err := os.Stat(cert); err != nil {
		t.Error(err)
	}
}
