package offline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/config"
)

// maxAnswer is the largest answer of a server that is read, in bytes.
const maxAnswer = 64 << 20

// Server is the HTTP API of a running server, and how it is asked.
type Server struct {
	// Address is its URL, such as http://127.0.0.1:8080.
	Address string
	// Token is what it wants to know; empty if nothing.
	Token string
	// Client asks it. Required.
	Client *http.Client
}

// serverTimeout is how long an answer of a Server may take.
const serverTimeout = 30 * time.Second

// ExplainServer asks a running server.
func ExplainServer(ctx context.Context, s Server, q ExplainRequest) (*Explained, error) {
	server := s.Address
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	body, err := q.body()
	if err != nil {
		return nil, err
	}
	base, err := url.Parse(server)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		if strings.Contains(server, "@") { // perhaps behind a password
			server = "it"
		} else {
			server = strconv.Quote(server)
		}
		return nil, &config.SourceError{
			Source: "--server", Message: server + " is not the address of a server",
			Hint: "write it as http://127.0.0.1:8080",
		}
	}
	server = base.Redacted()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base.JoinPath("v1/explain").String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	if s.Token != "" {
		r.Header.Set("Authorization", "Bearer "+s.Token)
	}
	answered, err := s.Client.Do(r)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err
		}
		return nil, &config.SourceError{
			Source: server, Message: err.Error(), Hint: "is headgate serve running there? It is the address of listen.api",
		}
	}
	defer func() { _ = answered.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answered.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", server, err)
	}
	if answered.StatusCode != http.StatusOK {
		var problem struct {
			Detail string `json:"detail"`
		}
		_ = json.Unmarshal(text, &problem) // the status says enough
		return nil, fmt.Errorf("%s answers %s: %s", server, answered.Status, problem.Detail)
	}
	x := &Explained{Counts: "live"}
	if err := json.Unmarshal(text, x); err != nil {
		return nil, fmt.Errorf("%s does not answer as Headgate does: %w", server, err)
	}
	return x, nil
}

// body returns q as POST /v1/explain takes it.
func (q *ExplainRequest) body() ([]byte, error) {
	type entry struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	}
	type descriptor struct {
		Entries []entry `json:"entries"`
	}
	body := struct {
		Domain      string            `json:"domain"`
		Cost        int64             `json:"cost"`
		Rule        string            `json:"rule,omitempty"`
		Attributes  map[string]string `json:"attributes,omitempty"`
		Descriptors []descriptor      `json:"descriptors,omitempty"`
	}{Domain: q.Domain, Cost: q.Cost, Rule: q.Rule, Attributes: map[string]string{}}
	for a, value := range q.attributes {
		body.Attributes[a.String()] = value
	}
	for _, entries := range q.descriptors {
		var d descriptor
		for _, e := range entries {
			d.Entries = append(d.Entries, entry(e))
		}
		body.Descriptors = append(body.Descriptors, d)
	}
	return json.Marshal(body)
}
