package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/pflag"

	"github.com/headgate/headgate/internal/config"
)

// defaultAdmin is where the admin door is looked for.
const defaultAdmin = "http://" + config.DefaultAdmin

// adminFlags say where an admin door is and what it wants to know.
type adminFlags struct {
	address string
	tokens  tokenFlags
	tls     tlsFlags
}

func (f *adminFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.address, "address", defaultAdmin, "where the admin door is")
	f.tokens.add(flags, "HEADGATE_ADMIN_TOKEN")
	f.tls.add(flags)
}

// client checks the flags.
func (f *adminFlags) client() (*adminClient, error) {
	address := f.address
	switch {
	case strings.Contains(address, "://"):
	case f.tls.given():
		address = "https://" + address
	default:
		address = "http://" + address
	}
	base, err := url.Parse(address)
	if err != nil || base.Host == "" {
		return nil, &usageError{fmt.Sprintf("--address: %q is not a URL", f.address), "write " + defaultAdmin}
	}
	token, err := f.tokens.read(config.AdminToken())
	if err != nil {
		return nil, err
	}
	over, err := f.tls.client()
	if err != nil {
		return nil, err
	}
	return &adminClient{base: base, token: token, http: over}, nil
}

// adminClient asks an admin door.
type adminClient struct {
	base  *url.URL
	token string
	http  *http.Client
}

// maxAnswer is how much of an answer is read, in bytes.
const maxAnswer = 64 << 20

// get returns the body of an answer.
func (c *adminClient) get(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	u := c.base.JoinPath(path)
	u.RawQuery = query.Encode()
	return c.do(ctx, http.MethodGet, u, http.NoBody)
}

// getJSON reads an answer into out.
func (c *adminClient) getJSON(ctx context.Context, path string, query url.Values, out any) error {
	body, err := c.get(ctx, path, query)
	if err != nil {
		return err
	}
	return decodeAnswer(path, body, out)
}

// postJSON sends in and reads the answer into out.
func (c *adminClient) postJSON(ctx context.Context, path string, in, out any) error {
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	body, err := c.do(ctx, http.MethodPost, c.base.JoinPath(path), bytes.NewReader(text))
	if err != nil {
		return err
	}
	return decodeAnswer(path, body, out)
}

func decodeAnswer(path string, body io.ReadCloser, out any) error {
	defer func() { _ = body.Close() }()
	if err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(out); err != nil {
		return fmt.Errorf("the answer of %s makes no sense: %w", path, err)
	}
	return nil
}

func (c *adminClient) do(ctx context.Context, method string, u *url.URL, body io.Reader) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("the admin door does not answer: %w", err)
	}
	if answer.StatusCode == http.StatusOK {
		return answer.Body, nil
	}
	defer func() { _ = answer.Body.Close() }()
	var problem struct {
		Detail string `json:"detail"`
	}
	_ = json.NewDecoder(io.LimitReader(answer.Body, 64<<10)).Decode(&problem)
	if problem.Detail == "" {
		problem.Detail = answer.Status
	}
	return nil, fmt.Errorf("%s: %s", u.Redacted(), problem.Detail)
}
