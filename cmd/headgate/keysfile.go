package main

import (
	"bytes"
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
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/base/atomicfile"
	"github.com/headgate/headgate/internal/door/admin"
)

func newKeysExport(s streams, server *connection) *cobra.Command {
	var domain, rule string
	cmd := &cobra.Command{
		Use: "export [FILE]", Short: "write all bans, overrides and grants to a file", Args: cobra.MaximumNArgs(1),
		Long: `Export writes all active bans, overrides and grants of a running server to a
file, or to standard output, as JSON Lines. Keys import reads it again. Ends are
points in time, not durations. Usage is not exported.`,
		Example: `  headgate keys export keys.jsonl
  headgate keys export --rule per-key > overrides.jsonl`,
	}
	cmd.Flags().StringVar(&domain, "domain", "", "only this domain")
	cmd.Flags().StringVar(&rule, "rule", "", "only this rule")
	cmd.RunE = asking(server, func(cmd *cobra.Command, args []string, client *adminClient) error {
		var all struct {
			Rows   []json.RawMessage `json:"rows"`
			NoRule int               `json:"no_rule"`
		}
		if err := client.getJSON(cmd.Context(), "/v1/keys/export", query(url.Values{}, map[string]string{"domain": domain, "rule": rule}), &all); err != nil {
			return err
		}
		if all.NoRule > 0 {
			_, _ = fmt.Fprintf(s.err, "warning: left out %d of rules that no longer exist\n", all.NoRule)
		}
		var text bytes.Buffer
		for _, row := range all.Rows {
			text.Write(append(row, '\n'))
		}
		if len(args) == 0 || args[0] == "-" {
			_, err := s.out.Write(text.Bytes())
			return err
		}
		if err := atomicfile.Write(args[0], text.Bytes()); err != nil {
			return err
		}
		_, err := fmt.Fprintf(s.err, "exported %d rows to %s\n", len(all.Rows), args[0])
		return err
	})
	return cmd
}

func newKeysImport(s streams, server *connection) *cobra.Command {
	var dryRun, asJSON bool
	cmd := &cobra.Command{
		Use: "import FILE", Short: "make the bans, overrides and grants of a file", Args: cobra.ExactArgs(1),
		Long: `Import makes the bans, overrides and grants that a file lists, on a running
server. The file has one JSON object on each line; - is standard input. All rows
are checked first, and nothing changes if one of them is wrong.

Importing a file twice changes nothing the second time: a ban or an override
replaces that of its key, and a grant is made once for each id. Rows that have
ended are skipped.`,
		Example: `  headgate keys import keys.jsonl
  headgate keys import --dry-run overrides.jsonl
  headgate keys export | headgate keys import --address 10.0.0.2:6070 -`,
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check the file and say what would change, but change nothing")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	cmd.RunE = asking(server, func(cmd *cobra.Command, args []string, client *adminClient) error {
		i := &keysImport{cmd: cmd, client: client, file: args[0]}
		if isTerminal(s.err) {
			i.line = &overwritten{paint: paint{w: s.err}}
		}
		if err := i.read(s.in); err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		cmd.SetContext(ctx)
		err := i.run(dryRun)
		if i.line != nil {
			i.line.clear()
		}
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(s.out, imported{dryRun, i.total.Rows, i.total.Changed, i.total.Unchanged, i.total.Ended, i.total.Warning})
		}
		return i.print(s.out, dryRun)
	})
	return cmd
}

// keysImport is one run of keys import.
type keysImport struct {
	cmd    *cobra.Command
	client *adminClient
	file   string
	line   *overwritten // the progress; nil without a terminal

	rows  []fileRow
	total admin.ImportAnswer
}

// fileRow is a row of a file.
type fileRow struct {
	line int
	text json.RawMessage
}

// imported is the JSON of keys import.
type imported struct {
	DryRun    bool   `json:"dry_run"`
	Rows      int    `json:"rows"`
	Changed   int    `json:"changed"`
	Unchanged int    `json:"unchanged"`
	Ended     int    `json:"ended"`
	Warning   string `json:"warning,omitempty"`
}

// mistakes are the first mistakes of a file. total counts all of them.
type mistakes struct {
	first []string
	total int
}

// add adds a mistake; those that are not among the first are only counted.
func (m *mistakes) add(line int, text string) {
	const most = 10
	if m.total++; len(m.first) < most {
		m.first = append(m.first, fmt.Sprintf("%d: %s", line, text))
	}
}

// maxFile is the largest file, in bytes.
const maxFile = 128 << 20

