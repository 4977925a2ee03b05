package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/base/atomicfile"
	"github.com/headgate/headgate/internal/door/admin"
)

// keyRow is a line of a file of keys: the body of an action on a key, and what it makes.
type keyRow struct {
	Kind   string    `json:"kind"` // ban or override
	Domain string    `json:"domain"`
	Rule   string    `json:"rule"`
	Key    []*string `json:"key"`
	Rate   string    `json:"rate,omitempty"`
	Burst  int64     `json:"burst,omitempty"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason,omitempty"`
}

func newKeysExport(s streams, server *connection) *cobra.Command {
	var domain, rule string
	cmd := &cobra.Command{
		Use: "export [FILE]", Short: "write all bans and overrides to a file", Args: cobra.MaximumNArgs(1),
		Long: `Export writes all active bans and overrides of a running server to a file, or to
standard output, as JSON Lines. Keys import reads it again. Ends are points in
time, not durations. Usage and grants are not exported.`,
		Example: `  headgate keys export keys.jsonl
  headgate keys export --rule per-key > overrides.jsonl`,
	}
	cmd.Flags().StringVar(&domain, "domain", "", "only this domain")
	cmd.Flags().StringVar(&rule, "rule", "", "only this rule")
	cmd.RunE = asking(server, func(cmd *cobra.Command, args []string, client *adminClient) error {
		var all admin.Overrides
		if err := client.getJSON(cmd.Context(), "/v1/overrides", query(url.Values{}, map[string]string{"domain": domain, "rule": rule}), &all); err != nil {
			return err
		}
		var text bytes.Buffer
		written := 0
		for _, o := range slices.Backward(all.Overrides) { // the oldest first
			if o.Hash != "" {
				return errors.New("keys cannot be exported: admin.keys is hashed, so the admin door does not show keys")
			}
			if o.NoRule || !isText(o.Parts) {
				continue
			}
			row := keyRow{"ban", o.Domain, o.Rule, o.Parts, o.Rate, o.Burst, o.Until, o.Reason}
			if o.Kind != row.Kind {
				row.Kind = "override"
			}
			if err := json.NewEncoder(&text).Encode(row); err != nil {
				return err
			}
			written++
		}
		if left := len(all.Overrides) - written; left > 0 {
			_, _ = fmt.Fprintf(s.err, "warning: left out %d whose rule no longer exists, or whose key is not text\n", left)
		}
		if len(args) == 0 || args[0] == "-" {
			_, err := s.out.Write(text.Bytes())
			return err
		}
		if err := atomicfile.Write(args[0], text.Bytes()); err != nil {
			return err
		}
		_, err := fmt.Fprintf(s.err, "exported %d rows to %s\n", written, args[0])
		return err
	})
	return cmd
}

// isText reports whether JSON can write the parts of a key: what it cannot write, the server
// has replaced.
func isText(parts []*string) bool {
	return !slices.ContainsFunc(parts, func(p *string) bool { return p != nil && strings.ContainsRune(*p, utf8.RuneError) })
}

func newKeysImport(s streams, server *connection) *cobra.Command {
	return &cobra.Command{
		Use: "import FILE", Short: "make the bans and overrides of a file", Args: cobra.ExactArgs(1),
		Long: `Import makes the bans and overrides that a file lists, on a running server, one
after the other. The file has one JSON object on each line; - is standard input.
Rows that have ended are skipped. It stops at the first mistake and names its line.
What a ban or an override replaces is that of its key, so a file can be imported
again.`,
		Example: `  headgate keys import keys.jsonl
  headgate keys export | headgate keys import --address 10.0.0.2:6070 -`,
		RunE: asking(server, func(cmd *cobra.Command, args []string, client *adminClient) error {
			text, err := readInput(s.in, args[0])
			if err != nil {
				return err
			}
			i := keysImport{cmd: cmd, client: client}
			line := 0
			for row := range bytes.Lines(bytes.TrimPrefix(text, []byte("\ufeff"))) { // Windows begins files with it
				line++
				if row = bytes.TrimSpace(row); len(row) == 0 {
					continue
				}
				if err := i.row(row); err != nil {
					return &hintedError{fmt.Errorf("%s:%d: %w", inert(args[0]), line, err), fmt.Sprintf("%d rows before it are done: correct the line, and run the same command again", i.done+i.ended)}
				}
			}
			_, err = fmt.Fprintf(s.out, "imported %d rows, %d had ended\n", i.done, i.ended)
			return err
		}),
	}
}

// readInput reads a file, or standard input for -.
func readInput(stdin io.Reader, file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(file)
}

// keysImport is one run of keys import.
type keysImport struct {
	cmd         *cobra.Command
	client      *adminClient
	done, ended int
}

// row makes what a line says. The server checks its fields.
func (i *keysImport) row(text []byte) error {
	var row struct {
		Kind  string
		Until time.Time
	}
	fields := map[string]json.RawMessage{}
	if json.Unmarshal(text, &fields) != nil {
		return errors.New(`this is not a JSON object: each line is one, such as {"kind":"ban","rule":"login","key":["198.51.100.7"],"until":"2027-01-31T12:00:00Z"}`)
	}
	if err := json.Unmarshal(text, &row); err != nil {
		return fmt.Errorf(`"kind" must be ban or override, and "until" a time such as 2027-01-31T12:00:00Z: %w`, err)
	}
	switch {
	case row.Kind != "ban" && row.Kind != "override":
		return fmt.Errorf(`"kind" is %q, must be ban or override`, row.Kind)
	case row.Until.IsZero():
		return errors.New(`"until" is missing: the time when it ends, such as 2027-01-31T12:00:00Z`)
	case !row.Until.After(time.Now()):
		i.ended++
		return nil
	}
	delete(fields, "kind")
	var answer json.RawMessage
	err := i.client.postJSON(i.cmd.Context(), "/v1/keys/"+row.Kind, fields, &answer)
	if err == nil {
		i.done++
	}
	return err
}
