package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/base/atomicfile"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/door/admin/keysfile"
)

// keysFileFlags are the flags of keys import and keys export.
type keysFileFlags struct {
	*connection
	format, domain, rule string
	dryRun, asJSON       bool
}

// addFile adds the flags that both commands have.
func (f *keysFileFlags) addFile(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.format, "format", "", "jsonl or csv (default: by the file's name, or jsonl)")
	_ = cmd.RegisterFlagCompletionFunc("format", words(keysfile.Formats()...)) // fails only if registered twice
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{"jsonl", "ndjson", "json", "csv"}, cobra.ShellCompDirectiveFilterFileExt
	}
}

// formatOf returns the format of a file.
func (f *keysFileFlags) formatOf(file string) (keysfile.Format, error) {
	if f.format != "" {
		format, ok := keysfile.ParseFormat(f.format)
		if !ok {
			return 0, &usageError{fmt.Sprintf("--format: unknown format %q", f.format), "use jsonl or csv"}
		}
		return format, nil
	}
	format, ok := keysfile.FormatOf(file)
	if !ok && file != "-" {
		return 0, &usageError{fmt.Sprintf("%s: the name does not tell the format", file), "name it .jsonl or .csv, or use --format"}
	}
	return format, nil
}

func newKeysExport(s streams, server *connection) *cobra.Command {
	f := keysFileFlags{connection: server}
	cmd := &cobra.Command{
		Use: "export [FILE]", Short: "write all bans, overrides and grants to a file", Args: cobra.MaximumNArgs(1),
		Long: `Export writes all active bans, overrides and grants of a running server to a
file, or to standard output: JSON Lines, or CSV if the file's name ends in .csv.
Keys import reads it again. Ends are points in time, not durations. Usage is not
exported.`,
		Example: `  headgate keys export keys.jsonl
  headgate keys export --rule per-key --format csv > overrides.csv`,
	}
	f.addFile(cmd)
	cmd.Flags().StringVar(&f.domain, "domain", "", "only this domain")
	cmd.Flags().StringVar(&f.rule, "rule", "", "only this rule")
	cmd.RunE = asking(&f, func(cmd *cobra.Command, args []string, client *adminClient) error {
		file := "-"
		if len(args) > 0 {
			file = args[0]
		}
		format, err := f.formatOf(file)
		if err != nil {
			return err
		}
		var all admin.ExportAnswer
		if err := client.getJSON(cmd.Context(), "/v1/keys/export", query(url.Values{}, map[string]string{"domain": f.domain, "rule": f.rule}), &all); err != nil {
			return err
		}
		if all.NoRule > 0 {
			_, _ = fmt.Fprintf(s.err, "warning: left out %d of rules that no longer exist\n", all.NoRule)
		}
		if file == "-" {
			return keysfile.Write(s.out, format, all.Rows)
		}
		var text writeBuffer
		if err := keysfile.Write(&text, format, all.Rows); err != nil {
			return err
		}
		if err := atomicfile.Write(file, text); err != nil {
			return err
		}
		_, err = fmt.Fprintf(s.err, "exported %d rows to %s\n", len(all.Rows), file)
		return err
	})
	return cmd
}

// writeBuffer collects what is written.
type writeBuffer []byte

// Write implements io.Writer.
func (b *writeBuffer) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}

func newKeysImport(s streams, server *connection) *cobra.Command {
	f := keysFileFlags{connection: server}
	cmd := &cobra.Command{
		Use: "import FILE", Short: "make the bans, overrides and grants of a file", Args: cobra.ExactArgs(1),
		Long: `Import makes the bans, overrides and grants that a file lists, on a running
server: JSON Lines, or CSV if the file's name ends in .csv, or standard input
for -. It checks all rows first, and changes nothing if one of them is wrong.

Importing a file twice changes nothing the second time: a ban or an override
replaces that of its key, and a grant is made once for each id. Rows that have
ended are skipped.`,
		Example: `  headgate keys import keys.jsonl
  headgate keys import --dry-run overrides.csv
  headgate keys export | headgate keys import --address 10.0.0.2:6070 -`,
	}
	f.addFile(cmd)
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "check the file and say what would change, but change nothing")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print the result as JSON")
	cmd.RunE = asking(&f, func(cmd *cobra.Command, args []string, client *adminClient) error {
		i := &keysImport{cmd: cmd, client: client, file: args[0]}
		if isTerminal(s.err) {
			i.line = &overwritten{paint: paint{w: s.err}}
		}
		if err := i.read(&f, s.in); err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		cmd.SetContext(ctx)
		err := i.run(f.dryRun)
		if i.line != nil {
			i.line.clear()
		}
		if err != nil {
			return err
		}
		return i.print(s.out, &f)
	})
	return cmd
}

// keysImport is one run of keys import.
type keysImport struct {
	cmd    *cobra.Command
	client *adminClient
	file   string
	line   *overwritten // the progress; nil without a terminal

	content *keysfile.File
	total   admin.ImportAnswer
}

