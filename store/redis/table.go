package redis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

//go:embed lua/table.lua
var tableLua string

//go:embed lua/table_since.lua
var tableSinceLua string

// ErrTableFull is returned by [Table.Put] for a row that finds no place.
var ErrTableFull = errors.New("the shared table is full")

// Table is a small table of texts that all processes on the same servers, with
// the same prefix, share: what operators say about single keys, for example. It
// is in one slot, and as durable as the servers are. Whoever reads it asks for
// its [Table.Version] now and then, and for what has changed [Table.Since].
type Table struct {
	store       *Store
	keys        []string
	write, read *script
}

// Table returns the table of that name, of letters.
func (s *Store) Table(name string) *Table {
	// No entity's name begins with a percent sign and a letter like these.
	tag := s.options.Prefix + ":{%t" + name + "}:"
	return &Table{
		store: s, keys: []string{tag + "rows", tag + "changes", tag + "ends", tag + "version"},
		write: newScript(tableLua), read: newScript(tableSinceLua),
	}
}

// TableRow is one row, or that there is none any more.
type TableRow struct {
	Name, Value string
	Deleted     bool
	// Version is that of its last change.
	Version int64
}

// Version returns a number that is another one, usually a larger one, after
// every change; 0 is that of a table without any.
func (t *Table) Version(ctx context.Context) (version int64, err error) {
	err = t.ask(ctx, func(call context.Context, client rueidis.Client) error {
		text, err := client.Do(call, client.B().Get().Key(t.keys[3]).Build()).ToString()
		if rueidis.IsRedisNil(err) {
			return nil
		}
		if err != nil {
			return err
		}
		version, err = strconv.ParseInt(text, 10, 64)
		return err
	})
	return version, err
}

// Since returns at most so many rows that have changed after a version, the
// oldest change first, and the version of the table. After version 0 these are
// all there are. That a row was deleted is told for ten minutes.
func (t *Table) Since(ctx context.Context, version int64, most int) (rows []TableRow, now int64, err error) {
	var values []rueidis.RedisMessage
	err = t.ask(ctx, func(call context.Context, client rueidis.Client) error {
		values, err = t.run(call, client, t.read, strconv.FormatInt(version, 10), strconv.Itoa(most)).ToArray()
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	if len(values)%3 != 1 {
		return nil, 0, fmt.Errorf("redis: the table's answer has %d parts", len(values))
	}
	if now, err = values[0].AsInt64(); err != nil {
		return nil, 0, fmt.Errorf("redis: the table's version: %w", err)
	}
	for i := 1; i < len(values); i += 3 {
		row := TableRow{Deleted: values[i+2].IsNil()}
		var errs [3]error
		row.Name, errs[0] = values[i].ToString()
		var at float64
		at, errs[1] = values[i+1].AsFloat64()
		row.Version = int64(at)
		if !row.Deleted {
			row.Value, errs[2] = values[i+2].ToString()
		}
		if err := errors.Join(errs[:]...); err != nil {
			return nil, 0, fmt.Errorf("redis: a row of the table: %w", err)
		}
		rows = append(rows, row)
	}
	return rows, now, nil
}

// Put writes a row, which goes away by itself some time after until. A table
// that has most rows takes no more: [ErrTableFull].
func (t *Table) Put(ctx context.Context, name, value string, until time.Time, most int) error {
	_, err := t.change(ctx, "put", name, value, strconv.FormatInt(until.UnixMilli(), 10), strconv.Itoa(most))
	return err
}

// Delete deletes a row and reports whether there was one.
func (t *Table) Delete(ctx context.Context, name string) (bool, error) {
	version, err := t.change(ctx, "delete", name, "", "0", "0")
	return version > 0, err
}

// Touch changes the version alone.
func (t *Table) Touch(ctx context.Context) error {
	_, err := t.change(ctx, "touch", "", "", "0", "0")
	return err
}

// change runs lua/table.lua.
func (t *Table) change(ctx context.Context, arguments ...string) (version int64, err error) {
	err = t.ask(ctx, func(call context.Context, client rueidis.Client) error {
		text, err := t.run(call, client, t.write, arguments...).ToString()
		if err != nil {
			return err
		}
		version, err = strconv.ParseInt(text, 10, 64)
		return err
	})
	if err == nil && version < 0 {
		err = ErrTableFull
	}
	return version, err
}

func (t *Table) run(ctx context.Context, client rueidis.Client, s *script, arguments ...string) rueidis.RedisResult {
	result := client.Do(ctx, client.B().Evalsha().Sha1(s.sha).Numkeys(int64(len(t.keys))).Key(t.keys...).Arg(arguments...).Build())
	if isNoScript(result.Error()) {
		result = client.Do(ctx, client.B().Eval().Script(s.text).Numkeys(int64(len(t.keys))).Key(t.keys...).Arg(arguments...).Build())
	}
	return result
}

// ask runs f in a goroutine of its own, within the store's timeout.
func (t *Table) ask(ctx context.Context, f func(context.Context, rueidis.Client) error) error {
	s := t.store
	return s.apart(ctx, func() error {
		client, call, err := s.begin(ctx)
		if err != nil {
			return err
		}
		err = f(call, client)
		if rueidis.IsRedisNil(err) {
			err = nil
		}
		return s.end(ctx, call, err)
	})
}
