package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/door/admin"
)

// defaultAdmin is where the admin door is looked for.
const defaultAdmin = "http://" + admin.DefaultAddress

// asking runs f with a client of the admin door that the flags name.
func asking(flags interface{ client() (*adminClient, error) }, f func(cmd *cobra.Command, args []string, c *adminClient) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := flags.client()
		if err != nil {
			return err
		}
		return f(cmd, args, c)
	}
}

// query adds the parameters that are not empty.
func query(q url.Values, parameters map[string]string) url.Values {
	for name, value := range parameters {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// adminClient calls an admin door, or another server, over HTTP.
type adminClient struct {
	base  *url.URL
	token string
	http  *http.Client
}

// maxAnswer limits how much of a response is read, in bytes.
const maxAnswer = 64 << 20

// get returns the body of a response.
func (c *adminClient) get(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	u := c.base.JoinPath(path)
	u.RawQuery = query.Encode()
	return c.do(ctx, http.MethodGet, u, http.NoBody)
}

// stream returns a stream of events.
func (c *adminClient) stream(ctx context.Context, path string) (io.ReadCloser, error) {
	answer, err := c.send(ctx, &silentError{"event", c.base.Host, streamTimeout}, http.MethodGet, c.base.JoinPath(path), http.NoBody)
	return c.body(answer, err)
}

// getJSON decodes a response into out.
func (c *adminClient) getJSON(ctx context.Context, path string, query url.Values, out any) error {
	body, err := c.get(ctx, path, query)
	if err != nil {
		return err
	}
	return c.decode(path, body, out)
}

// postJSON sends in and decodes the response into out.
func (c *adminClient) postJSON(ctx context.Context, path string, in, out any) error {
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	body, err := c.do(ctx, http.MethodPost, c.base.JoinPath(path), bytes.NewReader(text))
	if err != nil {
		return err
	}
	return c.decode(path, body, out)
}

// decode reads the response to a call of path.
func (c *adminClient) decode(path string, body io.ReadCloser, out any) error {
	defer func() { _ = body.Close() }()
	err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(out)
	if _, other := errors.AsType[*json.SyntaxError](err); other {
		return c.noDoor("its answer is not JSON")
	}
	if silent, ok := errors.AsType[*silentError](err); ok {
		return silent
	}
	if err != nil {
		return fmt.Errorf("invalid response from %s: %w", path, err)
	}
	return nil
}

// noDoor says that another server answers at the address, and how that shows.
func (c *adminClient) noDoor(why string) error {
	return &hintedError{
		fmt.Errorf("%s is not an admin door: %s", c.base.Host, why),
		"set the address of the admin door with --address or HEADGATE_ADDRESS",
	}
}

func (c *adminClient) do(ctx context.Context, method string, u *url.URL, body io.Reader) (io.ReadCloser, error) {
	answer, err := c.send(ctx, &silentError{"answer", c.base.Host, serverTimeout}, method, u, body)
	return c.body(answer, err)
}

// body returns the body of an answer, or why there is none.
func (c *adminClient) body(answer *http.Response, err error) (io.ReadCloser, error) {
	if err != nil {
		return nil, c.unanswered(err)
	}
	if answer.StatusCode == http.StatusOK {
		return answer.Body, nil
	}
	return nil, c.refusal(answer)
}

// refusal reads the error in an answer.
func (c *adminClient) refusal(answer *http.Response) error {
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	if silent, ok := errors.AsType[*silentError](err); ok {
		return silent
	} // otherwise as much as arrives
	what := detail(text)
	if wantsTLS(answer.StatusCode, text) {
		return c.plainText()
	}
	if what == "" || strings.HasPrefix(what, "unknown path") {
		return c.noDoor("it returned " + answer.Status)
	}
	if answer.StatusCode == http.StatusUnauthorized {
		return &hintedError{errors.New(what), "set HEADGATE_TOKEN or --token-file"}
	}
	return &refusedError{answer.StatusCode, what}
}

// send calls u, and waits for the answer and each part of it until the server is silent. The error
// does not name u.
func (c *adminClient) send(ctx context.Context, silent *silentError, method string, u *url.URL, body io.Reader) (*http.Response, error) {
	p := newWaiting(ctx, silent)
	r, err := http.NewRequestWithContext(p.ctx, method, u.String(), body)
	if err != nil {
		p.end(nil)
		return nil, err
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := c.http.Do(r)
	if at, ok := errors.AsType[*url.Error](err); ok {
		err = at.Err
	}
	p.timer.Stop()
	if err != nil {
		err = p.judge(err)
		p.end(nil)
		return nil, err
	}
	answer.Body = &patientBody{answer.Body, p}
	return answer, nil
}

// detail returns the detail of a problem, or an empty text.
func detail(problem []byte) string {
	var p struct {
		Detail string `json:"detail"`
	}
	_ = json.Unmarshal(problem, &p)
	return p.Detail
}

// refusedError is the admin door's reason for not fulfilling a request.
type refusedError struct {
	status int
	detail string
}

func (e *refusedError) Error() string { return e.detail }

// unanswered says why there was no response, and what to do about it.
func (c *adminClient) unanswered(err error) error {
	if silent, ok := errors.AsType[*silentError](err); ok {
		return silent
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		err = fmt.Errorf("cannot reach the admin door at %s: %w", c.base.Host, err)
		if hint := tlsHint(err, c.base.Host); hint != "" {
			return &hintedError{err, hint}
		}
		return err
	}
	return &hintedError{
		fmt.Errorf("no admin door at %s: %w", c.base.Host, syscall.ECONNREFUSED),
		"start headgate serve or headgate proxy, or set the address with --address or HEADGATE_ADDRESS",
	}
}

// wantsTLS reports whether a server answers that it expects TLS, as Go's servers do.
func wantsTLS(status int, body []byte) bool {
	return status == http.StatusBadRequest && bytes.HasPrefix(body, []byte("Client sent an HTTP request to an HTTPS server"))
}

// plainText says that the server expects TLS.
func (c *adminClient) plainText() error {
	return &hintedError{
		fmt.Errorf("%s expects TLS", c.base.Host),
		fmt.Sprintf("write the address as https://%s; if its certificate is from an authority of your own, add --ca", c.base.Host),
	}
}

// tlsHint says what to do if TLS failed; empty if something else did.
func tlsHint(err error, host string) string {
	if errors.Is(err, http.ErrSchemeMismatch) {
		return "the server has no TLS: write the address as http://" + host
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "name the file with the certificate of its authority with --ca"
	}
	return ""
}

// question asks the server for something about a request.
func question(ctx context.Context, server *connection, path string, body []byte, out any) error {
	client, err := server.client()
	if err != nil {
		return err
	}
	return client.postJSON(ctx, path, json.RawMessage(body), out)
}
