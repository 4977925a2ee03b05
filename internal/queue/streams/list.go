package streams

import (
	"context"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/queue"
)

// lookedAtOnce is how many entries are looked through at once for those of one
// lane.
const lookedAtOnce = 1000

// idsOf returns the oldest of one limit.
func (s *Store) idsOf(ctx context.Context, tag string, q queue.Query) ([]string, error) {
	if q.State == queue.Dead {
		return s.deadOf(ctx, s.base(tag), q)
	}
	var ids []string
	for n := range partitions {
		number := strconv.Itoa(n)
		if q.Lane != nil && number != partitionOf(laneOf(*q.Lane)) {
			continue
		}
		some, err := s.pendingOf(ctx, s.base(tag)+":p:"+number, q)
		if err != nil {
			return nil, err
		}
		ids = append(ids, some...)
	}
	return ids, nil
}

// pendingOf returns those of one partition.
func (s *Store) pendingOf(ctx context.Context, stream string, q queue.Query) ([]string, error) {
	page := int64(q.Limit)
	if q.Lane != nil {
		page = lookedAtOnce
	}
	var ids []string
	for start := "-"; ; {
		entries, err := s.rangeOf(ctx, stream, start, page)
		if err != nil {
			return nil, err
		}
		for _, x := range entries {
			if e, err := queue.Unmarshal([]byte(x.FieldValues["e"])); err == nil && q.MatchesLane(queue.Lane{Scope: e.Scope, Key: e.Key}) {
				ids = append(ids, e.ID)
			}
		}
		if int64(len(entries)) < page || len(ids) >= q.Limit {
			return ids[:min(len(ids), q.Limit)], nil
		}
		start = "(" + entries[len(entries)-1].ID
	}
}

func (s *Store) rangeOf(ctx context.Context, stream, start string, n int64) (entries []rueidis.XRangeEntry, err error) {
	err = s.call(ctx, func(ctx context.Context, client rueidis.Client) (err error) {
		entries, err = client.Do(ctx, client.B().Xrange().Key(stream).Start(start).End("+").Count(n).Build()).AsXRange()
		return known(err)
	})
	return entries, err
}

// deadOf returns the oldest dead letters of one limit.
func (s *Store) deadOf(ctx context.Context, base string, q queue.Query) ([]string, error) {
	page := q.Limit
	if q.Lane != nil {
		page = lookedAtOnce
	}
	var ids []string
	for start := 0; ; start += page {
		some, places, err := s.deadPage(ctx, base, start, page)
		if err != nil {
			return nil, err
		}
		for i, id := range some {
			if q.Lane == nil || strings.HasSuffix(places[i], " "+laneOf(*q.Lane)) {
				ids = append(ids, id)
			}
		}
		if len(some) < page || len(ids) >= q.Limit {
			return ids[:min(len(ids), q.Limit)], nil
		}
	}
}

// deadPage returns some dead letters, and their places.
func (s *Store) deadPage(ctx context.Context, base string, start, n int) (ids, places []string, err error) {
	err = s.call(ctx, func(ctx context.Context, client rueidis.Client) (err error) {
		ids, err = client.Do(ctx, client.B().Zrange().Key(base+":z").Min(strconv.Itoa(start)).Max(strconv.Itoa(start+n-1)).Build()).AsStrSlice()
		if err != nil || len(ids) == 0 {
			return err
		}
		found, err := client.Do(ctx, client.B().Hmget().Key(base+":x").Field(ids...).Build()).ToArray()
		for i := range found {
			place, _ := found[i].ToString() // empty of one that has gone since
			places = append(places, place)
		}
		return err
	})
	return ids, places, err
}
