package announce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// The bounds of sending. Alertmanager is for messages that must not be lost.
const (
	maxWaiting  = 100             // messages in memory
	attempts    = 3               // for each
	sendTimeout = 5 * time.Second // of an attempt
	maxAnswer   = 64 << 10        // how much of an answer is read, so that its connection can be used again
)

// pauses are the waits between attempts.
func pauses() [attempts - 1]time.Duration {
	return [attempts - 1]time.Duration{time.Second, 10 * time.Second}
}

// sender sends messages to the webhook, in order, from memory.
type sender struct {
	to       *url.URL // may be secret
	client   *http.Client
	log      *slog.Logger
	messages chan []byte
	done     chan struct{} // closed when all is sent or given up
	hurry    chan struct{} // closed by close: nothing is tried again

	mu     sync.Mutex // of closed, and of sending to messages
	closed bool

	delivered, failed atomic.Uint64
	failing           bool // the last message was not delivered; used by run only
}

// newSender returns a sender. It does not follow redirects: they could lead the message to
// somebody else.
func newSender(to *url.URL) *sender {
	return &sender{
		to: to, messages: make(chan []byte, maxWaiting), done: make(chan struct{}), hurry: make(chan struct{}),
		client: &http.Client{
			Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// start sends until close.
func (s *sender) start(log *slog.Logger) {
	s.log = log
	go func() {
		defer close(s.done)
		for body := range s.messages {
			s.deliver(body)
		}
	}()
}

// add adds a message. If too many wait it is lost.
func (s *sender) add(body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	select {
	case s.messages <- body:
	default:
		s.failed.Add(1)
	}
}

// close waits for the messages that can be sent without another attempt, until ctx ends.
func (s *sender) close(ctx context.Context) error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.messages)
		close(s.hurry)
	}
	s.mu.Unlock()
	select {
	case <-s.done:
		s.client.CloseIdleConnections()
		return nil
	case <-ctx.Done():
		return fmt.Errorf("warnings were not sent: %w", ctx.Err())
	}
}

// deliver sends a message, again if it does not arrive.
func (s *sender) deliver(body []byte) {
	ctx := context.Background()
	err := s.send(ctx, body)
	for _, pause := range pauses() {
		if err == nil || !s.rest(pause) {
			break
		}
		err = s.send(ctx, body)
	}
	if err == nil {
		s.delivered.Add(1)
		if s.failing {
			s.log.Info("the webhook takes warnings again", "webhook", s.to.Host)
		}
		s.failing = false
		return
	}
	s.failed.Add(1)
	level := slog.LevelWarn
	if s.failing {
		level = slog.LevelDebug
	}
	s.log.Log(ctx, level, "a warning could not be sent, and is lost", "webhook", s.to.Host, "err", err)
	s.failing = true
}

// rest waits, and reports whether there is time for another attempt.
func (s *sender) rest(pause time.Duration) bool {
	over, cancel := context.WithTimeout(context.Background(), pause)
	defer cancel()
	select {
	case <-over.Done():
		return true
	case <-s.hurry:
		return false
	}
}

// send sends a message once. The error does not contain the URL.
func (s *sender) send(ctx context.Context, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.to.String(), bytes.NewReader(body))
	if err != nil {
		return errors.New("invalid URL")
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "headgate")
	answer, err := s.client.Do(r)
	if err != nil {
		if withURL, ok := errors.AsType[*url.Error](err); ok {
			err = withURL.Err
		}
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode < 200 || answer.StatusCode > 299 { // the body of a 101 is the connection, which ctx does not end
		return fmt.Errorf("status %d", answer.StatusCode)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxAnswer))
	return nil
}
