package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// PeerTable reads a [Table] of another region, which takes only the right to read it.
// Create it with [Exchange.Table].
type PeerTable struct {
	line *line
	keys []string
}

// Table returns the table of another region with the given name.
func (e *Exchange) Table(region, name string) (*PeerTable, error) {
	l := e.peers[region]
	if l == nil {
		return nil, fmt.Errorf("%w %q", errRegion, region)
	}
	return &PeerTable{line: l, keys: tableKeys(e.own.options.Prefix, name)}, nil
}

// errTableTorn means that a table is being written or repaired.
var errTableTorn = errors.New("redis: the table of bans and overrides is being repaired")

// Look returns the state of the table. If nothing was ever written, its Identity is empty.
// mark is what [Table.Mark] returns there for the given region.
func (t *PeerTable) Look(ctx context.Context, region string) (state TableState, mark string, err error) {
	err = t.line.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		is, err := readGlance(client.DoMulti(ctx, t.glance(client, region)...))
		state, mark = is.state, is.mark
		return err
	})
	return state, mark, err
}

// Since returns at most most rows that changed after version, as [Table.Since] does, of
// the table that Look has described. It fails if that has since been lost or repaired.
func (t *PeerTable) Since(ctx context.Context, of TableState, version int64, most int) (rows []TableRow, err error) {
	err = t.line.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		found, err := client.Do(ctx, client.B().Zrangebyscore().Key(t.keys[1]).Min("("+strconv.FormatInt(version, 10)).Max("+inf").
			Withscores().Limit(0, int64(most)).Build()).AsZScores()
		if err != nil || len(found) == 0 {
			return err
		}
		names := make([]string, len(found))
		for i := range found {
			names[i] = found[i].Member
		}
		answers := client.DoMulti(ctx, append([]rueidis.Completed{
			client.B().Hmget().Key(t.keys[0]).Field(names...).Build(),
			client.B().Zmscore().Key(t.keys[2]).Member(names...).Build(),
		}, t.glance(client, "")...)...)
		// A row without a value was deleted only if no part of the table was missing when
		// it was read: what misses one gets another identity.
		is, err := readGlance(answers[2:])
		switch {
		case err != nil:
			return err
		case is.torn || is.state.Identity != of.Identity || is.state.Generation != of.Generation:
			return errTableTorn
		}
		rows, err = peerRows(found, answers[0], answers[1])
		return err
	})
	return rows, err
}

// peerRows puts rows together; those that ended in the meantime are left out.
func peerRows(found []rueidis.ZScore, texts, until rueidis.RedisResult) ([]TableRow, error) {
	values, err := texts.ToArray()
	if err != nil {
		return nil, err
	}
	ends, err := until.ToArray()
	if err != nil {
		return nil, err
	}
	if len(values) != len(found) || len(ends) != len(found) {
		return nil, fmt.Errorf("redis: %d values and %d ends of %d rows", len(values), len(ends), len(found))
	}
	rows := make([]TableRow, 0, len(found))
	for i := range found {
		row := TableRow{Name: found[i].Member, Version: int64(found[i].Score), Deleted: values[i].IsNil()}
		if !row.Deleted {
			if row.Value, err = values[i].ToString(); err != nil {
				return nil, err
			}
		}
		if !ends[i].IsNil() {
			end, err := ends[i].AsFloat64()
			if err != nil {
				return nil, err
			}
			row.Until = time.UnixMilli(int64(end))
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// glance returns commands that read the state of the table; see readGlance.
func (t *PeerTable) glance(client rueidis.Client, region string) []rueidis.Completed {
	return []rueidis.Completed{
		client.B().Hmget().Key(t.keys[4]).Field("id", "generation", "version", "rows", "changes", "read:"+region).Build(),
		client.B().Get().Key(t.keys[3]).Build(),
		client.B().Hlen().Key(t.keys[0]).Build(),
		client.B().Zcard().Key(t.keys[1]).Build(),
		client.B().Zcard().Key(t.keys[2]).Build(),
		client.B().Time().Build(),
	}
}

// glanced is the state of a table, and whether a part of it is missing: the same check as
// in lua/table_check.lua. The commands do not run in one step, so a change in between
// looks the same.
type glanced struct {
	state TableState
	mark  string
	torn  bool
}

func readGlance(answers []rueidis.RedisResult) (is glanced, err error) {
	known, err := answers[0].ToArray()
	if err != nil {
		return is, err
	}
	texts := make([]string, len(known))
	for i := range known {
		if !known[i].IsNil() {
			if texts[i], err = known[i].ToString(); err != nil {
				return is, err
			}
		}
	}
	version, err := answers[1].ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		return is, err
	}
	var counts [3]string // rows, changes, ends
	for i := range counts {
		n, err := answers[2+i].AsInt64()
		if err != nil {
			return is, err
		}
		counts[i] = strconv.FormatInt(n, 10)
	}
	if is.state.Now, err = timeOf(answers[5]); err != nil {
		return is, err
	}
	is.state.Identity, is.mark = texts[0], texts[5]
	is.torn = texts[2] != version || counts[1] != counts[2] || texts[2] != "" && (texts[3] != counts[0] || texts[4] != counts[1])
	var errs [2]error
	is.state.Generation, errs[0] = number(texts[1])
	is.state.Version, errs[1] = number(version)
	return is, errors.Join(errs[:]...)
}

// number reads a number of a table's state, which is 0 if it is missing.
func number(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("redis: table state: %w", err)
	}
	return n, nil
}
