package config

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The defaults of the gRPC and the admin door.
const (
	DefaultGRPC  = "127.0.0.1:8081"
	DefaultAdmin = "127.0.0.1:6070"
)

// unixPrefix begins the address of a unix socket.
const unixPrefix = "unix:"

// SplitAddress returns the network and the address to listen on.
func SplitAddress(address string) (network, rest string) {
	if socket, ok := strings.CutPrefix(address, unixPrefix); ok {
		return "unix", socket
	}
	return "tcp", address
}

// GRPC is the gRPC door.
type GRPC struct {
	TLS TLS
	// MaxMessage is the size of the largest request in bytes; 0 leaves the
	// door's default, as for the others.
	MaxMessage int64
	// MaxConnectionAge is after how long a connection is asked to close;
	// MaxConnectionAgeGrace is how long it then may take.
	MaxConnectionAge, MaxConnectionAgeGrace time.Duration
	// MaxConnections is how many may be open at once, MaxPerClient how many of
	// one client (negative: any number), MaxStreams how many requests one may
	// have under way.
	MaxConnections, MaxPerClient, MaxStreams int64
	// HandshakeTimeout is how long a connection may take to be set up,
	// IdleTimeout how long it may be without a request; negative for ever.
	HandshakeTimeout, IdleTimeout time.Duration
	// KeepaliveMin is how often a client may ask whether we are there; those
	// that ask more often are sent away.
	KeepaliveMin time.Duration
}

// Envoy is what only Envoy's rate limit service has.
type Envoy struct {
	// LegacyHeaders sends the header fields of envoyproxy/ratelimit too, by
	// these names.
	LegacyHeaders                             bool
	LimitHeader, RemainingHeader, ResetHeader string
	// DynamicMetadata sends dynamic metadata.
	DynamicMetadata bool
	// ShadowMode lets every request pass.
	ShadowMode bool
}

func defaultEnvoy() Envoy {
	return Envoy{LimitHeader: "RateLimit-Limit", RemainingHeader: "RateLimit-Remaining", ResetHeader: "RateLimit-Reset"}
}

// envoySettings are the keys of the gRPC door and of Envoy.
func envoySettings() []setting {
	header := func(key string, field func(*Config) *string) setting {
		return one(key, func(c *Config, v string) (err error) { *field(c), err = headerName(v); return err })
	}
	flag := func(key string, field func(*Config) *bool) setting {
		return one(key, func(c *Config, v string) (err error) { *field(c), err = boolean(v); return err })
	}
	return append(tlsSettings(DoorGRPC, func(c *Config) *TLS { return &c.GRPC.TLS }),
		count("grpc.max_connections", func(c *Config) *int64 { return &c.GRPC.MaxConnections }, 1_000_000),
		perClient(DoorGRPC, func(c *Config) *int64 { return &c.GRPC.MaxPerClient }),
		count("grpc.max_streams", func(c *Config) *int64 { return &c.GRPC.MaxStreams }, 1_000_000),
		period("grpc.handshake_timeout", func(c *Config) *time.Duration { return &c.GRPC.HandshakeTimeout }),
		period("grpc.idle_timeout", func(c *Config) *time.Duration { return &c.GRPC.IdleTimeout }),
		period("grpc.keepalive_min", func(c *Config) *time.Duration { return &c.GRPC.KeepaliveMin }),
		one("grpc.max_message", func(c *Config, v string) (err error) { c.GRPC.MaxMessage, err = messageSize(v); return err }),
		one("grpc.max_connection_age", func(c *Config, v string) (err error) {
			c.GRPC.MaxConnectionAge, err = duration(v, time.Second)
			return err
		}),
		one("grpc.max_connection_age_grace", func(c *Config, v string) (err error) {
			c.GRPC.MaxConnectionAgeGrace, err = duration(v, time.Second)
			return err
		}),
		flag("envoy.legacy_headers", func(c *Config) *bool { return &c.Envoy.LegacyHeaders }),
		header("envoy.limit_header", func(c *Config) *string { return &c.Envoy.LimitHeader }),
		header("envoy.remaining_header", func(c *Config) *string { return &c.Envoy.RemainingHeader }),
		header("envoy.reset_header", func(c *Config) *string { return &c.Envoy.ResetHeader }),
		flag("envoy.dynamic_metadata", func(c *Config) *bool { return &c.Envoy.DynamicMetadata }),
		flag("envoy.shadow_mode", func(c *Config) *bool { return &c.Envoy.ShadowMode }),
	)
}

// addressOrSocket checks host:port, unix:PATH, or off.
func addressOrSocket(v string) (string, error) {
	if socket, ok := strings.CutPrefix(v, unixPrefix); ok {
		if socket == "" {
			return "", &hinted{"the unix socket has no path", "write unix:/run/headgate.sock"}
		}
		return v, nil
	}
	return address(v)
}

// messageSize reads the size of the largest message.
func messageSize(v string) (int64, error) {
	n, err := size(v)
	if err == nil && n > 64<<20 {
		return 0, fmt.Errorf("%s is more than 64MiB", v)
	}
	return n, err
}

func boolean(v string) (bool, error) {
	yes, err := strconv.ParseBool(v)
	if err != nil {
		return false, &hinted{fmt.Sprintf("%q is neither true nor false", v), ""}
	}
	return yes, nil
}

// headerName checks the name of a header field.
func headerName(v string) (string, error) {
	if strings.Trim(http.CanonicalHeaderKey(v), "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		return "", fmt.Errorf("%q is not the name of a header field", v)
	}
	return v, nil
}
