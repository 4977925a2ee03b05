package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store/failsafe"
	"github.com/headgate/headgate/store/redis"
)

// connectFor is how long Start waits for Redis. If it is not there by then the
// process starts all the same, each rule saying what happens without it.
const connectFor = 2 * time.Second

// openRedis opens the shared store behind a deadline and a circuit breaker,
// with a memory store beside it for the rules that say on_store_error: local.
func (a *App) openRedis() (headgate.Store, []engine.Option, error) {
	options, err := redisOptions(&a.options.Config.Store.Redis)
	if err != nil {
		return nil, nil, wrongRedis(&a.options.Config.Store.Redis, err)
	}
	options.Clock = a.options.Clock
	ctx, cancel := context.WithTimeout(context.Background(), connectFor)
	defer cancel()
	shared, err := redis.New(ctx, options)
	if err != nil {
		return nil, nil, wrongRedis(&a.options.Config.Store.Redis, err)
	}
	a.shared, a.secrets = shared, shared.Secrets()
	a.greet(ctx, shared, &options)
	c := &a.options.Config.Store.Redis
	safe := failsafe.New(a.measured(shared), failsafe.Options{
		Timeout:   options.Timeout,
		DenyCache: failsafe.DenyCache{Entries: c.DenyCache, MaxAge: c.DenyMaxAge},
		Breaker:   failsafe.Breaker{OpenFor: c.ProbeAfter, Longest: c.ProbeEvery},
		OnChange:  a.storeChanged,
	})
	a.safe = safe
	a.cleanup = append(a.cleanup, func() { _ = safe.Close() })
	local := a.newMemory()
	a.keepMemory(local)
	return safe, []engine.Option{
		engine.WithFallback(a.telemetry.Store(local, "memory")), engine.WithTimeout(options.Timeout), engine.WithSecrets(a.secrets.All),
		engine.WithRecords(),
	}, nil
}

// returnEvery is how often the secrets of tokens are looked after, besides
// whenever the store is known to have lost its data.
const returnEvery = time.Second

// returnSecrets fetches the secrets of tokens, and writes them back if the store
// has lost them. An error is no news: the circuit breaker tells of a store that
// does not answer.
func (a *App) returnSecrets() { _ = a.secrets.Return(context.Background()) }

// greet says in the log whether the store is there.
func (a *App) greet(ctx context.Context, shared *redis.Store, o *redis.Options) {
	if err := shared.Ping(ctx); err != nil {
		a.log.Warn("the store does not answer yet: each rule's on_store_error decides",
			"mode", o.Mode.String(), "addresses", o.Addresses, "err", err)
		return
	}
	a.log.Info("store connected", "mode", o.Mode.String(), "addresses", o.Addresses, "timeout", o.Timeout.String())
}

// storeChanged logs one line for every change of the circuit breaker.
func (a *App) storeChanged(c failsafe.Change) {
	if c.State == failsafe.Open {
		text := c.Err.Error()
		a.storeError.Store(&text)
		a.log.Error("the store does not answer: each rule's on_store_error decides", "err", c.Err)
		return
	}
	a.log.Info("the store answers again", "after", c.After.String())
}

// wrongRedis names the setting that most likely is wrong.
func wrongRedis(c *config.Redis, err error) error {
	source := "store.redis"
	if c.URL != "" && len(c.Addresses) == 0 {
		source = "store.redis.url"
	}
	return &config.SourceError{Source: source, Message: err.Error()}
}

// redisOptions translates the configuration.
func redisOptions(c *config.Redis) (redis.Options, error) {
	var o redis.Options
	if c.URL != "" {
		if len(c.Addresses) > 0 {
			return o, errors.New("url and addresses say the same: leave one out")
		}
		parsed, err := redis.ParseURL(string(c.URL))
		if err != nil {
			return o, err
		}
		o = parsed
	}
	override(&o.Addresses, c.Addresses, len(c.Addresses) > 0)
	override(&o.MasterName, c.MasterName, c.MasterName != "")
	override(&o.Username, c.Username, c.Username != "")
	override(&o.Password, string(c.Password), c.Password != "")
	override(&o.SentinelUsername, c.SentinelUsername, c.SentinelUsername != "")
	override(&o.SentinelPassword, string(c.SentinelPassword), c.SentinelPassword != "")
	override(&o.DB, c.DB, c.DB != 0)
	override(&o.Prefix, c.KeyPrefix, c.KeyPrefix != "")
	override(&o.Timeout, c.Timeout, c.Timeout != 0)
	override(&o.StrictAtomic, true, c.StrictAtomic)
	if c.Mode != "" {
		o.Mode, _ = redis.ParseMode(c.Mode)
	}
	if len(o.Addresses) == 0 {
		o.Addresses = []string{redis.DefaultAddress} // for the log to name it
	}
	if o.Timeout == 0 {
		o.Timeout = redis.DefaultTimeout
	}
	if err := addTLS(&o, c); err != nil {
		return o, err
	}
	return o, nil
}

// override sets a field that the configuration names, over what a URL says.
func override[T any](field *T, value T, set bool) { //nolint:revive // a fact about the value
	if set {
		*field = value
	}
}

// addTLS reads the certificates.
func addTLS(o *redis.Options, c *config.Redis) error {
	if !c.TLS && c.CA == "" && c.Cert == "" && c.Key == "" && c.ServerName == "" {
		return nil
	}
	if o.TLS == nil {
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	o.TLS.ServerName = c.ServerName
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return err
		}
		o.TLS.RootCAs = x509.NewCertPool()
		if !o.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("%s: no certificate in it", c.CA)
		}
	}
	if c.Cert == "" && c.Key == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return err
	}
	o.TLS.Certificates = []tls.Certificate{pair}
	return nil
}
