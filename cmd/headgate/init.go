package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/operate/setup"
)

// initFlags are the flags of init.
type initFlags struct {
	answers    setup.Answers
	limits     string
	yes, force bool
}

func newInit(s streams) *cobra.Command {
	var f initFlags
	cmd := &cobra.Command{
		Use:   "init [FOLDER]",
		Short: "write a first configuration, rules and a rule test",
		Long: `Init asks what is in front, where counts are kept, and what to limit.
It writes a configuration, rules, a rule test, and what the proxy in front needs to the
folder, by default the current one, and prints the next command. Existing files are
kept, unless --force is given.

Flags answer the questions. With --yes, or if standard input is not a terminal,
nothing is asked.`,
		Example: `  headgate init
  headgate init limits --front nginx --store memory --limit logins,addresses
  headgate init --front none --upstream http://127.0.0.1:9000 --store redis://127.0.0.1:6379`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.answers.Front, "front", "none", "what is in front: nginx, traefik, caddy, envoy, go or none")
	flags.StringVar(&f.answers.Store, "store", "memory", "where counts are kept: memory, or a URL such as redis://127.0.0.1:6379")
	flags.StringVar(&f.limits, "limit", "logins,addresses", "what to limit: logins, addresses, api-keys, separated by commas")
	flags.StringVar(&f.answers.Upstream, "upstream", "http://127.0.0.1:9000", "URL of the service behind headgate, with --front none")
	flags.BoolVarP(&f.yes, "yes", "y", false, "ask nothing: use the flags and their defaults")
	flags.BoolVar(&f.force, "force", false, "overwrite files")
	_ = cmd.RegisterFlagCompletionFunc("front", words("nginx", "traefik", "caddy", "envoy", "go", "none"))
	_ = cmd.RegisterFlagCompletionFunc("limit", words("logins", "addresses", "api-keys"))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		folder := "."
		if len(args) > 0 {
			folder = args[0]
		}
		if !f.yes && isTerminalInput(s.in) {
			if err := f.ask(s, cmd.Flags().Changed); err != nil {
				return err
			}
		}
		return f.write(s, folder)
	}
	return cmd
}

// isTerminalInput reports whether a person can be asked.
func isTerminalInput(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok || !isTerminal(f) {
		return false
	}
	is, err := f.Stat()
	null, err2 := os.Stat(os.DevNull)
	return err == nil && (err2 != nil || !os.SameFile(is, null))
}

// ask asks what no flag answers, until the answer is valid. An empty line is the
// default; the end of the input is none, and an error.
func (f *initFlags) ask(s streams, given func(flag string) bool) error {
	in := bufio.NewReader(s.in)
	question := func(flag, text string, choices []setup.Choice, value *string, check func() error) error {
		if given(flag) {
			return usage(check())
		}
		_, _ = fmt.Fprintln(s.err, text)
		for _, c := range choices {
			_, _ = fmt.Fprintf(s.err, "  %-10s %s\n", c.Name, c.What)
		}
		byDefault := *value
		for {
			_, _ = fmt.Fprintf(s.err, "[%s] ", byDefault)
			line, err := in.ReadString('\n')
			if errors.Is(err, io.EOF) && line == "" {
				_, _ = fmt.Fprintln(s.err)
				return errors.New("the input ended before all questions were answered: nothing was written")
			} else if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			*value = cmp.Or(strings.TrimSpace(line), byDefault)
			wrong, ok := errors.AsType[*setup.WrongAnswerError](check())
			if !ok {
				return nil
			}
			_, _ = fmt.Fprintln(s.err, inert(wrong.Message))
			if wrong.Hint != "" {
				_, _ = fmt.Fprintln(s.err, wrong.Hint)
			}
		}
	}
	if err := question("front", "What is in front of your service?", setup.Fronts(), &f.answers.Front, f.answers.CheckFront); err != nil {
		return err
	}
	if f.answers.Front == "none" {
		if err := question("upstream", "Where is your service?", nil, &f.answers.Upstream, f.answers.CheckUpstream); err != nil {
			return err
		}
	}
	if err := question("store", "Where are counts kept?", []setup.Choice{
		{Name: "memory", What: "in this server"}, {Name: "URL", What: "in Redis, for several servers: redis://127.0.0.1:6379"},
	}, &f.answers.Store, f.answers.CheckStore); err != nil {
		return err
	}
	return question("limit", "What do you want to limit? (several: separated by commas)", setup.Limits(), &f.limits, func() error {
		f.split()
		return f.answers.CheckLimits()
	})
}

// split sets the limits of the answers.
func (f *initFlags) split() {
	f.answers.Limits = nil
	for name := range strings.SplitSeq(f.limits, ",") {
		if name = strings.TrimSpace(name); name != "" {
			f.answers.Limits = append(f.answers.Limits, name)
		}
	}
}

// usage returns a wrong answer as an error of usage.
func usage(err error) error {
	if wrong, ok := errors.AsType[*setup.WrongAnswerError](err); ok {
		return &usageError{wrong.Error(), wrong.Hint}
	}
	return err
}

// write writes the files and says what to do next.
func (f *initFlags) write(s streams, folder string) error {
	f.split()
	if err := f.answers.Check(); err != nil {
		return usage(err)
	}
	existing := setup.Keep
	if f.force {
		existing = setup.Replace
	}
	files := f.answers.Files()
	if err := setup.Write(folder, files, existing); errors.Is(err, setup.ErrExists) {
		return &hintedError{err, "choose another folder, or overwrite with --force"}
	} else if err != nil {
		return err
	}
	for _, file := range files {
		_, _ = fmt.Fprintf(s.out, "wrote %s\n", file.Name)
	}
	next, then := f.answers.Next(folder)
	_, err := fmt.Fprintf(s.out, "\nnext: %s\n\n%s\n", inert(next), inert(then))
	return err
}
