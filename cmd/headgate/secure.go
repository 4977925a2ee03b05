package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/spf13/pflag"

	"github.com/headgate/headgate/internal/base/secretfile"
	"github.com/headgate/headgate/internal/transport/certs"
)

// tlsFlags name the certificates that a command trusts and presents.
type tlsFlags struct{ ca, cert, certKey string }

func (f *tlsFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.ca, "ca", "", "PEM file with the CA certificates to trust (default: the system's)")
	flags.StringVar(&f.cert, "cert", "", "PEM file with a client certificate, if the server requires one")
	flags.StringVar(&f.certKey, "cert-key", "", "PEM file with the private key of --cert")
}

func (f *tlsFlags) given() bool { return *f != tlsFlags{} }

// or returns the flags, with the files of a context for those that were not given.
func (f *tlsFlags) or(from chosen) tlsFlags {
	all := tlsFlags{ca: cmp.Or(f.ca, from.CA), cert: f.cert, certKey: f.certKey}
	if all.cert == "" && all.certKey == "" {
		all.cert, all.certKey = from.Cert, from.CertKey
	}
	return all
}

// client returns an HTTP client with these certificates.
func (f *tlsFlags) client() (*http.Client, error) {
	if !f.given() {
		return http.DefaultClient, nil
	}
	if (f.cert == "") != (f.certKey == "") {
		return nil, &usageError{"--cert and --cert-key must be given together", ""}
	}
	client, err := certs.LoadClient(certs.ClientFiles{CA: f.ca, Cert: f.cert, Key: f.certKey}, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
	return &http.Client{Transport: &http.Transport{DialTLSContext: client.Dialer(dialer.DialContext, "http/1.1")}}, nil
}

// tokenFlags hold the token of a command, or its file.
type tokenFlags struct{ token, tokenFile string }

// add adds the flags; otherwise is the environment variable used without them.
func (f *tokenFlags) add(flags *pflag.FlagSet, otherwise string) {
	flags.StringVar(&f.token, "token", "", fmt.Sprintf("token of the server (default: %s)", otherwise))
	flags.StringVar(&f.tokenFile, "token-file", "", "file with the token in its first line")
}

// read returns the token, or otherwise if there is none.
func (f *tokenFlags) read(otherwise string) (string, error) {
	switch {
	case f.token != "" && f.tokenFile != "":
		return "", &usageError{"--token and --token-file cannot be combined", "use one of them"}
	case f.tokenFile != "":
		text, _, err := secretfile.Read(f.tokenFile)
		if err != nil {
			return "", err
		}
		line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
		return strings.TrimSpace(line), nil
	case f.token != "":
		return f.token, nil
	}
	return otherwise, nil
}
