package redis

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	var mu sync.Mutex
	var list []Memory
	err := s.apart(ctx, func() error {
		client, call, err := s.begin(ctx)
		if err != nil {
			return err
		}
		var own []Memory
		for address, node := range client.Nodes() {
			var text string
			text, err = node.Do(call, node.B().Info().Section("memory").Build()).ToString()
			if err != nil {
				break
			}
			own = append(own, memoryOf(address, text))
		}
		mu.Lock()
		list = own
		mu.Unlock()
		return s.end(ctx, call, err)
	})
	if err != nil {
		return nil, err
	}
	mu.Lock()
	defer mu.Unlock()
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
