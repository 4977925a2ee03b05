// Package door defines what all doors share: their description, what the process
// provides to them, and helpers.
//
// A door is a protocol with its listener. Its package has a function Door that returns
// a [Door], which describes the door to the process and says how to open it. The process
// only knows the list of doors: it opens their listeners, limits and encrypts
// connections, and serves, drains and measures all doors in the same way.
package door

import (
	"context"
	"errors"
	"net"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/transport/certs"
	"github.com/headgate/headgate/internal/transport/netbound"
	"github.com/headgate/headgate/internal/transport/oneport"
)

// Door describes a door to the process.
type Door struct {
	// Section declares its settings and its name in configuration, metrics, logs and
	// documentation. A door for operators accepts connections even when the process
	// is short of memory or descriptors.
	config.Section
	Speaks oneport.Protocol // how the shared port recognises its connections
	ALPN   []string         // the protocols it offers over TLS
	Tokens bool             // callers may need a token or a password; wrong ones are counted
	Keeps  bool             // Process.Room bounds the memory its callers hold
	Policy netbound.Policy  // decides which connections to close to make space for others
	Counts bool             // it limits and counts its connections itself
	Answer int64            // the memory that an answer holds which its client does not read, in bytes
	Sends  bool             // it sends queued requests: its Server is a dispatch.Sender
	// Claims returns the file descriptors it needs besides its connections; nil means none.
	Claims     func(*config.Config) []Claim
	CheckFiles func(*config.Config) error // checks the files it needs to open; nil means none
	// Domain returns the domain of callers that name none, and is called for every new
	// rule set. It is nil if all callers name one.
	Domain func(*config.Config, *rules.Ruleset) (string, error)
	Open   func(*Process) (Server, error) // returns its server; its addresses are open by then
}

// Claim is a number of file descriptors that a door needs.
type Claim struct {
	Name   string // their name in metrics and logs
	Chosen int64  // the configured number; 0 means the default
}

// Server serves a door. If it is a prometheus.Collector, the process registers its
// metrics.
type Server interface {
	// Serve accepts connections on l until Shutdown, then returns nil.
	Serve(l net.Listener) error
	// Shutdown lets requests finish until ctx is done, then ends the rest and
	// returns the error of ctx. It may be called without Serve.
	Shutdown(ctx context.Context) error
}

// Drainer is a Server that is notified before Shutdown, when no more connections are
// accepted.
type Drainer interface{ Drain(ctx context.Context) }

// HealthTeller is a Server that reports to its callers whether the process is healthy.
type HealthTeller interface{ SetServing(yes bool) }

// DescriptorUser is a Server that reports open file descriptors not counted elsewhere.
type DescriptorUser interface{ Descriptors() int64 }

// Reloader is a Server that can reload its files.
type Reloader interface{ Reload() }

// CertificateError returns an error that names the setting of the faulty file in the
// given section of the configuration.
func CertificateError(section string, err error) error {
	source := section
	if wrong, ok := errors.AsType[*certs.Error](err); ok {
		source += "." + wrong.Key
		err = &certs.Error{Key: wrong.File, Err: wrong.Err}
	}
	return &config.SourceError{Source: source, Message: err.Error()}
}
