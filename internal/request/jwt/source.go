package jwt

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/base/regular"
)

const (
	maxSet       = 1 << 20          // largest set of keys, in bytes
	fetchTimeout = 10 * time.Second // how long keys may take to arrive
	hurry        = 30 * time.Second // least time between reads because of an unknown key
	patience     = time.Second      // how long a request waits for such a read
	// startPatience is how long the start waits for keys.
	startPatience = 2 * time.Second
	fileInterval  = 5 * time.Second // how often a file is checked
	maxRedirects  = 5               // of a URL
)

// keySet is a set of keys, with the hash of its source.
type keySet struct {
	keys []key
	sum  [sha256.Size]byte
}

// source holds keys and keeps them up to date.
type source struct {
	location string
	client   *http.Client // for a URL
	log      *slog.Logger
	set      atomic.Pointer[keySet] // nil until the keys are loaded

	ctx    context.Context //nolint:containedctx // of the background tasks
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu      sync.Mutex
	flight  chan struct{} // closed when the read in progress is done; nil if there is none
	hurried time.Time     // when a token last caused a read, by the request's clock
	failing bool
}

func newSource(location string, transport http.RoundTripper, log *slog.Logger) *source {
	s := &source{location: location, log: log, client: &http.Client{Transport: transport, Timeout: fetchTimeout, CheckRedirect: checkRedirect}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// checkRedirect refuses to follow a redirect to plain HTTP, where keys could be replaced on
// the way. Only the host that the configuration names may stay on it, which is loopback.
func checkRedirect(to *http.Request, via []*http.Request) error {
	first := via[0].URL
	switch {
	case to.URL.Scheme != "https" && (to.URL.Scheme != first.Scheme || to.URL.Host != first.Host):
		return fmt.Errorf("redirected to %s://%s: keys fetched over plain http can be forged", to.URL.Scheme, to.URL.Host)
	case len(via) >= maxRedirects:
		return fmt.Errorf("redirected more than %d times", maxRedirects)
	}
	return nil
}

func (s *source) remote() bool { return strings.Contains(s.location, "://") }

// name returns the location without the query of a URL, which may hold a secret.
func (s *source) name() string {
	if !s.remote() {
		return s.location
	}
	base, _, _ := strings.Cut(s.location, "?")
	return base
}

// load reads the keys once. After an error the previous keys stay.
func (s *source) load() error {
	data, err := s.read()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	if old := s.set.Load(); old != nil && old.sum == sum {
		return nil
	}
	keys, err := parseKeys(data)
	if err != nil {
		return err
	}
	s.set.Store(&keySet{keys: keys, sum: sum})
	s.log.Info("token keys loaded", "from", s.name(), "keys", len(keys))
	return nil
}

func (s *source) read() ([]byte, error) {
	if s.remote() {
		return s.fetch()
	}
	f, err := regular.Open(s.location)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return readBounded(f)
}

func (s *source) fetch() ([]byte, error) {
	r, err := http.NewRequestWithContext(s.ctx, http.MethodGet, s.location, http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/jwk-set+json, application/json")
	res, err := s.client.Do(r)
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // without the URL
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name(), err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", s.name(), res.Status)
	}
	return readBounded(res.Body)
}

func readBounded(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSet+1))
	if err == nil && len(data) > maxSet {
		err = fmt.Errorf("longer than %d bytes", maxSet)
	}
	return data, err
}

// refresh loads the keys. It logs when that starts to fail and when it works again.
func (s *source) refresh() {
	err := s.load()
	if s.ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && !s.failing:
		s.log.Warn("token keys not loaded, the previous ones stay in use", "from", s.name(), "err", err)
	case err == nil && s.failing:
		s.log.Info("token keys loaded again", "from", s.name())
	}
	s.failing = err != nil
}

// start runs refresh in the background unless it is already running. It needs s.mu, and
// returns a channel that is closed when it is done.
func (s *source) start() <-chan struct{} {
	if s.flight != nil {
		return s.flight
	}
	done := make(chan struct{})
	s.flight = done
	s.tasks.Go(func() {
		s.refresh()
		s.mu.Lock()
		s.flight = nil
		s.mu.Unlock()
		close(done)
	})
	return done
}

// follow refreshes at every interval until the source is closed.
func (s *source) follow(interval time.Duration) {
	if !s.remote() {
		interval = min(interval, fileInterval)
	}
	ticker := time.NewTicker(interval) //nolint:forbidigo // keys grow old by the real clock
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-s.ctx.Done():
			return
		}
		s.mu.Lock()
		done := s.start()
		s.mu.Unlock()
		<-done
	}
}

// hasten reads the keys because a token names an unknown one, at most once per hurry. It
// returns when they have been read, or after patience.
func (s *source) hasten(at time.Time) {
	s.mu.Lock()
	done := (<-chan struct{})(s.flight)
	if done == nil {
		since := at.Sub(s.hurried)
		if s.ctx.Err() != nil || !s.hurried.IsZero() && since >= 0 && since < hurry {
			s.mu.Unlock()
			return
		}
		s.hurried = at
		done = s.start()
	}
	s.mu.Unlock()
	await(done, patience, nil)
}

// await returns when done or stop is closed, or after a time.
func await(done <-chan struct{}, most time.Duration, stop <-chan struct{}) {
	timer := time.NewTimer(most) //nolint:forbidigo // a bound on waiting
	defer timer.Stop()
	select {
	case <-done:
	case <-stop:
	case <-timer.C:
	}
}

// find returns the keys that may have signed with an algorithm: those with the id of the
// token, otherwise those without one, such as from a PEM file; all that fit if the token has
// none.
func (s *source) find(id, algorithm string) (found []key) {
	set := s.set.Load()
	if set == nil {
		return nil
	}
	var unnamed []key
	for _, k := range set.keys {
		switch {
		case !k.fits(algorithm):
		case id == "" || k.id == id:
			found = append(found, k)
		case k.id == "":
			unnamed = append(unnamed, k)
		}
	}
	if len(found) == 0 {
		return unnamed
	}
	return found
}

func (s *source) close() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.tasks.Wait()
}

var errNoKeys = errors.New("no keys")
