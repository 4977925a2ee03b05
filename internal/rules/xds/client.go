// Package xds receives rules from a control plane, such as Envoy Gateway, over
// the aggregated discovery service of xDS in its state-of-the-world form. It is
// what envoyproxy/ratelimit calls CONFIG_TYPE=GRPC_XDS_SOTW.
//
// A [Client] follows the stream, turns every snapshot into the text of rule files and
// passes it to Apply. A snapshot that Apply accepts is acknowledged. One that it refuses
// is refused to the control plane with the reason, and the current rules stay active.
//
// See docs/connect/envoy-rules.md.
package xds

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/transport/certs"
)

// TypeURL is the resource type that a Client requests.
const TypeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

const (
	maxMessage = 32 << 20 // the size of the largest snapshot in bytes
	maxDetail  = 4 << 10  // the length of the longest reason that is sent back
	// maxDelay is the longest time before the same snapshot is refused again.
	// Until then the control plane sends nothing, not even a corrected one.
	maxDelay = 5 * time.Second
	// quietFor is after how long without a message a connection is tested. By
	// default, servers close connections that are tested more often than every 5
	// minutes.
	quietFor = 6 * time.Minute
)

// Options are what a Client needs.
type Options struct {
	Address string             // Address of the control plane, host:port. Required.
	NodeID  string             // identifies this process to the control plane
	TLS     *certs.ClientFiles // encrypts the connection; nil for none
	// Apply activates a snapshot, or changes nothing and returns the reason. It is
	// called by one goroutine at a time. Required.
	Apply   func([]rulefile.Source) error
	Logger  *slog.Logger // logs when the control plane comes and goes. Required.
	Backoff Backoff      // how long to wait before reconnecting
}

// Client follows a control plane. Run it once.
type Client struct {
	options Options
	node    *core.Node

	// Of the goroutine in Run.
	version string            // of the last snapshot that was accepted
	applied []rulefile.Source // its contents
	known   bool              // whether there was one
	refused refusal           // of the snapshot before this one, if it was refused

	overruled atomic.Bool // see Overrule
}

// New checks the options and returns a Client.
func New(o Options) (*Client, error) {
	if o.Address == "" {
		return nil, errors.New("the address of the control plane is missing")
	}
	if o.TLS != nil {
		if _, err := o.TLS.Load(); err != nil {
			return nil, err
		}
	}
	return &Client{options: o, node: &core.Node{Id: o.NodeID, UserAgentName: "headgate"}}, nil
}

// refusal is a snapshot that was refused, and why.
type refusal struct {
	resources []*anypb.Any
	reason    error // nil if nothing was refused
	again     waiter
}

// is reports whether resources are those that were refused, in any order:
// go-control-plane sends the same snapshot in a different order each time.
func (r *refusal) is(resources []*anypb.Any) bool {
	return r.reason != nil && slices.EqualFunc(sorted(r.resources), sorted(resources), func(a, b *anypb.Any) bool {
		return byContent(a, b) == 0
	})
}

func sorted(resources []*anypb.Any) []*anypb.Any {
	return slices.SortedFunc(slices.Values(resources), byContent)
}

func byContent(a, b *anypb.Any) int {
	return cmp.Or(cmp.Compare(a.GetTypeUrl(), b.GetTypeUrl()), bytes.Compare(a.GetValue(), b.GetValue()))
}

// Overrule reports that an operator has activated the snapshot that was refused last.
func (c *Client) Overrule() { c.overruled.Store(true) }

// obey applies Overrule.
func (c *Client) obey() {
	if !c.overruled.Swap(false) || c.refused.reason == nil {
		return
	}
	if sources, err := Sources(c.refused.resources); err == nil {
		c.applied, c.known, c.refused = sources, true, refusal{}
	}
}

// Run follows the control plane until ctx is done, and reconnects whenever the stream
// ends. Until then the last accepted rules stay active.
func (c *Client) Run(ctx context.Context) {
	wait := c.options.Backoff.waiter()
	for outage := false; ctx.Err() == nil; {
		served, err := c.follow(ctx)
		if ctx.Err() != nil {
			break
		}
		if served {
			wait.reset()
			outage = false
		}
		if !outage { // once for each time it goes away
			c.options.Logger.Warn("no connection to the control plane, keeping the current rules",
				"address", c.options.Address, "err", err)
		}
		outage = true
		wait.sleep(ctx)
	}
}

// follow opens one stream and serves it until it ends. served is true if
// anything was received on it.
func (c *Client) follow(ctx context.Context) (served bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := c.dial()
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return false, plain(err)
	}
	// Without a version: a control plane that has restarted may count from one
	// again, and would not send a version that it takes for known.
	if err := c.send(s, &discovery.DiscoveryRequest{}); err != nil {
		return false, plain(err)
	}
	for {
		response, err := s.Recv()
		if err != nil {
			return served, plain(err)
		}
		if !served {
			c.options.Logger.Info("connected to the control plane", "address", c.options.Address)
		}
		served = true
		c.obey()
		if c.refused.is(response.GetResources()) {
			// Control planes that compare only versions send a refused snapshot
			// again immediately, for ever.
			c.refused.again.sleep(s.Context())
		}
		if err := c.send(s, c.answer(response)); err != nil {
			return served, plain(err)
		}
	}
}

