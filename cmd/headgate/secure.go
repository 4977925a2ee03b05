package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/headgate/headgate/internal/transport/certs"
)

// tlsFlags say whom a command believes, and who it is itself.
type tlsFlags struct{ ca, cert, certKey string }

func (f *tlsFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.ca, "ca", "", "PEM file of the authority of its certificate (default: the system's)")
	flags.StringVar(&f.cert, "cert", "", "PEM file of our certificate, if it asks for one")
	flags.StringVar(&f.certKey, "cert-key", "", "PEM file of the key of --cert")
}

func (f *tlsFlags) given() bool { return *f != tlsFlags{} }

// client returns what asks over HTTP so.
func (f *tlsFlags) client() (*http.Client, error) {
	if !f.given() {
		return http.DefaultClient, nil
	}
	if (f.cert == "") != (f.certKey == "") {
		return nil, &usageError{"--cert and --cert-key go together", "name both"}
	}
	client, err := certs.LoadClient(certs.ClientFiles{CA: f.ca, Cert: f.cert, Key: f.certKey}, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
	return &http.Client{Transport: &http.Transport{DialTLSContext: client.Dialer(dialer.DialContext, "http/1.1")}}, nil
}

// tokenFlags say by what token a command is known.
type tokenFlags struct{ token, tokenFile string }

// add adds the flags; otherwise is the variable of the environment that counts
// without them.
func (f *tokenFlags) add(flags *pflag.FlagSet, otherwise string) {
	flags.StringVar(&f.token, "token", "", fmt.Sprintf("its token (default: what %s says)", otherwise))
	flags.StringVar(&f.tokenFile, "token-file", "", "file with its token, in the first line")
}

// read returns the token, or otherwise if there is none.
func (f *tokenFlags) read(otherwise string) (string, error) {
	switch {
	case f.token != "" && f.tokenFile != "":
		return "", &usageError{"--token and --token-file say the same", "leave one of them out"}
	case f.tokenFile != "":
		text, err := os.ReadFile(f.tokenFile)
		if err != nil {
			return "", err
		}
		line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
		return strings.TrimSpace(line), nil
	case f.token != "":
		return f.token, nil
	}
	return otherwise, nil
}
