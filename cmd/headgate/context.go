package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/operate/contexts"
)

func newContext(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "context",
		Short: "name the servers that commands call",
		Long: `A context is a server's name, with its address and the files with its credentials.
It spares --address and the like for commands that call a running server, such as
headgate top.

The server is that of --address or --context, else of HEADGATE_ADDRESS, else of the
context that HEADGATE_CONTEXT names, else of the context in use, else ` + defaultAdmin + `.
With --address or HEADGATE_ADDRESS no context is used: its token is not for others.

headgate limits and headgate explain call the HTTP API instead: api and api_token_file
of the context, --server, and HEADGATE_SERVER.

Contexts are in headgate/contexts.yaml in XDG_CONFIG_HOME, ~/.config without it, or
in the file that HEADGATE_CONTEXTS names. The file has no secrets.`,
		Example: `  headgate context set production --address https://limits.example:6070 --token-file ~/.headgate-token
  headgate context use production
  headgate top`,
	}
	cmd.AddCommand(newContextList(s), newContextUse(s), newContextSet(s), newContextRemove(s))
	return cmd
}

// readContexts reads the file with contexts.
func readContexts() (*contexts.File, error) {
	path := config.ContextsFile()
	if path == "" {
		return nil, &hintedError{errors.New("there is no folder for contexts: HOME is not set"), "set HEADGATE_CONTEXTS to a file"}
	}
	return contexts.Read(path)
}

// contextNames completes names of contexts.
func contextNames(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	f, err := readContexts()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return f.Names(), cobra.ShellCompDirectiveNoFileComp
}

// firstContext completes the name of a context as the only argument.
func firstContext(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return contextNames(cmd, args, toComplete)
}

// contextList is the JSON of context list.
type contextList struct {
	File     string                      `json:"file"`
	Current  string                      `json:"current"`
	Contexts map[string]contexts.Context `json:"contexts"`
}

func newContextList(s streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "list contexts", Args: cobra.NoArgs,
		Long: "List lists the contexts. The one in use has an asterisk.",
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(*cobra.Command, []string) error {
		f, err := readContexts()
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(s.out, contextList{f.Path, f.Current, f.All})
		}
		if len(f.All) == 0 {
			_, err := fmt.Fprintf(s.out, "no contexts in %s\n", inert(f.Path))
			return err
		}
		t := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(t, "\tNAME\tADDRESS\tTOKEN\tCERTIFICATE") // Flush returns the error
		for _, name := range f.Names() {
			c, mark := f.All[name], ""
			if name == f.Current {
				mark = "*"
			}
			_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", mark, name, inert(c.Address), orDash(c.TokenFile), orDash(c.Cert))
		}
		return t.Flush()
	}
	return cmd
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return inert(text)
}

func newContextUse(s streams) *cobra.Command {
	return &cobra.Command{
		Use: "use NAME", Short: "use a context from now on", Args: cobra.ExactArgs(1), ValidArgsFunction: firstContext,
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := readContexts()
			if err != nil {
				return err
			}
			c, err := f.Get(args[0])
			if err != nil {
				return err
			}
			f.Current = args[0]
			if err := f.Write(); err != nil {
				return err
			}
			_, err = fmt.Fprintf(s.out, "commands call %s at %s\n", f.Current, inert(c.Address))
			return err
		},
	}
}

func newContextSet(s streams) *cobra.Command {
	var given contexts.Context
	cmd := &cobra.Command{
		Use: "set NAME", Short: "make or change a context", Args: cobra.ExactArgs(1), ValidArgsFunction: firstContext,
		Long: `Set makes a context, or changes what the flags say of one. An empty value, such as
--ca '', removes it. The first context is in use at once.`,
		Example: `  headgate context set production --address https://limits.example:6070 --token-file ~/.headgate-token
  headgate context set production --api https://limits.example:8080 --api-token-file ~/.headgate-api-token
  headgate context set staging --address 10.0.0.5:6070 --ca ca.pem --cert ann.pem --cert-key ann.key`,
	}
	flags := cmd.Flags()
	flags.StringVar(&given.Address, "address", "", "address of the admin door: a URL, or host:port")
	flags.StringVar(&given.TokenFile, "token-file", "", "file with the token in its first line")
	flags.StringVar(&given.API, "api", "", "address of the HTTP API: a URL, or host:port")
	flags.StringVar(&given.APITokenFile, "api-token-file", "", "file with the token of the HTTP API in its first line")
	flags.StringVar(&given.CA, "ca", "", "PEM file with the CA certificates to trust")
	flags.StringVar(&given.Cert, "cert", "", "PEM file with a client certificate")
	flags.StringVar(&given.CertKey, "cert-key", "", "PEM file with the private key of --cert")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := contexts.CheckName(args[0]); err != nil {
			return &usageError{err.Error(), "for example: headgate context set production --address 127.0.0.1:6070"}
		}
		f, err := readContexts()
		if err != nil {
			return err
		}
		c := f.All[args[0]]
		if err := change(&c, &given, flags.Changed); err != nil {
			return err
		}
		if err := c.Check(); err != nil {
			return &usageError{fmt.Sprintf("context %q: %s", args[0], err), "for example: headgate context set production --address 127.0.0.1:6070"}
		}
		f.All[args[0]] = c
		if len(f.All) == 1 {
			f.Current = args[0]
		}
		if err := f.Write(); err != nil {
			return err
		}
		warnOfReaders(s, c.TokenFile, c.APITokenFile, c.CertKey)
		_, err = fmt.Fprintf(s.out, "context %s saved in %s\n", args[0], inert(f.Path))
		return err
	}
	return cmd
}

// warnOfReaders warns of files with secrets that every user can read.
func warnOfReaders(s streams, files ...string) {
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o004 != 0 {
			_, _ = fmt.Fprintf(s.err, "warning: every user on this machine can read the secret in %s\nhint: run chmod o-r or chmod 600\n", inert(file))
		}
	}
}

// change sets in c what was given. Names of files become absolute: the next command may
// run in another folder.
func change(c, given *contexts.Context, changed func(flag string) bool) (err error) {
	if changed("address") {
		c.Address = given.Address
	}
	if changed("api") {
		c.API = given.API
	}
	for _, file := range []struct {
		flag     string
		to, from *string
	}{
		{"token-file", &c.TokenFile, &given.TokenFile},
		{"api-token-file", &c.APITokenFile, &given.APITokenFile},
		{"ca", &c.CA, &given.CA},
		{"cert", &c.Cert, &given.Cert},
		{"cert-key", &c.CertKey, &given.CertKey},
	} {
		if !changed(file.flag) {
			continue
		}
		if *file.to = *file.from; *file.from != "" {
			if *file.to, err = filepath.Abs(*file.from); err != nil {
				return err
			}
		}
	}
	return nil
}

func newContextRemove(s streams) *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Aliases: []string{"rm"}, Short: "remove a context", Args: cobra.ExactArgs(1), ValidArgsFunction: firstContext,
		Long: "Remove removes a context, not the files that it names.",
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := readContexts()
			if err != nil {
				return err
			}
			if _, err := f.Get(args[0]); err != nil {
				return err
			}
			delete(f.All, args[0])
			if f.Current == args[0] {
				f.Current = ""
			}
			if err := f.Write(); err != nil {
				return err
			}
			_, err = fmt.Fprintf(s.out, "context %s removed\n", args[0])
			return err
		},
	}
}