// dial prepares a connection, with the certificates as they are now.
func (c *Client) dial() (*grpc.ClientConn, error) {
	secrecy := insecure.NewCredentials()
	if c.options.TLS != nil {
		config, err := c.options.TLS.Load()
		if err != nil {
			return nil, err
		}
		secrecy = credentials.NewTLS(config)
	}
	return grpc.NewClient(c.options.Address,
		grpc.WithTransportCredentials(secrecy),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: quietFor, Timeout: 20 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithDisableServiceConfig(),
	)
}

type stream = grpc.BidiStreamingClient[discovery.DiscoveryRequest, discovery.DiscoveryResponse]

// send sends r with the fields that all requests share.
func (c *Client) send(s stream, r *discovery.DiscoveryRequest) error {
	r.Node, r.TypeUrl = c.node, TypeURL
	err := s.Send(r)
	if errors.Is(err, io.EOF) {
		_, err = s.Recv() // has the reason
	}
	return err
}

// answer activates a snapshot and returns the reply to the control plane: the active
// version, and if it is not this one, the reason.
func (c *Client) answer(response *discovery.DiscoveryResponse) *discovery.DiscoveryRequest {
	var err error
	if c.refused.is(response.GetResources()) {
		err = c.refused.reason // logged already
	} else if err = c.apply(response); err != nil {
		c.refuse(response, err)
	}
	if err == nil {
		c.version, c.refused = response.GetVersionInfo(), refusal{}
	}
	r := &discovery.DiscoveryRequest{VersionInfo: c.version, ResponseNonce: response.GetNonce()}
	if err != nil {
		r.ErrorDetail = &rpc.Status{Code: int32(codes.InvalidArgument), Message: shortened(err.Error())}
	}
	return r
}

// refuse notes and logs that a snapshot is refused.
func (c *Client) refuse(response *discovery.DiscoveryResponse, err error) {
	again := Backoff{Base: c.options.Backoff.Base, Max: maxDelay}
	c.refused = refusal{response.GetResources(), err, again.waiter()}
	c.options.Logger.Error("rules from the control plane refused",
		"address", c.options.Address, "version", response.GetVersionInfo(), "err", firstLine(err))
}

// apply activates a snapshot, unless it is active already, as after a reconnect.
func (c *Client) apply(response *discovery.DiscoveryResponse) error {
	if t := response.GetTypeUrl(); t != TypeURL {
		return fmt.Errorf("unexpected resource type %q", t)
	}
	sources, err := Sources(response.GetResources())
	if err != nil {
		return err
	}
	if c.known && slices.EqualFunc(sources, c.applied, same) {
		return nil
	}
	if err := c.options.Apply(sources); err != nil {
		return err
	}
	c.applied, c.known = sources, true
	return nil
}

func same(a, b rulefile.Source) bool { return a.Name == b.Name && bytes.Equal(a.Data, b.Data) }

// plain returns the message of a gRPC error without its prefix.
func plain(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the control plane ended the stream")
	}
	if s, ok := status.FromError(err); ok && s.Message() != "" {
		return fmt.Errorf("%s: %s", strings.ToLower(s.Code().String()), s.Message())
	}
	return err
}

// firstLine returns the first line of err and the number of others.
func firstLine(err error) string {
	line, rest, more := strings.Cut(err.Error(), "\n")
	if more && rest != "" {
		return fmt.Sprintf("%s (and %d more lines)", line, 1+strings.Count(rest, "\n"))
	}
	return line
}

// shortened cuts s to maxDetail bytes, between characters.
func shortened(s string) string {
	if len(s) <= maxDetail {
		return s
	}
	return strings.ToValidUTF8(s[:maxDetail], "") + " …"
}

// Backoff is how long to wait before the next attempt: Base at first, then 1.6 times as
// long each time, up to Max. Each wait is shortened by a random part of up to a half, so
// that clients do not reconnect at the same time. Zero values mean 1 s and 30 s.
type Backoff struct{ Base, Max time.Duration }

// factor is by how much each wait is longer than the last.
const factor = 1.6

// waiter is a Backoff in progress.
type waiter struct {
	Backoff
	next time.Duration
}

func (b Backoff) waiter() waiter {
	if b.Base <= 0 {
		b.Base = time.Second
	}
	if b.Max <= 0 {
		b.Max = 30 * time.Second
	}
	b.Max = max(b.Max, b.Base)
	return waiter{b, b.Base}
}

// reset starts again with the shortest wait.
func (w *waiter) reset() { w.next = w.Base }

// step returns how long to wait now.
func (w *waiter) step() time.Duration {
	d := w.next
	w.next = min(time.Duration(float64(w.next)*factor), w.Max)
	return d - rand.N(d/2+1) //nolint:gosec // guessing it gains nothing
}

// sleep waits, or until ctx is done.
func (w *waiter) sleep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, w.step())
	defer cancel()
	<-ctx.Done()
}
