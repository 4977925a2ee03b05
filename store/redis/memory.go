package redis

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

// Memory is how a server deals with its memory.
type Memory struct {
	Address string
	// Policy is its maxmemory-policy, such as noeviction.
	Policy string
	// Max is its maxmemory in bytes, 0 for none; Used is what it uses.
	Max, Used int64
}

// Evicts reports whether the server takes keys away before they end: then a key
// that was exhausted has its whole limit again.
func (m *Memory) Evicts() bool { return m.Policy != "" && m.Policy != "noeviction" }

// Memory asks every server, by INFO, which a user may not be allowed to.
func (s *Store) Memory(ctx context.Context) ([]Memory, error) {
	var list []Memory // of nobody else once call has no error
	err := s.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		for address, node := range client.Nodes() {
			text, err := node.Do(ctx, node.B().Info().Section("memory").Build()).ToString()
			if err != nil {
				return err
			}
			list = append(list, memoryOf(address, text))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b Memory) int { return strings.Compare(a.Address, b.Address) })
	return list, nil
}

// memoryOf reads what INFO says.
func memoryOf(address, info string) Memory {
	m := Memory{Address: address}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "maxmemory_policy":
			m.Policy = value
		case "maxmemory":
			m.Max, _ = strconv.ParseInt(value, 10, 64)
		case "used_memory":
			m.Used, _ = strconv.ParseInt(value, 10, 64)
		}
	}
	return m
}
