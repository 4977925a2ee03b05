// Package door is what all doors have in common: what the process knows of each, what
// each gets from the process, and shared helpers.
//
// A door is a protocol with its listener. Its package has a function Door that returns
// a [Door]: facts that the process uses, such as whether it may be refused when memory
// is short, and how it is opened. The process only knows their list: it opens their
// listeners, limits and encrypts connections, and serves, drains and measures all doors
// in the same way.
package door

import (
	"context"
	"errors"
	"net"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/transport/certs"
	"github.com/headgate/headgate/internal/transport/netbound"
	"github.com/headgate/headgate/internal/transport/oneport"
)

// Door is what the process knows of a door.
type Door struct {
	// Section declares its settings, and its name: what configuration, metrics, logs
	// and documentation call it. A door that is for operators takes connections
	// however short of memory or descriptors the process is.
	config.Section
	Speaks oneport.Protocol // what it is told by on the shared port, if the configuration puts it there
	ALPN   []string         // the protocols that it offers over TLS
	Tokens bool             // says that callers may have to know a token or a password, so that wrong ones are counted
	Keeps  bool             // says that what callers keep in memory is bounded by Process.Room.
	Policy netbound.Policy  // finds the connections that make room for others
	Counts bool             // says that it bounds and counts its connections itself
	Sends  bool             // says that it sends requests that waited in the queue: its Server is a QueueSender
	// Claims: the file descriptors that it wants besides those of its connections; nil for none
	Claims     func(*config.Config) []Claim
	CheckFiles func(*config.Config) error // finds files that would keep it from being opened; nil for none
	// Domain returns the domain of callers who name none, anew for every set of rules; nil if all name one.
	Domain func(*config.Config, *rules.Ruleset) (string, error)
	Open   func(*Process) (Server, error) // returns what serves it. Its addresses have been opened by then.
}

// Claim is a number of file descriptors that a door wants.
type Claim struct {
	Name   string // what metrics and log call them
	Chosen int64  // how many the operator has asked for; 0 for the default
}

// Server serves a door. If it is a prometheus.Collector, the process registers its
// metrics.
type Server interface {
	// Serve answers on l until Shutdown, and then returns nil.
	Serve(l net.Listener) error
	// Shutdown lets requests finish until ctx is done, then ends the rest and
	// returns the error of ctx. It may be called without Serve.
	Shutdown(ctx context.Context) error
}

// Drainer is a Server that must know that Shutdown comes soon. No more connections
// are accepted by then.
type Drainer interface{ Drain(ctx context.Context) }

// HealthTeller is a Server that reports to its callers whether the process is healthy.
type HealthTeller interface{ SetServing(yes bool) }

// DescriptorUser is a Server with open file descriptors that nothing else counts.
type DescriptorUser interface{ Descriptors() int64 }

// Reloader is a Server that can read its files again.
type Reloader interface{ Reload() }

// QueueSender is a Server that sends queued requests.
type QueueSender interface {
	SetQueue(q *queue.Queue)
	Deliver(ctx context.Context, e *queue.Entry, keep int64) (queue.Answer, error)
	SettleDelivery(ctx context.Context, v *engine.Verdict, told queue.Answer, err error)
}

// CertificateError returns an error that names the setting of the wrong file in a
// section of the configuration.
func CertificateError(section string, err error) error {
	source := section
	if wrong, ok := errors.AsType[*certs.Error](err); ok {
		source += "." + wrong.Key
		err = &certs.Error{Key: wrong.File, Err: wrong.Err}
	}
	return &config.SourceError{Source: source, Message: err.Error()}
}
