package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate/headgate/internal/base/plain"
	"github.com/headgate/headgate/internal/config"
)

func newMan(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "write man pages",
		Long: `Man writes a man page for every command to a folder, which it creates if needed:
headgate.1, headgate-serve.1 and so on. Install them in a folder such as
/usr/local/share/man/man1.

Their date is SOURCE_DATE_EPOCH if it is set, and otherwise that of the commit.`,
		Example: `  headgate man man1
  man -l man1/headgate-serve.1`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			v := readVersion()
			date, _, _ := strings.Cut(v.Time, "T")
			if text := config.SourceDate(); text != "" {
				seconds, err := strconv.ParseInt(text, 10, 64)
				if err != nil {
					return &usageError{fmt.Sprintf("SOURCE_DATE_EPOCH: %q is not a number of seconds", text), ""}
				}
				date = time.Unix(seconds, 0).UTC().Format(time.DateOnly)
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // everyone may read man pages
				return err
			}
			pages := documented(cmd.Root())
			for _, c := range pages {
				name := filepath.Join(args[0], manName(c)+".1")
				if err := os.WriteFile(name, []byte(manPage(c, date, v.Version)), 0o644); err != nil { //nolint:gosec // likewise
					return err
				}
			}
			_, err := fmt.Fprintf(s.out, "%s in %s\n", plain.Count(len(pages), "page"), inert(args[0]))
			return err
		},
	}
}

// documented returns cmd and the commands below it that have a page.
func documented(cmd *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			list = append(list, documented(sub)...)
		}
	}
	return list
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage returns the page of cmd, in the man macros of roff.
func manPage(cmd *cobra.Command, date, version string) string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	p(`.TH "%s" 1 "%s" "headgate %s" "Headgate"`, roff(strings.ToUpper(manName(cmd))), date, roff(version))
	p(".SH NAME\n%s \\- %s", roff(manName(cmd)), roff(cmd.Short))
	p(".SH SYNOPSIS\n.B %s", roff(cmd.UseLine()))
	p(".SH DESCRIPTION")
	for part := range strings.SplitSeq(strings.TrimSpace(cmp.Or(cmd.Long, cmd.Short+".")), "\n\n") {
		if strings.HasPrefix(part, "\t") || strings.HasPrefix(part, " ") {
			p(".PP\n.nf\n%s\n.fi", roff(part))
		} else {
			p(".PP\n%s", roff(part))
		}
	}
	p(".SH OPTIONS")
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		value, usage := pflag.UnquoteUsage(f)
		if !slices.Contains([]string{"", "false", "0", "0s", "[]"}, f.DefValue) {
			usage += fmt.Sprintf(" (default %s)", f.DefValue)
		}
		short := ""
		if f.Shorthand != "" {
			short = fmt.Sprintf(`\fB\-%s\fR, `, f.Shorthand)
		}
		p(".TP\n%s\\fB\\-\\-%s\\fR \\fI%s\\fR\n%s", short, roff(f.Name), value, roff(usage))
	})
	if cmd.HasExample() {
		p(".SH EXAMPLES\n.nf\n%s\n.fi", roff(cmd.Example))
	}
	if cmd.HasAvailableSubCommands() {
		p(".SH COMMANDS")
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			p(".TP\n.BR %s (1)\n%s", roff(manName(sub)), roff(sub.Short))
		}
	}
	if cmd.HasParent() {
		p(".SH SEE ALSO\n.BR %s (1)", roff(manName(cmd.Parent())))
	}
	return b.String()
}

// roff escapes text: backslashes, hyphens, and control characters at the start of
// a line.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