// read reads the file: JSON Lines. The server checks what the objects say.
func (i *keysImport) read(stdin io.Reader) error {
	in := stdin
	if i.file != "-" {
		file, err := os.Open(i.file)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return fmt.Errorf("%s: %w", i.file, err)
	}
	var wrong mistakes
	if len(text) > maxFile {
		wrong.add(1, fmt.Sprintf("the file is larger than %d MiB", maxFile>>20))
		return i.wrong(wrong)
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // Windows begins files with it
	line := 0
	for row := range bytes.Lines(text) {
		line++
		row = bytes.TrimSpace(row)
		switch {
		case len(row) == 0:
		case !utf8.Valid(row):
			wrong.add(line, "this is not valid UTF-8: give such a key as key_base64")
		case row[0] != '{' || !json.Valid(row):
			wrong.add(line, `this is not a JSON object: each line is one, such as {"kind":"ban","rule":"login","key":["198.51.100.7"],"until":"2027-01-31T12:00:00Z"}`)
		case len(row) > maxRow:
			wrong.add(line, fmt.Sprintf("the line has %d bytes, at most %d are allowed", len(row), maxRow))
		default:
			i.rows = append(i.rows, fileRow{line, row})
		}
	}
	return i.wrong(wrong)
}

// maxRow is the largest row, in bytes.
const maxRow = 16 << 10

// wrong returns the mistakes of the file as an error.
func (i *keysImport) wrong(m mistakes) error {
	if m.total == 0 {
		return nil
	}
	var all []error
	for _, text := range m.first {
		all = append(all, fmt.Errorf("%s:%s", cmp.Or(map[string]string{"-": "standard input"}[i.file], i.file), inert(text)))
	}
	if more := m.total - len(m.first); more > 0 {
		all = append(all, fmt.Errorf("and %d more mistakes", more))
	}
	return &hintedError{errors.Join(all...), "nothing was changed"}
}

// batches calls f with parts of the rows that fit into a request.
func (i *keysImport) batches(what string, f func(from int, rows []fileRow) error) error {
	all := i.rows
	for from := 0; from < len(all); {
		to, size := from, 0
		for to < len(all) && to-from < admin.MaxImportRows && size+len(all[to].text)+1 < admin.MaxImportBody-100 {
			size += len(all[to].text) + 1
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
func (i *keysImport) send(rows []fileRow, dryRun bool) (out admin.ImportAnswer, err error) {
	request := admin.ImportRequest{DryRun: dryRun, Rows: make([]json.RawMessage, len(rows))}
	for n := range rows {
		request.Rows[n] = rows[n].text
	}
	err = i.client.postJSON(i.cmd.Context(), "/v1/keys/import", request, &out)
	if err != nil && i.cmd.Context().Err() != nil {
		err = errors.New("interrupted")
	}
	return out, err
}

// run checks all rows and then, without dryRun, makes the changes.
func (i *keysImport) run(dryRun bool) error { //nolint:revive // the flag --dry-run
	var problems mistakes
	var checked admin.ImportAnswer
	err := i.batches("checked", func(_ int, rows []fileRow) error {
		out, err := i.send(rows, true)
		for _, w := range out.Wrong {
			if w.Row >= 0 && w.Row < len(rows) {
				problems.add(rows[w.Row].line, w.Detail)
			}
		}
		problems.total += max(out.WrongTotal-len(out.Wrong), 0)
		add(&checked, &out)
		return err
	})
	if err != nil && i.cmd.Context().Err() != nil {
		return &hintedError{err, "nothing was changed"}
	}
	if err != nil {
		return err
	}
	if err := i.wrong(problems); err != nil {
		return err
	}
	if checked.New > checked.Room && len(i.rows) > 0 {
		return &hintedError{fmt.Errorf("the file adds %d bans, overrides and grants, and there is space for %d", checked.New, checked.Room), "nothing was changed"}
	}
	if i.total = checked; dryRun {
		return nil
	}
	i.total = admin.ImportAnswer{}
	return i.batches("imported", func(from int, rows []fileRow) error {
		out, err := i.send(rows, false)
		if err != nil {
			return i.interrupted(from, rows, err)
		}
		add(&i.total, &out)
		return nil
	})
}

// interrupted says what was done before err.
func (i *keysImport) interrupted(from int, rows []fileRow, err error) error {
	what := fmt.Sprintf("lines %d to %d may be done in part", rows[0].line, rows[len(rows)-1].line)
	if refused, ok := errors.AsType[*refusedError](err); ok && refused.status == http.StatusBadRequest {
		what = fmt.Sprintf("line %d and those after it are not", rows[0].line)
	}
	if from > 0 {
		what = fmt.Sprintf("the lines up to %d are done, ", i.rows[from-1].line) + what
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

// print prints the result for people.
func (i *keysImport) print(w io.Writer, dryRun bool) error { //nolint:revive // the flag --dry-run
	t := &i.total
	text := "imported %d rows: %d changed, %d unchanged, %d had ended\n"
	if dryRun {
		text = "checked %d rows: %d would change, %d would not, %d have ended\n"
	}
	_, err := fmt.Fprintf(w, text, t.Rows, t.Changed, t.Unchanged, t.Ended)
	if t.Warning != "" {
		_, err = fmt.Fprintf(w, "warning: %s\n", inert(t.Warning))
	}
	return err
}
