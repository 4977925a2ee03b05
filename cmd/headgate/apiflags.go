package main

import (
	"cmp"
	"strings"

	"github.com/spf13/pflag"

	"github.com/headgate/headgate/internal/config"
)

// defaultAPI is where the HTTP API is looked for.
const defaultAPI = "http://127.0.0.1:8080"

// apiFlags are the address and credentials of an HTTP API.
type apiFlags struct {
	server, context string
	tokens          tokenFlags
	tls             tlsFlags
}

// add adds the flags; otherwise says which server is meant without --server.
func (f *apiFlags) add(flags *pflag.FlagSet, otherwise string) {
	flags.StringVar(&f.server, "server", "", "address of the HTTP API, such as "+defaultAPI+otherwise)
	flags.StringVar(&f.context, "context", "", "context with the address and credentials of the server; see headgate context")
	f.tokens.add(flags, "HEADGATE_API_TOKEN")
	f.tls.add(flags)
}

// given reports whether the flags name a server.
func (f *apiFlags) given() bool { return f.server != "" || f.context != "" }

// call returns how to call a path of the server.
func (f *apiFlags) call(path string) (c serverCall, err error) {
	from, err := selection{"--server", f.server, f.context, config.APIAddress()}.choose()
	if err != nil {
		return c, err
	}
	c, err = f.callOf(from, path)
	return c, from.mark(err)
}

// callOf is call with a context, or without one.
func (f *apiFlags) callOf(from chosen, path string) (c serverCall, err error) {
	c = serverCall{server: cmp.Or(f.server, from.API, config.APIAddress(), defaultAPI), source: "--server", path: path, from: from}
	switch {
	case from.name != "" && from.API == "":
		return c, &usageError{"the context has no address of the HTTP API", "headgate context set " + from.name + " --api https://limits.example:8080, or use --server"}
	case from.name != "":
		c.source = "api"
	case f.server == "" && config.APIAddress() != "":
		c.source = "HEADGATE_SERVER"
	}
	certificates, tokens := f.tls.or(from), f.tokens
	if tokens == (tokenFlags{}) && (f.context != "" || config.APIToken() == "") {
		tokens.tokenFile = from.APITokenFile
	}
	if from.name != "" {
		c.server = withScheme(c.server, &certificates)
	}
	if c.token, err = tokens.read(config.APIToken()); err != nil {
		return c, err
	}
	c.client, err = certificates.client()
	return c, err
}

// withScheme returns an address as a URL: with https if there are certificates.
func withScheme(address string, certificates *tlsFlags) string {
	switch {
	case strings.Contains(address, "://"):
		return address
	case certificates.given():
		return "https://" + address
	}
	return "http://" + address
}
