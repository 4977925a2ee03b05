package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// ErrTableFull is returned by [Table.Put] if the table is full.
var ErrTableFull = errors.New("the shared table is full")

// Table is a small table of texts shared by all processes with the same servers and
// prefix, such as bans and overrides. It is in one slot, and as durable as the servers.
// A process polls it with [Table.Look], reads changes with [Table.Since], and writes
// back what the servers have lost with [Table.Restore].
type Table struct {
	store                                   *Store
	keys                                    []string
	write, read, look, restore, merge, mark *script
}

// Table returns the table with the given name, which consists of letters.
func (s *Store) Table(name string) *Table {
	return &Table{
		store: s, keys: tableKeys(s.options.Prefix, name),
		write: newScript("table_check", "table_tidy", "table"), read: newScript("table_check", "table_since"),
		look: newScript("table_check", "table_look"), restore: newScript("table_check", "table_restore"),
		merge: newScript("table_check", "table_tidy", "table_merge"), mark: newScript("table_check", "table_mark"),
	}
}

// tableKeys returns the keys of a table's parts, in the order of lua/table_check.lua.
func tableKeys(prefix, name string) []string {
	tag := prefix + ":{%t" + name + "}:" // no entity's name starts with a percent sign and such a letter
	return []string{tag + "rows", tag + "changes", tag + "ends", tag + "version", tag + "store"}
}

// TableRow is a row, or the record of a deleted one.
type TableRow struct {
	Name, Value string
	Deleted     bool
	Version     int64 // of its last change
	// Until is when the row expires; for a deleted row, when the deletion is forgotten.
	Until time.Time
}

// TableState identifies a table and its version.
type TableState struct {
	Identity   string // a random text, which changes if the table is lost
	Generation int64  // how often something was written back
	// Version changes, and usually grows, with every change; 0 means no changes.
	Version int64
	Now     time.Time // on the clock by which rows end: the server's
}

// Look returns the state of the table. If a part of the table is missing, it is reset:
// empty, and with another identity.
func (t *Table) Look(ctx context.Context) (state TableState, err error) {
	values, err := t.list(ctx, t.look)
	if err != nil {
		return state, err
	}
	if len(values) != 4 {
		return state, fmt.Errorf("redis: unexpected table state with %d values", len(values))
	}
	var errs [4]error
	state.Identity, errs[0] = values[0].ToString()
	state.Generation, errs[1] = values[1].AsInt64()
	state.Version, errs[2] = values[2].AsInt64()
	now, err := values[3].AsInt64()
	state.Now, errs[3] = time.UnixMicro(now), err
	if err := errors.Join(errs[:]...); err != nil {
		return TableState{}, fmt.Errorf("redis: table state: %w", err)
	}
	return state, nil
}

// Since returns at most most rows that changed after version, the oldest change first,
// and the current version. After version 0 these are all rows. Deleted rows are
// reported for a week, or for ten minutes if there are very many.
func (t *Table) Since(ctx context.Context, version int64, most int) (rows []TableRow, now int64, err error) {
	values, err := t.list(ctx, t.read, strconv.FormatInt(version, 10), strconv.Itoa(most))
	if err != nil {
		return nil, 0, err
	}
	if len(values)%4 != 1 {
		return nil, 0, fmt.Errorf("redis: unexpected table rows with %d values", len(values))
	}
	if now, err = values[0].AsInt64(); err != nil {
		return nil, 0, fmt.Errorf("redis: table version: %w", err)
	}
	for i := 1; i < len(values); i += 4 {
		row := TableRow{Deleted: values[i+3].IsNil()}
		var errs [4]error
		var at, end float64
		row.Name, errs[0] = values[i].ToString()
		at, errs[1] = values[i+1].AsFloat64()
		end, errs[2] = values[i+2].AsFloat64()
		row.Version, row.Until = int64(at), time.UnixMilli(int64(end))
		if !row.Deleted {
			row.Value, errs[3] = values[i+3].ToString()
		}
		if err := errors.Join(errs[:]...); err != nil {
			return nil, 0, fmt.Errorf("redis: table row: %w", err)
		}
		rows = append(rows, row)
	}
	return rows, now, nil
}

// Put writes a row, which expires some time after r.Until. If the table has most rows,
// it returns [ErrTableFull]. r.Version is the latest version that the caller has seen.
func (t *Table) Put(ctx context.Context, r TableRow, most int) error {
	_, err := t.change(ctx, "put", r.Name, r.Value, milli(r.Until), strconv.Itoa(most), strconv.FormatInt(r.Version, 10), "0")
	return err
}

// Delete deletes a row and reports whether it existed. If the caller knows that it did,
// r.Value is not empty, and the row counts as deleted even if the servers have lost it.
// r.Version is as for Put.
func (t *Table) Delete(ctx context.Context, r TableRow, most int) (bool, error) {
	known := "0"
	if r.Value != "" {
		known = "1"
	}
	version, err := t.change(ctx, "delete", r.Name, "", "0", strconv.Itoa(most), strconv.FormatInt(r.Version, 10), known)
	return version > 0, err
}

// Touch only changes the version.
func (t *Table) Touch(ctx context.Context) error {
	_, err := t.change(ctx, "touch", "", "", "0", "0", "0", "0")
	return err
}

const (
	// mostRestored and mostRestoredBytes limit how much is written back in one call.
	mostRestored      = 200
	mostRestoredBytes = 128 << 10
)

// Restore writes back rows that the servers have lost, with their versions. If the
// table has something newer, that stays. It returns how many rows were accepted, even
// if not all could be tried.
func (t *Table) Restore(ctx context.Context, rows []TableRow) (taken int, err error) {
	for len(rows) > 0 {
		arguments, size, n := []string{"0"}, 0, 0
		for n < min(len(rows), mostRestored) && (n == 0 || size < mostRestoredBytes) {
			r := &rows[n]
			what := "put"
			if r.Deleted {
				what = "delete"
			}
			arguments = append(arguments, what, r.Name, strconv.FormatInt(r.Version, 10), milli(r.Until), r.Value)
			size += len(r.Name) + len(r.Value)
			n++
		}
		more, err := t.give(ctx, arguments)
		taken += more
		if err != nil {
			return taken, err
		}
		rows = rows[n:]
	}
	if taken > 0 {
		_, err = t.give(ctx, []string{"1"}) // makes other processes read everything again
	}
	return taken, err
}

// give runs lua/table_restore.lua.
func (t *Table) give(ctx context.Context, arguments []string) (taken int, err error) {
	result, err := t.store.evaluate(ctx, t.restore, t.keys, arguments...)
	if err != nil {
		return 0, err
	}
	n, err := result.AsInt64()
	return int(n), err
}

func milli(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

// list runs a script that answers with a list.
func (t *Table) list(ctx context.Context, s *script, arguments ...string) ([]rueidis.RedisMessage, error) {
	result, err := t.store.evaluate(ctx, s, t.keys, arguments...)
	if err != nil {
		return nil, err
	}
	return result.ToArray()
}

// change runs lua/table.lua.
func (t *Table) change(ctx context.Context, arguments ...string) (version int64, err error) {
	result, err := t.store.evaluate(ctx, t.write, t.keys, arguments...)
	if err != nil {
		return 0, err
	}
	if version, err = result.AsInt64(); err == nil && version < 0 {
		err = ErrTableFull
	}
	return version, err
}
