package admin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/rules"
)

// Limits of POST /v1/keys/import.
const (
	MaxImportRows = 5000    // rows of one request
	MaxImportBody = 8 << 20 // bytes of one request
	maxWrong      = 10      // mistakes in an answer
	maxGrantID    = 100     // bytes
	// mostGrants is how many of the entries of the table records of single grants may
	// fill, so that there is always space for bans.
	mostGrants = control.MaxEntries / 2
)

// ImportRequest is the body of POST /v1/keys/import.
type ImportRequest struct {
	// DryRun checks the rows and changes nothing.
	DryRun bool              `json:"dry_run,omitempty"`
	Rows   []json.RawMessage `json:"rows"`
}

// ImportAnswer is the answer of POST /v1/keys/import.
type ImportAnswer struct {
	Rows      int `json:"rows"`
	Changed   int `json:"changed"`   // bans, overrides and grants that were made, or would be
	Unchanged int `json:"unchanged"` // those that were there already
	Ended     int `json:"ended"`     // rows that ended before now, and were skipped
	// New is how many entries are added to the table, and Room how many fit.
	New  int `json:"new"`
	Room int `json:"room"`
	// Wrong are the first mistakes, of a dry run. WrongTotal counts all of them.
	Wrong      []WrongRow `json:"wrong,omitempty"`
	WrongTotal int        `json:"wrong_total,omitempty"`
	Warning    string     `json:"warning,omitempty"` // set if the import was only partly successful
	// Regions are the other regions, and whether they have made the changes too.
	Regions map[string]bool `json:"regions,omitempty"`
}

// WrongRow is a mistake in a row of an import.
type WrongRow struct {
	Row    int    `json:"row"`             // from 0
	Field  string `json:"field,omitempty"` // of the row
	Detail string `json:"detail"`
}

// importRow is a row of an import for one rule.
type importRow struct {
	keyTarget
	entry *control.Entry
	was   *control.Entry // what it replaces
}

// importing is one call of POST /v1/keys/import.
type importing struct {
	keys
	ctx    context.Context //nolint:containedctx // of the request
	by     string
	now    time.Time
	answer ImportAnswer
	puts   []importRow // bans and overrides
	grants []importRow
	seen   map[string]int // the row of each entry
}

// importKeys answers POST /v1/keys/import.
func (k keys) importKeys(w http.ResponseWriter, r *http.Request) (any, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxImportBody))
	if err != nil {
		return nil, wrong("the body cannot be read: %v; send at most %d bytes and %d rows at once", err, MaxImportBody, MaxImportRows)
	}
	var request ImportRequest
	switch err := decode(strings.NewReader(string(body)), &request); {
	case err != nil:
		return nil, wrong(`the body must be {"rows":[…]}: %v`, err)
	case len(request.Rows) > MaxImportRows:
		return nil, wrong("%d rows, at most %d are allowed at once", len(request.Rows), MaxImportRows)
	}
	i := &importing{keys: k, ctx: r.Context(), by: whoAsks(r), now: k.Clock(), seen: map[string]int{}}
	i.answer.Rows, i.answer.Room = len(request.Rows), k.Control.Room()
	for n, text := range request.Rows {
		if err := i.read(n, text); err != nil {
			i.wrong(n, err)
		}
	}
	i.answer.Changed = len(i.puts) + len(i.grants)
	if request.DryRun {
		return &i.answer, nil
	}
	if i.answer.WrongTotal > 0 {
		bad := i.answer.Wrong[0]
		return nil, wrong("nothing was changed: row %d (from 0), %s: %s", bad.Row, bad.Field, bad.Detail)
	}
	return i.apply()
}

// fieldError is a mistake in a field of a row.
type fieldError struct {
	field string
	err   error
}

func (e *fieldError) Error() string { return e.err.Error() }

func inField(field string, err error) error {
	if err == nil {
		return nil
	}
	return &fieldError{field, err}
}

func (i *importing) wrong(row int, err error) {
	bad := WrongRow{Row: row, Detail: err.Error()}
	if at, ok := errors.AsType[*fieldError](err); ok {
		bad.Field = at.field
	}
	if i.answer.WrongTotal++; len(i.answer.Wrong) < maxWrong {
		i.answer.Wrong = append(i.answer.Wrong, bad)
	}
}

