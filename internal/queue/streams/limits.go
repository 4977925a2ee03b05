package streams

import (
	"context"
	"encoding/json"
	"math"
	"strings"

	"github.com/redis/rueidis"
)

// register announces the queue of a rule to all processes, once. In a cluster the shard with
// the list of queues may be down; survey then tries again.
func (s *Store) register(ctx context.Context, tag string, l limit) error {
	s.mu.Lock()
	_, known := s.known[tag]
	s.mu.Unlock()
	if known {
		return nil
	}
	if err := s.lay(ctx, tag); err != nil {
		return err
	}
	s.mu.Lock()
	s.known[tag] = l
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, callTimeout/2)
	defer cancel()
	_ = s.list(ctx, tag, l)
	return nil
}

// list adds the queue of a rule to the list that all processes read.
func (s *Store) list(ctx context.Context, tag string, l limit) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return s.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		return client.Do(ctx, client.B().Hset().Key(s.registry()).FieldValue().FieldValue(tag, string(text)).Build()).Error()
	})
}

// lay creates the permanent keys of a queue.
func (s *Store) lay(ctx context.Context, tag string) error {
	return s.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		do := []rueidis.Completed{
			client.B().Zadd().Key(s.base(tag)+":z").Nx().ScoreMember().ScoreMember(math.Inf(1), "-").Build(),
		}
		for end := range strings.FieldsSeq(hashes) {
			do = append(do, client.B().Hsetnx().Key(s.base(tag)+end).Field("-").Value("").Build())
		}
		for _, result := range client.DoMulti(ctx, do...) {
			if err := result.Error(); err != nil {
				return err
			}
		}
		return nil
	})
}

// limits returns all queues that any process has announced; none with an error.
func (s *Store) limits(ctx context.Context) (map[string]limit, error) {
	var fields map[string]string
	all := map[string]limit{}
	err := s.call(ctx, func(ctx context.Context, client rueidis.Client) (err error) {
		fields, err = client.Do(ctx, client.B().Hgetall().Key(s.registry()).Build()).AsStrMap()
		return err
	})
	for tag, text := range fields {
		var l limit
		if len(tag) == tagSize && json.Unmarshal([]byte(text), &l) == nil {
			all[tag] = l
		}
	}
	return all, err
}
