// Package webhook sends messages to URLs, signed as Standard Webhooks describes
// (https://www.standardwebhooks.com).
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/base/retryafter"
)

// The header fields of a message.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

// prefix marks a secret whose bytes are in base64.
const prefix = "whsec_"

// The bounds of a secret in bytes, as the standard recommends.
const (
	leastSecret = 24
	mostSecret  = 64
	maxSecrets  = 4
)

// Secret is the key of a signature. It hides itself when it is printed or logged.
type Secret []byte

// String returns a placeholder.
func (Secret) String() string { return "(secret)" }

// GoString returns a placeholder.
func (Secret) GoString() string { return "(secret)" }

// MarshalText returns a placeholder.
func (Secret) MarshalText() ([]byte, error) { return []byte("(secret)"), nil }

// ParseSecrets reads secrets, one a line: whsec_ and base64, or text. Each of several
// signs every message, so that a receiver can change from one to the next. The error does
// not contain a secret.
func ParseSecrets(text string) ([]Secret, error) {
	var all []Secret
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if len(all) == maxSecrets {
			return nil, fmt.Errorf("more than %d secrets", maxSecrets)
		}
		s := Secret(line)
		if encoded, ok := strings.CutPrefix(line, prefix); ok {
			var err error
			if s, err = base64.StdEncoding.DecodeString(encoded); err != nil {
				return nil, fmt.Errorf("secret %d: what follows %s is not base64", len(all)+1, prefix)
			}
		}
		if len(s) < leastSecret || len(s) > mostSecret {
			return nil, fmt.Errorf("secret %d is %d bytes long, want %d to %d", len(all)+1, len(s), leastSecret, mostSecret)
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		return nil, errors.New("no secret")
	}
	return all, nil
}

// Sign returns the signatures of a message by each of the secrets, separated by spaces.
func Sign(secrets []Secret, id string, at time.Time, body []byte) string {
	all := make([]string, len(secrets))
	for i, s := range secrets {
		mac := hmac.New(sha256.New, s)
		_, _ = fmt.Fprintf(mac, "%s.%d.", id, at.Unix()) // never fails
		_, _ = mac.Write(body)
		all[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(all, " ")
}

// Hook is where messages go.
type Hook struct {
	Name    string // for metrics and logs; it contains no secret
	URL     *url.URL
	Secrets []Secret          // sign messages; none sends them unsigned
	Headers map[string]string // sent with every message; may be secret
	TLS     *tls.Config       // for https; nil is the default
}

// Client sends messages to one Hook. Make it with [NewClient].
type Client struct {
	hook Hook
	http *http.Client
}

// NewClient returns a Client. It does not follow redirects: they could lead the message,
// and the headers, to somebody else.
func NewClient(h Hook) *Client {
	return &Client{h, &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: h.TLS, ForceAttemptHTTP2: true,
			MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// maxAnswer is how much of an answer is read, so that its connection can be used again.
const maxAnswer = 64 << 10

// maxWait is the longest Retry-After that is believed.
const maxWait = time.Hour

// Send sends a JSON message at a time by the wall clock. The error says why it did not
// arrive and contains neither the URL nor a secret; wait is how long the receiver asks to
// wait, 0 if it does not say.
func (c *Client) Send(ctx context.Context, id string, at time.Time, body []byte) (status int, wait time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.hook.URL.String(), bytes.NewReader(body))
	if err != nil {
		return 0, 0, errors.New("invalid URL")
	}
	for name, value := range c.hook.Headers {
		r.Header.Set(name, value)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "headgate")
	r.Header.Set(HeaderID, id)
	r.Header.Set(HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
	if len(c.hook.Secrets) > 0 {
		r.Header.Set(HeaderSignature, Sign(c.hook.Secrets, id, at, body))
	}
	answer, err := c.http.Do(r)
	if err != nil {
		if withURL, ok := errors.AsType[*url.Error](err); ok {
			err = withURL.Err
		}
		return 0, 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxAnswer))
	if answer.StatusCode >= 200 && answer.StatusCode < 300 {
		return answer.StatusCode, 0, nil
	}
	wait, _ = retryafter.Of(answer.Header, at, maxWait)
	if answer.StatusCode >= 300 && answer.StatusCode < 400 {
		return answer.StatusCode, wait, fmt.Errorf("status %d: redirects are not followed", answer.StatusCode)
	}
	return answer.StatusCode, wait, fmt.Errorf("status %d", answer.StatusCode)
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }
