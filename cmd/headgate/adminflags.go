package main

import (
	"cmp"
	"fmt"
	"net/url"

	"github.com/spf13/pflag"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/operate/contexts"
)

// adminFlags are the address and credentials of an admin door.
type adminFlags struct {
	address, context string
	tokens           tokenFlags
	tls              tlsFlags
}

func (f *adminFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.address, "address", "", "address of the admin door (default: HEADGATE_ADDRESS, the context, or "+defaultAdmin+")")
	flags.StringVar(&f.context, "context", "", "context with the address and credentials (default: HEADGATE_CONTEXT, or the one in use); see headgate context")
	f.tokens.add(flags, "HEADGATE_ADMIN_TOKEN")
	f.tls.add(flags)
}

// chosen is a context and where it comes from.
type chosen struct {
	contexts.Context
	name, file string // empty if no context is used
}

// mark returns err with the context that was used, which report prints.
func (c chosen) mark(err error) error {
	if err == nil || c.name == "" {
		return err
	}
	return &contextError{err, fmt.Sprintf("this is the context %q of %s", c.name, c.file)}
}

// contextError is an error of a command that used a context.
type contextError struct {
	err  error
	note string
}

func (e *contextError) Error() string { return e.err.Error() }
func (e *contextError) Unwrap() error { return e.err }

// selection is how a command names its server: the flag for its address and what it
// says, the context of --context, and the address in the environment.
type selection struct{ flag, address, context, environment string }

// choose returns the context to use, and none if an address is given: credentials are
// for the address next to them only.
func (s selection) choose() (c chosen, err error) {
	if s.address != "" && s.context != "" {
		return c, &usageError{s.flag + " and --context cannot be combined", "use one of them"}
	}
	if s.address != "" || s.context == "" && s.environment != "" {
		return c, nil
	}
	c.file = config.ContextsFile()
	if c.file == "" && s.context == "" && config.ContextName() == "" {
		return c, nil
	}
	file, err := readContexts()
	if err != nil {
		return c, err
	}
	c.name = cmp.Or(s.context, config.ContextName(), file.Current)
	if c.name == "" {
		return c, nil
	}
	c.Context, err = file.Get(c.name)
	return c, err
}

// client checks the flags.
func (f *adminFlags) client() (*adminClient, error) {
	from, err := selection{"--address", f.address, f.context, config.AdminAddress()}.choose()
	if err != nil {
		return nil, err
	}
	c, err := f.clientOf(from)
	return c, from.mark(err)
}

// clientOf returns a client for a context, or without one. Flags win over the
// environment, that over the context, unless --context, a flag, names it.
func (f *adminFlags) clientOf(from chosen) (*adminClient, error) {
	given, source := cmp.Or(f.address, from.Address, config.AdminAddress(), defaultAdmin), "--address"
	if f.address == "" {
		source = "HEADGATE_ADDRESS"
	}
	certificates, tokens := f.tls.or(from), f.tokens
	if tokens == (tokenFlags{}) && (f.context != "" || config.AdminToken() == "") {
		tokens.tokenFile = from.TokenFile
	}
	base, err := url.Parse(withScheme(given, &certificates))
	if err != nil || base.Host == "" {
		return nil, &usageError{fmt.Sprintf("%s: %q is not a URL", source, given), "write " + defaultAdmin}
	}
	token, err := tokens.read(config.AdminToken())
	if err != nil {
		return nil, err
	}
	over, err := certificates.client()
	if err != nil {
		return nil, err
	}
	return &adminClient{base, token, over, from}, nil
}