// read reads the file.
func (i *keysImport) read(f *keysFileFlags, stdin io.Reader) error {
	format, err := f.formatOf(i.file)
	if err != nil {
		return err
	}
	in := stdin
	if i.file != "-" {
		file, err := os.Open(i.file)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	if i.content, err = keysfile.Read(in, format); err != nil {
		return fmt.Errorf("%s: %w", i.file, err)
	}
	return i.wrong(i.content.Problems, i.content.Total)
}

// wrong returns the mistakes of the file as an error.
func (i *keysImport) wrong(list []keysfile.Problem, total int) error {
	if total == 0 {
		return nil
	}
	var all []error
	for _, p := range list {
		all = append(all, fmt.Errorf("%s:%s", cmp.Or(map[string]string{"-": "standard input"}[i.file], i.file), inert(p.String())))
	}
	if more := total - len(list); more > 0 {
		all = append(all, fmt.Errorf("and %d more mistakes", more))
	}
	return &hintedError{errors.Join(all...), "nothing was changed"}
}

// batches calls f with parts of the rows that fit into a request.
func (i *keysImport) batches(what string, f func(from int, rows []keysfile.Parsed) error) error {
	all := i.content.Rows
	for from := 0; from < len(all); {
		to, size := from, 0
		for to < len(all) && to-from < admin.MaxImportRows && size+len(all[to].JSON)+1 < admin.MaxImportBody-100 {
			size += len(all[to].JSON) + 1
			to++
		}
		if err := f(from, all[from:to]); err != nil {
			return err
		}
		from = to
		if i.line != nil {
			i.line.write(fmt.Sprintf("%s %d of %d rows", what, from, len(all)))
		}
	}
	return nil
}

// send sends rows to the server.
func (i *keysImport) send(rows []keysfile.Parsed, dryRun bool) (out admin.ImportAnswer, err error) {
	request := admin.ImportRequest{DryRun: dryRun, Rows: make([]json.RawMessage, len(rows))}
	for n := range rows {
		request.Rows[n] = rows[n].JSON
	}
	err = i.client.postJSON(i.cmd.Context(), "/v1/keys/import", request, &out)
	if err != nil && i.cmd.Context().Err() != nil {
		err = errors.New("interrupted")
	}
	return out, err
}

// run checks all rows and then, without dryRun, makes the changes.
func (i *keysImport) run(dryRun bool) error { //nolint:revive // the flag --dry-run
	const shown = 10
	var problems []keysfile.Problem
	var checked admin.ImportAnswer
	wrong := 0
	err := i.batches("checked", func(_ int, rows []keysfile.Parsed) error {
		out, err := i.send(rows, true)
		for _, w := range out.Wrong {
			if len(problems) < shown && w.Row >= 0 && w.Row < len(rows) {
				problems = append(problems, rows[w.Row].Problem(w.Field, w.Detail))
			}
		}
		wrong += out.WrongTotal
		add(&checked, &out)
		return err
	})
	if err != nil && i.cmd.Context().Err() != nil {
		return &hintedError{err, "nothing was changed"}
	}
	if err != nil {
		return err
	}
	if err := i.wrong(problems, wrong); err != nil {
		return err
	}
	if checked.New > checked.Room && len(i.content.Rows) > 0 {
		return &hintedError{fmt.Errorf("the file adds %d bans, overrides and grants, and there is space for %d", checked.New, checked.Room), "nothing was changed"}
	}
	if i.total = checked; dryRun {
		return nil
	}
	i.total = admin.ImportAnswer{}
	return i.batches("imported", func(from int, rows []keysfile.Parsed) error {
		out, err := i.send(rows, false)
		if err != nil {
			return i.interrupted(from, rows, err)
		}
		add(&i.total, &out)
		return nil
	})
}

// interrupted says what was done before err.
func (i *keysImport) interrupted(from int, rows []keysfile.Parsed, err error) error {
	what := fmt.Sprintf("lines %d to %d may be done in part", rows[0].Line, rows[len(rows)-1].Line)
	if refused, ok := errors.AsType[*refusedError](err); ok && refused.status == http.StatusBadRequest {
		what = fmt.Sprintf("line %d and those after it are not", rows[0].Line)
	}
	if from > 0 {
		what = fmt.Sprintf("the lines up to %d are done, ", i.content.Rows[from-1].Line) + what
	}
	return &hintedError{fmt.Errorf("%w; %s", err, what), "run the same command again: what is done stays as it is"}
}

// add adds the counts of an answer.
func add(to, out *admin.ImportAnswer) {
	to.Rows += out.Rows
	to.Changed += out.Changed
	to.Unchanged += out.Unchanged
	to.Ended += out.Ended
	to.New += out.New
	to.Room = out.Room
	to.Warning = cmp.Or(to.Warning, out.Warning)
}

// print prints the result.
func (i *keysImport) print(w io.Writer, f *keysFileFlags) error {
	t := &i.total
	if f.asJSON {
		return printJSON(w, struct {
			DryRun    bool   `json:"dry_run"`
			Rows      int    `json:"rows"`
			Changed   int    `json:"changed"`
			Unchanged int    `json:"unchanged"`
			Ended     int    `json:"ended"`
			Warning   string `json:"warning,omitempty"`
		}{f.dryRun, t.Rows, t.Changed, t.Unchanged, t.Ended, t.Warning})
	}
	text := "imported %d rows: %d changed, %d unchanged, %d had ended\n"
	if f.dryRun {
		text = "checked %d rows: %d would change, %d would not, %d have ended\n"
	}
	_, err := fmt.Fprintf(w, text, t.Rows, t.Changed, t.Unchanged, t.Ended)
	if t.Warning != "" {
		_, err = fmt.Fprintf(w, "warning: %s\n", inert(t.Warning))
	}
	return err
}
