package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/pflag"

	"github.com/headgate/headgate/internal/base/secretfile"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/transport/certs"
)

// connection is how commands reach a running server: its admin door, and the credentials
// for it. All commands that call a server share its flags.
type connection struct {
	address, tokenFile string
	tls                certs.ClientFiles
}

func (c *connection) add(flags *pflag.FlagSet) {
	flags.StringVar(&c.address, "address", "", "address of the admin door (default, for commands that need a server: HEADGATE_ADDRESS, or "+defaultAdmin+")")
	flags.StringVar(&c.tokenFile, "token-file", "", "file with the token in its first line (default: the token in HEADGATE_TOKEN)")
	flags.StringVar(&c.tls.CA, "ca", "", "PEM file with the CA certificates to trust (default: the system's)")
	flags.StringVar(&c.tls.Cert, "cert", "", "PEM file with a client certificate, if the server requires one")
	flags.StringVar(&c.tls.Key, "cert-key", "", "PEM file with the private key of --cert")
}

// client returns a client for the server that the flags or the environment name.
func (c *connection) client() (*adminClient, error) {
	address, source := cmp.Or(c.address, config.AdminAddress(), defaultAdmin), "--address"
	if c.address == "" {
		source = "HEADGATE_ADDRESS"
	}
	given := address
	if !strings.Contains(address, "://") {
		scheme := "http://"
		if c.tls != (certs.ClientFiles{}) {
			scheme = "https://"
		}
		address = scheme + address
	}
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		if strings.Contains(given, "@") { // perhaps behind a password
			return nil, &usageError{source + " is not a URL", "write " + defaultAdmin}
		}
		return nil, &usageError{fmt.Sprintf("%s: %q is not a URL", source, given), "write " + defaultAdmin}
	}
	token, err := c.token()
	if err != nil {
		return nil, err
	}
	over, err := c.over()
	if err != nil {
		return nil, err
	}
	return &adminClient{base, token, over}, nil
}

// token returns the token, or an empty string.
func (c *connection) token() (string, error) {
	if c.tokenFile == "" {
		return config.ClientToken(), nil
	}
	text, _, err := secretfile.Read(c.tokenFile)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(line), nil
}

// over returns an HTTP client with the certificates.
func (c *connection) over() (*http.Client, error) {
	if c.tls == (certs.ClientFiles{}) {
		return http.DefaultClient, nil
	}
	if (c.tls.Cert == "") != (c.tls.Key == "") {
		return nil, &usageError{"--cert and --cert-key must be given together", ""}
	}
	client, err := certs.LoadClient(c.tls, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
	return &http.Client{Transport: &http.Transport{DialTLSContext: client.Dialer(dialer.DialContext, "http/1.1")}}, nil
}
