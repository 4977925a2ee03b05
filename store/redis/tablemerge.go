package redis

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// TableNews is what is new in another region's table.
type TableNews struct {
	Region string
	Mark   string // what [Table.Mark] returns for the region once all rows are written
	Rows   []TableMerge
	Seen   int64 // latest version of this region's table that the caller has seen
}

// TableMerge is a row of another region's table that replaces a row of this one's.
type TableMerge struct {
	Name, Value string
	Was         int64 // version of the row that it replaces; 0 if none is known
	Above       int64 // what its version in this table must exceed
	Until       time.Time
}

// TableMerged is what Merge did. A row that has changed since the caller read it, or finds
// no space, was not written.
type TableMerged struct {
	Written, Changed, Full int
}

// Merge writes rows of another region's table. Rows that are not here yet find no space if
// there are already most.
func (t *Table) Merge(ctx context.Context, news *TableNews, most int) (is TableMerged, err error) {
	arguments := []string{strconv.Itoa(most), strconv.FormatInt(news.Seen, 10), news.Region, news.Mark}
	for i := range news.Rows {
		r := &news.Rows[i]
		arguments = append(arguments, r.Name, strconv.FormatInt(r.Was, 10), strconv.FormatInt(r.Above, 10), milli(r.Until), r.Value)
	}
	values, err := t.list(ctx, t.merge, arguments...)
	if err != nil {
		return is, err
	}
	if len(values) != 3 {
		return is, fmt.Errorf("redis: unexpected answer to a merge with %d values", len(values))
	}
	for i, into := range []*int{&is.Written, &is.Changed, &is.Full} {
		n, err := values[i].AsInt64()
		if err != nil {
			return is, fmt.Errorf("redis: answer to a merge: %w", err)
		}
		*into = int(n)
	}
	return is, nil
}

// Mark returns how far another region's table has been merged into this one: the mark of
// the last complete Merge, or "".
func (t *Table) Mark(ctx context.Context, region string) (string, error) {
	result, err := t.store.evaluate(ctx, t.mark, t.keys, region)
	if err != nil {
		return "", err
	}
	return result.ToString()
}
