package streams

import (
	"context"
	"fmt"
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
	client, err := s.connected()
	if err != nil {
		return nil, err
	}
	if q.State == queue.Dead {
		return s.deadOf(ctx, client, s.base(tag), q)
	}
	var ids []string
	for n := range partitions {
		number := strconv.Itoa(n)
		if q.Lane != nil && number != partitionOf(laneOf(*q.Lane)) {
			continue
		}
		some, err := pendingOf(ctx, client, s.base(tag)+":p:"+number, q)
		if err != nil {
			return nil, err
		}
		ids = append(ids, some...)
	}
	return ids, nil
}

// pendingOf returns those of one partition.
func pendingOf(ctx context.Context, client rueidis.Client, stream string, q queue.Query) ([]string, error) {
	page := int64(q.Limit)
	if q.Lane != nil {
		page = lookedAtOnce
	}
	var ids []string
	for start := "-"; ; {
		entries, err := rangeOf(ctx, client, stream, start, page)
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

func rangeOf(ctx context.Context, client rueidis.Client, stream, start string, n int64) ([]rueidis.XRangeEntry, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	entries, err := client.Do(ctx, client.B().Xrange().Key(stream).Start(start).End("+").Count(n).Build()).AsXRange()
	if err != nil && !rueidis.IsRedisNil(err) {
		return nil, fmt.Errorf("%w: %w", queue.ErrUnavailable, err)
	}
	return entries, nil
}

// deadOf returns the oldest dead letters of one limit.
func (s *Store) deadOf(ctx context.Context, client rueidis.Client, base string, q queue.Query) ([]string, error) {
	page := q.Limit
	if q.Lane != nil {
		page = lookedAtOnce
	}
	var ids []string
	for start := 0; ; start += page {
		some, places, err := deadPage(ctx, client, base, start, page)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", queue.ErrUnavailable, err)
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
func deadPage(ctx context.Context, client rueidis.Client, base string, start, n int) (ids, places []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ids, err = client.Do(ctx, client.B().Zrange().Key(base+":z").Min(strconv.Itoa(start)).Max(strconv.Itoa(start+n-1)).Build()).AsStrSlice()
	if err != nil || len(ids) == 0 {
		return nil, nil, err
	}
	found, err := client.Do(ctx, client.B().Hmget().Key(base+":x").Field(ids...).Build()).ToArray()
	if err != nil {
		return nil, nil, err
	}
	for i := range found {
		place, _ := found[i].ToString() // empty of one that has gone since
		places = append(places, place)
	}
	return ids, places, nil
}
