package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/replay/offline"
)

// serverTimeout is how long an explanation of a server may take.
const serverTimeout = 30 * time.Second

// explainServer asks the API of a running server.
func explainServer(ctx context.Context, server, token string, client *http.Client, q offline.ExplainRequest) (*offline.Explained, error) {
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	body, err := q.Body()
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
	asked := remote{base, token, client}
	answered, err := asked.send(ctx, http.MethodPost, base.JoinPath("v1/explain"), bytes.NewReader(body))
	if err != nil {
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
		return nil, fmt.Errorf("%s answers %s: %s", server, answered.Status, detail(text))
	}
	x := &offline.Explained{Counts: "live"}
	if err := json.Unmarshal(text, x); err != nil {
		return nil, fmt.Errorf("%s does not answer as Headgate does: %w", server, err)
	}
	return x, nil
}
