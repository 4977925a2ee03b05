package redis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// Server is what one server reports about itself; see [Store.Servers].
type Server struct {
	Address string
	Err     error             // if not nil, why it reports nothing, such as a missing permission
	Info    map[string]string // the fields of INFO
	// Config has save and appendfsync. It is nil if the user may not ask (+config|get).
	Config map[string]string
	// Ahead is how far its clock is ahead of the one that it is compared with; it may be
	// wrong by Within, half of the round trip.
	Ahead, Within time.Duration
}

// Servers asks every known server about itself, all at once, and compares its clock
// with now, which must be safe for concurrent use. It is for examinations, not for each
// request. In a cluster replicas are among the servers, with sentinels only the primary.
func (s *Store) Servers(ctx context.Context, now func() time.Time) ([]Server, error) {
	var list []Server // not shared once call returns without an error
	err := s.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		nodes := client.Nodes()
		all := make([]Server, 0, len(nodes))
		var done sync.WaitGroup
		for address, node := range nodes {
			all = append(all, Server{Address: address})
			is := &all[len(all)-1]
			done.Go(func() { describe(ctx, node, now, is) })
		}
		done.Wait()
		list = all
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b Server) int { return strings.Compare(a.Address, b.Address) })
	return list, nil
}

// describe asks one server.
func describe(ctx context.Context, node rueidis.Client, now func() time.Time, is *Server) {
	text, err := node.Do(ctx, node.B().Info().Build()).ToString()
	if err != nil {
		is.Err = err
		return
	}
	is.Info = fieldsOf(text)
	began := now()
	parts, err := node.Do(ctx, node.B().Time().Build()).AsIntSlice()
	ended := now()
	if err == nil && len(parts) != 2 {
		err = fmt.Errorf("TIME has %d parts", len(parts))
	}
	if err != nil {
		is.Err = err
		return
	}
	is.Within = ended.Sub(began) / 2
	is.Ahead = time.Unix(parts[0], parts[1]*int64(time.Microsecond)).Sub(began.Add(is.Within))
	settings := map[string]string{}
	for _, name := range []string{"save", "appendfsync"} {
		one, err := node.Do(ctx, node.B().ConfigGet().Parameter(name).Build()).AsStrMap()
		if err != nil {
			return
		}
		settings[name] = one[name]
	}
	is.Config = settings
}

// fieldsOf parses an answer to INFO.
func fieldsOf(text string) map[string]string {
	fields := map[string]string{}
	text = strings.TrimPrefix(text, "txt:") // how RESP3 marks it
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && !strings.HasPrefix(name, "#") {
			fields[name] = value
		}
	}
	return fields
}
