package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate/headgate/internal/base/nearest"
)

// run executes a command line and returns the exit code.
func run(ctx context.Context, args []string, s streams) int {
	root := newRoot(s)
	root.SetArgs(args)
	began := false // a command has started; earlier errors are cobra's
	root.PersistentPreRun = func(*cobra.Command, []string) { began = true }
	err := root.ExecuteContext(ctx)
	if !began {
		err = asUsage(root, args, err)
	}
	return report(s.err, err)
}

func newRoot(s streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "headgate",
		Short: "an exact rate limiter",
		Long: `Headgate is a rate limiter. It decides for every request whether it is allowed
and, if not, when to retry.

To try it: headgate quickstart`,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asked, err := cmd.Flags().GetBool("version"); err != nil || !asked {
				return cmd.Help()
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), readVersion().String())
			return err
		},
		Args: cobra.NoArgs,
	}
	// Not cobra's flag: its template keeps every exported method in the binary.
	root.Flags().BoolP("version", "v", false, "version for headgate")
	root.SuggestionsMinimumDistance = 2
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetFlagErrorFunc(wrongFlag)
	root.AddCommand(newServe(s), newProxy(s), newQuickstart(s), newCheck(s), newInit(s), newTest(s), newSimulate(s), newSuggest(s), newVersion(s), newMan(s))
	server := new(connection)
	for _, cmd := range []*cobra.Command{
		newDiff(s, server), newDoctor(s, server), newExplain(s, server), newKeys(s, server), newLimits(s, server),
		newQueue(s, server), newRegions(s, server), newRules(s, server), newTop(s, server), newWarnings(s, server),
	} {
		server.add(cmd.PersistentFlags())
		root.AddCommand(cmd)
	}
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		completeFlags(cmd, server)
		if cmd.HasSubCommands() {
			cmd.Args = knownCommand
			if !cmd.Runnable() {
				cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			}
		}
		if cmd.Name() == "help" {
			cmd.Args = func(_ *cobra.Command, args []string) error {
				of, rest, err := root.Find(args)
				if err == nil && len(rest) > 0 {
					err = knownCommand(of, rest)
				}
				return err
			}
		}
	}
	return root
}

// wrongFlag returns the error of a command with a wrong flag. An unknown action comes
// first: its flags are unknown too.
func wrongFlag(cmd *cobra.Command, err error) error {
	if cmd.HasParent() && cmd.HasSubCommands() {
		if unknown := knownCommand(cmd, cmd.Flags().Args()); unknown != nil {
			return unknown
		}
	}
	return &usageError{flagProblem(err), flagHint(cmd, err)}
}

// knownCommand refuses arguments that are not subcommands of cmd.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var known []string
	for _, sub := range cmd.Commands() {
		known = append(known, sub.Name())
	}
	hint := "commands: " + strings.Join(known, ", ")
	if near := nearest.Word(args[0], known); near != "" {
		hint = fmt.Sprintf("did you mean %q?", cmd.CommandPath()+" "+near)
	}
	return &usageError{fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath()), hint}
}

// flagProblem says what is wrong with a flag, without the names of Go's functions.
func flagProblem(err error) string {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err.Error()
	}
	want := ""
	switch invalid.GetFlag().Value.Type() {
	case "int", "int64", "uint64":
		want = "a whole number"
	case "float64":
		want = "a number"
	case "bool":
		want = "true or false"
	case "duration":
		want = "a duration such as 30s or 5m"
	default:
		return err.Error()
	}
	if errors.Is(err, strconv.ErrRange) {
		return fmt.Sprintf("--%s: %s is too large", invalid.GetFlag().Name, invalid.GetValue())
	}
	return fmt.Sprintf("--%s: %q is not %s", invalid.GetFlag().Name, invalid.GetValue(), want)
}

// flagHint suggests an existing flag for one that does not exist.
func flagHint(cmd *cobra.Command, err error) string {
	if missing, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var known []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		if near := nearest.Word(missing.GetSpecifiedName(), known); near != "" {
			return fmt.Sprintf("did you mean --%s?", near)
		}
	}
	return fmt.Sprintf("run %s --help", cmd.CommandPath())
}

// asUsage turns cobra's errors, which have no type, into usageErrors. They occur
// before a command starts.
func asUsage(root *cobra.Command, args []string, err error) error {
	if _, ok := errors.AsType[*usageError](err); ok || err == nil {
		return err
	}
	message := err.Error()
	if strings.HasPrefix(message, "unknown command") {
		message, _, _ = strings.Cut(message, "\n")
		hint := "run headgate help"
		if word, path, _ := strings.Cut(strings.TrimPrefix(message, "unknown command "), " for "); path != strconv.Quote(root.Name()) {
			path = strings.Trim(path, `"`)
			if strings.Contains(word, "@") { // a URL, and perhaps its password
				word = "one"
			}
			return &usageError{fmt.Sprintf("%s takes no arguments, got %s", path, word), "run " + path + " --help"}
		}
		for _, arg := range args {
			if !strings.HasPrefix(arg, "-") {
				if near := root.SuggestionsFor(arg); len(near) > 0 {
					hint = fmt.Sprintf("did you mean %q?", "headgate "+near[0])
				}
				break
			}
		}
		return &usageError{message, hint}
	}
	var got int
	if cmd, _, unknown := root.Find(args); unknown == nil && argumentCount(message, &got) {
		return &usageError{fmt.Sprintf("wrong number of arguments: want %q, got %d", cmd.UseLine(), got), "run " + cmd.CommandPath() + " --help"}
	}
	return &usageError{message, "run headgate help"}
}

// argumentCount reads cobra's complaint about the number of arguments.
func argumentCount(message string, got *int) bool {
	before, count, ok := strings.Cut(message, " arg(s), received ")
	n, err := strconv.Atoi(count)
	*got = n
	return ok && err == nil && strings.HasPrefix(before, "accepts ")
}