// fileRow is a row as written.
type fileRow struct {
	keyBody
	kind, id, by string
	created      time.Time
	raw          string // the composed key, if the row gives it
	ended        bool
}

// rowFields returns the fields of rows.
func rowFields() []string {
	return []string{"kind", "domain", "rule", "key", "key_base64", "rate", "burst", "amount", "id", "until", "created", "reason", "by"}
}

// rowKinds returns the kinds of rows.
func rowKinds() []string { return []string{"ban", "override", "grant"} }

// fieldsOf returns the fields that a kind of row may have.
func fieldsOf(kind string) []string {
	only := map[string]string{"rate": "override", "burst": "override", "amount": "grant", "id": "grant"}
	return slices.DeleteFunc(rowFields(), func(field string) bool { return only[field] != "" && only[field] != kind })
}

// actionOf returns the action that a kind of row stands for.
func actionOf(kind string) *KeyAction {
	all := KeyActions()
	at := slices.IndexFunc(all, func(a KeyAction) bool { return a.Name == kind && slices.Contains(rowKinds(), kind) })
	if at < 0 {
		return nil
	}
	return &all[at]
}

// parseRow reads the fields of a row.
func (i *importing) parseRow(text []byte) (*fileRow, *KeyAction, error) {
	f, fields := &fileRow{}, map[string]bool{}
	err := readObject(text, func(name string, value json.RawMessage) error {
		fields[name] = true
		if !slices.Contains(rowFields(), name) {
			return inField(name, fmt.Errorf("unknown field %q%s", name, nearestOf(name, rowFields())))
		}
		if err := i.setField(f, name, value); err != nil {
			return inField(name, fmt.Errorf("%q %w", name, err))
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	action := actionOf(f.kind)
	for name := range fields {
		if !slices.Contains(fieldsOf(f.kind), name) {
			return nil, nil, inField(name, fmt.Errorf("%q does not apply to a %s", name, f.kind))
		}
	}
	switch {
	case !fields["kind"]:
		return nil, nil, inField("kind", errors.New(`"kind" is missing: ban, override or grant`))
	case !fields["key"] && !fields["key_base64"]:
		return nil, nil, inField("key", errors.New(`"key" is missing`))
	case fields["key"] && fields["key_base64"]:
		return nil, nil, inField("key", errors.New(`use either "key" or "key_base64", not both`))
	case !fields["until"]:
		return nil, nil, inField("until", errors.New(`"until" is missing: the time when it ends, such as 2027-01-31T12:00:00Z`))
	case fields["key_base64"] && f.Rule == "":
		return nil, nil, inField("rule", errors.New(`"rule" is missing`))
	}
	if f.raw != "" || fields["key_base64"] {
		f.Key.Parts = []*string{} // check wants a key
	}
	return f, action, f.check(action, i.now)
}

// setField parses a field. "for" is not allowed: importing twice would extend it.
func (i *importing) setField(f *fileRow, name string, value json.RawMessage) error {
	var s string
	switch name {
	case "kind":
		if err := text(value, &f.kind); err != nil || actionOf(f.kind) == nil {
			return fmt.Errorf("is unknown: %s%s", value, nearestOf(f.kind, rowKinds()))
		}
		return nil
	case "id":
		if err := text(value, &f.id); err != nil || len(f.id) > maxGrantID {
			return fmt.Errorf("must be a string of 1 to %d bytes", maxGrantID)
		}
		return nil
	case "by":
		if err := text(value, &f.by); err != nil || len(f.by) > maxReason || strings.ContainsFunc(f.by, unicode.IsControl) {
			return fmt.Errorf("must be a string of 1 to %d bytes without control characters", maxReason)
		}
		return nil
	case "created":
		at, err := fileTime(value)
		f.created = at
		return err
	case "until":
		at, err := fileTime(value)
		if f.Until, f.ended = at, err == nil && !at.After(i.now); f.ended || err != nil {
			return err
		}
		return f.readUntil(value, i.now)
	case "key_base64":
		if err := text(value, &s); err != nil {
			return err
		}
		raw, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return errors.New("is not base64")
		}
		f.raw = string(raw)
		return nil
	}
	return f.set(name, value, i.now)
}

func fileTime(value json.RawMessage) (time.Time, error) {
	var s string
	if err := text(value, &s); err != nil {
		return time.Time{}, err
	}
	at, err := time.Parse(time.RFC3339, s)
	if err != nil || at.UnixMilli() <= 0 {
		return time.Time{}, fmt.Errorf("is %q, not a time such as 2027-01-31T12:00:00Z", s)
	}
	return at.UTC().Truncate(time.Millisecond), nil
}

// read checks row n and notes what it changes.
func (i *importing) read(n int, text []byte) error {
	f, action, err := i.parseRow(text)
	if err != nil {
		return err
	}
	targets, err := i.targetsOf(f, action)
	if err != nil {
		return err
	}
	if f.ended {
		i.answer.Ended++
		return nil
	}
	unchanged := 0
	for _, t := range targets {
		row, err := i.rowFor(f, t)
		if err != nil {
			return err
		}
		name := row.entry.ID + "\x00" + f.kind + "\x00" + t.scope + "\x00" + t.rule + "\x00" + t.key
		if first, twice := i.seen[name]; twice {
			again := fmt.Errorf("an earlier row, %d before, is about the same key", n-first)
			if f.kind == "grant" {
				again = fmt.Errorf("%w; for a second grant, give it another id", again)
			}
			return inField("key", again)
		}
		i.seen[name] = n
		unchanged += i.plan(row)
	}
	if unchanged == len(targets) {
		i.answer.Unchanged++
	}
	return nil
}

// targetsOf returns the keys that a row is about.
func (i *importing) targetsOf(f *fileRow, action *KeyAction) ([]keyTarget, error) {
	if _, err := rulesNamed(i.Engine.Rules(), f.Domain, ""); err != nil {
		return nil, inField("domain", err)
	}
	list, err := rulesNamed(i.Engine.Rules(), f.Domain, f.Rule)
	if err != nil {
		return nil, inField("rule", err)
	}
	if f.Key.Parts == nil || f.Key.ByName != nil || f.raw == "" {
		targets, err := i.targets(action, &f.keyBody)
		return targets, inField("key", err)
	}
	t := keyTarget{domain: list[0].Domain, rule: list[0].Name, scope: list[0].Scope, key: f.raw, tiers: list}
	if slices.ContainsFunc(list, func(r *rules.Rule) bool { return r.Domain != t.domain }) {
		return nil, inField("domain", errors.New(`"domain" is missing: several domains have this rule`))
	}
	parts, ok := rules.SplitKey(f.raw)
	if again, err := list[0].ComposeKey(parts); !ok || err != nil || again != f.raw {
		return nil, inField("key_base64", fmt.Errorf("this is not a key of the rule %q", t.rule))
	}
	t.ruled = list[0].ForKey(f.raw)
	return []keyTarget{t}, nil
}

// rowFor returns the entry that a row makes for one rule.
func (i *importing) rowFor(f *fileRow, t keyTarget) (row importRow, err error) {
	e := &control.Entry{
		Domain: t.domain, Rule: t.rule, Scope: t.scope, Key: t.key, Rate: f.Rate, Burst: f.Burst, Amount: f.Amount,
		Until: f.Until, Created: f.created, Reason: f.Reason, By: f.by,
	}
	if e.Created.IsZero() || e.Created.After(i.now) {
		e.Created = i.now.UTC().Truncate(time.Millisecond)
	}
	if e.By == "" {
		e.By = i.by
	}
	switch f.kind {
	case "ban":
		e.Kind = control.Ban
	case "override":
		e.Kind = control.Limit
		for _, r := range t.tiers {
			if _, err := r.ForKey(t.key).WithLimit(f.Rate, f.Burst); err != nil {
				return row, inField("rate", fmt.Errorf("this limit does not fit the rule %s: %w", t.rule, err))
			}
		}
	case "grant":
		if rule, _ := i.Engine.Applies(t.ruled, t.key, i.now); rule.Limit.IsUnlimited() {
			return row, inField("rule", fmt.Errorf("the key is unlimited in %s: there is nothing to grant", t.rule))
		}
		e.Kind, e.ID = control.Grant, f.id
		if e.ID == "" {
			e.ID = fmt.Sprintf("%d until %s", e.Amount, e.Until.Format(time.RFC3339Nano))
		}
	}
	return importRow{keyTarget: t, entry: e}, nil
}

// plan notes what a row changes, and returns 1 if it changes nothing.
func (i *importing) plan(row importRow) (unchanged int) {
	e := row.entry
	if e.Kind == control.Grant {
		if i.Control.Granted(e) {
			return 1
		}
		i.grants = append(i.grants, row)
		i.answer.New++
		return 0
	}
	ban, limit := i.Control.Of(e.Scope, e.Key)
	if row.was = ban; e.Kind == control.Limit {
		row.was = limit
	}
	if w := row.was; w != nil && w.Domain == e.Domain && w.Rule == e.Rule && w.Rate == e.Rate && w.Burst == e.Burst && w.Reason == e.Reason &&
		w.Until.Sub(e.Until).Abs() < time.Second { // servers read the clock of a shared store differently
		return 1
	}
	if row.was == nil {
		i.answer.New++
	}
	i.puts = append(i.puts, row)
	return 0
}

// apply makes the changes.
func (i *importing) apply() (any, error) {
	if i.answer.New > i.answer.Room {
		return nil, problemf(http.StatusInsufficientStorage, "nothing was changed: the rows add %d bans, overrides and grants, and there is space for %d", i.answer.New, i.answer.Room)
	}
	if err := i.put(i.puts); err != nil {
		return nil, err
	}
	if err := i.grantAll(); err != nil {
		return nil, err
	}
	i.audit.add(&AuditEntry{T: i.now.UTC(), Action: "import", By: i.by, Count: i.answer.Changed, Before: "", After: i.answer.text()})
	if i.Among != nil && i.answer.Changed > 0 {
		i.answer.Regions = i.Reach(i.ctx)
		i.answer.Warning = joined(i.answer.Warning, notReached("import", i.answer.Regions))
	}
	return &i.answer, nil
}

func (a *ImportAnswer) text() string {
	return fmt.Sprintf("%d changed, %d unchanged, %d ended", a.Changed, a.Unchanged, a.Ended)
}

// put activates entries.
func (i *importing) put(list []importRow) error {
	if len(list) == 0 {
		return nil
	}
	entries := make([]*control.Entry, len(list))
	for n := range list {
		entries[n] = list[n].entry
	}
	written, err := i.Control.PutAll(i.ctx, entries)
	switch {
	case errors.Is(err, control.ErrNotSaved):
		i.answer.Warning = fmt.Sprintf("active, but not saved, so a restart will lose them: %v", err)
		i.Log.Error("bans and overrides not saved", "err", i.answer.Warning)
	case errors.Is(err, control.ErrFull):
		return problemf(http.StatusInsufficientStorage, "%v: %d of %d were written", err, written, len(list))
	case err != nil:
		return fmt.Errorf("the store did not answer: %d of %d bans, overrides and grants were written, others may have been: %w", written, len(list), err)
	}
	for n := range list {
		i.log(&list[n])
	}
	return nil
}

// log records a change in the log.
func (i *importing) log(row *importRow) {
	e := row.entry
	i.Log.Info("audit", "action", "import", "by", i.by, "domain", e.Domain, "rule", e.Rule, "key", i.Keys.Text(e.Key),
		"reason", e.Reason, "before", entryText(row.was), "after", entryText(e))
}

// grantAll records the grants, and then makes them: a grant whose record is there is
// never made a second time.
func (i *importing) grantAll() error {
	if err := i.put(i.grants); err != nil {
		return fmt.Errorf("%w; no grant was made: to make those that are recorded, reset their keys and import them again", err)
	}
	if len(i.grants) == 0 {
		return nil
	}
	const most = 500
	for list := range slices.Chunk(i.grants, most) {
		ops := make([]headgate.Op, len(list))
		for n, row := range list {
			rule, _ := i.Engine.Applies(row.ruled, row.key, i.now)
			ops[n] = headgate.Op{
				Key: row.key, Scope: rule.StoreScope(), Limit: rule.Limit, At: i.now.UnixMicro(),
				Kind: headgate.Grant, Cost: row.entry.Amount, Duration: row.entry.Until.Sub(i.now),
			}
		}
		if err := headgate.ExecuteAll(i.ctx, i.Store, ops, make([]headgate.Decision, len(ops)), headgate.Independent); err != nil {
			return fmt.Errorf("the store did not answer: %d grants are recorded and may not have been made; to make them, reset their keys and import them again: %w", len(i.grants), err)
		}
	}
	if err := i.Control.Touch(i.ctx); err != nil {
		i.answer.Warning = fmt.Sprintf("done, but other servers may refuse the keys for a little longer: %v", err)
	}
	return nil
}
