package storing

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/base/regular"
	"github.com/headgate/headgate/internal/base/secretfile"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/transport/certs"
	"github.com/headgate/headgate/store/blocks"
	"github.com/headgate/headgate/store/failsafe"
	"github.com/headgate/headgate/store/redis"
)

// connectFor is how long Start waits for Redis. After that the process starts anyway,
// and each rule's on_store_error applies.
const connectFor = 2 * time.Second

// openRedis opens the shared store and what is in front of it: homes, regions, blocks,
// failsafe and metrics, the first of which exist only if they are set. Open puts telemetry
// in front of them all. A memory store is for rules with on_store_error: local.
func (s *Store) openRedis() ([]engine.Option, error) {
	c := &s.Config.Redis
	options, err := RedisOptions(c)
	if err != nil {
		return nil, err
	}
	if err := FollowFiles(&options, c, s.Logger); err != nil {
		return nil, wrongRedis(c, err)
	}
	options.Clock, options.KeyTimes = s.Clock, s.Config.KeyTimes
	ctx, cancel := context.WithTimeout(context.Background(), connectFor)
	defer cancel()
	if s.shared, err = redis.New(ctx, options); err != nil {
		return nil, wrongRedis(c, err)
	}
	s.secrets = s.shared.Secrets()
	s.greet(ctx, &options)
	measured := metrics.NewStore(s.shared, s.Elapsed)
	s.Register(measured.Collector())
	var silence time.Duration
	if options.Mode == redis.Cluster {
		silence = time.Second // one of its primaries may be silent
	}
	s.safe = failsafe.New(measured, failsafe.Options{
		Timeout:   options.Timeout,
		Breaker:   failsafe.Breaker{Silence: silence},
		DenyCache: failsafe.DenyCache{Entries: c.DenyCache, MaxAge: c.DenyMaxAge},
		OnChange:  s.changed,
	})
	s.blocks = blocks.New(s.safe, blocks.Options{})
	s.Counts = s.blocks
	if err := s.openRegions(options); err != nil {
		return nil, err
	}
	longest, err := s.openHomes(ctx, options)
	if err != nil {
		return nil, err
	}
	untraced := s.Counts
	s.Life.OnEnd(func() { _ = untraced.Close() })
	local := s.newMemory()
	s.keep(local)
	return []engine.Option{
		engine.WithFallback(s.Telemetry.Store(local, "memory")), engine.WithTimeout(max(options.Timeout, longest)), engine.WithSecrets(s.secrets),
	}, nil
}

// returnSecrets fetches the token secrets, and writes them back if the store has lost
// them. Errors are ignored: the circuit breaker reports them.
func (s *Store) returnSecrets() { _ = s.secrets.Return(context.Background()) }

// greet logs whether the store can be reached.
func (s *Store) greet(ctx context.Context, o *redis.Options) {
	if err := s.shared.Ping(ctx); err != nil {
		s.Logger.Warn("the store does not answer yet: on_store_error of each rule applies",
			"mode", o.Mode.String(), "addresses", o.Addresses, "err", err)
		return
	}
	s.Logger.Info("store connected", "mode", o.Mode.String(), "addresses", o.Addresses, "timeout", o.Timeout.String())
}

// changed logs changes of the circuit breaker.
func (s *Store) changed(c failsafe.Change) {
	if c.State == failsafe.Open {
		text := c.Err.Error()
		s.lastError.Store(&text)
		s.Logger.Error("the store does not answer: on_store_error of each rule applies", "err", c.Err)
		return
	}
	s.Logger.Info("the store answers again", "after", c.After.String())
}

// wrongRedis names the setting that is most likely wrong.
func wrongRedis(c *config.Redis, err error) error {
	source := "store.redis"
	if c.URL != "" {
		source = "store.redis.url"
	}
	return &config.SourceError{Source: source, Message: err.Error()}
}

// RedisOptions translates the configuration. The error is a *config.SourceError.
func RedisOptions(c *config.Redis) (redis.Options, error) {
	o, err := redisOptions(c)
	if err != nil {
		err = wrongRedis(c, err)
	}
	return o, err
}

func redisOptions(c *config.Redis) (o redis.Options, err error) {
	if c.URL != "" {
		if o, err = redis.ParseURL(string(c.URL)); err != nil {
			return redis.Options{}, err
		}
	}
	o.Username, o.Password = cmp.Or(c.Username, o.Username), cmp.Or(string(c.Password), o.Password)
	o.SentinelUsername = cmp.Or(c.SentinelUsername, o.SentinelUsername)
	o.SentinelPassword = cmp.Or(string(c.SentinelPassword), o.SentinelPassword)
	o.Prefix = cmp.Or(c.KeyPrefix, o.Prefix)
	o.Timeout = cmp.Or(c.Timeout, o.Timeout, redis.DefaultTimeout)
	if len(o.Addresses) == 0 {
		o.Addresses = []string{redis.DefaultAddress} // so that the log shows it
	}
	return o, addTLS(&o, c)
}

// FollowFiles makes connections use what the files of the password and of TLS contain
// then. log is told of changes.
func FollowFiles(o *redis.Options, c *config.Redis, log *slog.Logger) error {
	if c.PasswordFile != "" && c.Password == c.InFile {
		f := &passwordFile{name: c.PasswordFile, password: o.Password, log: log}
		username := o.Username
		o.Login = func() (string, string, error) { return username, f.read(), nil }
	}
	if o.TLS == nil || c.CA == "" && c.Cert == "" {
		return nil
	}
	files := certs.ClientFiles{CA: c.CA, Cert: c.Cert, Key: c.Key, ServerName: c.ServerName}
	client, err := certs.LoadClient(files, log)
	if err != nil {
		return err
	}
	unverified := o.TLS.InsecureSkipVerify
	o.CurrentTLS = func() *tls.Config {
		now := client.Config()
		now.InsecureSkipVerify = unverified
		return now
	}
	return nil
}

// passwordFile is a password that may change.
type passwordFile struct {
	name string
	log  *slog.Logger

	mu               sync.Mutex
	password, failed string
}

// secret returns what is in the file. Others wait meanwhile, so it must not be a FIFO whose
// writer never comes.
func (f *passwordFile) secret() (string, error) {
	open, err := regular.Open(f.name)
	if err != nil {
		return "", err
	}
	text, _, err := secretfile.ReadFrom(open)
	return text, err
}

// read returns the password, or the last one while the file cannot be read.
func (f *passwordFile) read() string {
	now, err := f.secret()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil:
		if now != f.password {
			f.log.Info("the password of the store has changed", "file", f.name)
		}
		f.password, f.failed = now, ""
	case f.failed != err.Error():
		f.failed = err.Error()
		f.log.Error("the password of the store cannot be read, the old one stays in use", "err", err)
	}
	return f.password
}

// addTLS reads the certificates.
func addTLS(o *redis.Options, c *config.Redis) (err error) {
	if c.CA == "" && c.Cert == "" && c.Key == "" && c.ServerName == "" {
		return nil
	}
	files := certs.ClientFiles{CA: c.CA, Cert: c.Cert, Key: c.Key, ServerName: c.ServerName}
	unverified := o.TLS != nil && o.TLS.InsecureSkipVerify
	if o.TLS, err = files.Load(); err == nil {
		o.TLS.InsecureSkipVerify = unverified
	}
	return err
}
