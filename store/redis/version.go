package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/transport/rightserver"
	"github.com/headgate/headgate/store"
)

// ErrTooOld is wrapped by the errors of [New] and [Store.CheckVersion] if the server is
// too old for the scripts.
var ErrTooOld = errors.New("headgate needs Redis 6.2 or later, or Valkey")

// The oldest supported versions.
const (
	leastMajor = 6
	leastMinor = 2
)

// CheckVersion returns an error that wraps ErrTooOld if a server is too old. A server
// whose version cannot be determined is accepted. Any other error means that a server
// did not answer. New checks the servers that it can reach.
func (s *Store) CheckVersion(ctx context.Context) error {
	old := new(error) // a late call may still write it
	err := s.call(ctx, func(ctx context.Context, client rueidis.Client) (err error) {
		*old, err = tooOld(ctx, client)
		return err
	})
	if err != nil {
		return err
	}
	return *old
}

// tooOld returns in old why the server is too old, or nil.
func tooOld(ctx context.Context, client rueidis.Client) (old, err error) {
	version, err := versionOf(ctx, client)
	if err != nil || version == "" {
		return nil, err
	}
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	m, err := strconv.Atoi(major)
	n, err2 := strconv.Atoi(minor)
	if err != nil || err2 != nil || m > leastMajor || m == leastMajor && n >= leastMinor {
		return nil, nil
	}
	return fmt.Errorf("%w: this is Redis %.20s", ErrTooOld, version), nil
}

// versionOf returns the Redis version that a server reports, or "" if it is something
// else or does not report one.
func versionOf(ctx context.Context, client rueidis.Client) (string, error) {
	hello, err := client.Do(ctx, client.B().Arbitrary("HELLO").Build()).AsStrMap()
	switch {
	case err == nil && hello["server"] == "redis":
		return hello["version"], nil
	case err == nil:
		return "", nil
	case !isAnswer(err):
		return "", err
	}
	// Before 6.0 there was no HELLO.
	text, err := client.Do(ctx, client.B().Info().Section("server").Build()).ToString()
	switch {
	case err != nil && !isAnswer(err):
		return "", err
	case err != nil:
		return "", nil // no permission
	}
	return fieldOf(text, "redis_version"), nil
}

// fieldOf returns the value of a field in an answer to INFO.
func fieldOf(info, name string) string {
	_, after, _ := strings.Cut("\n"+info, "\n"+name+":")
	value, _, _ := strings.Cut(after, "\n")
	return strings.TrimSpace(value)
}

// isAnswer reports whether err is the server's answer, or means that its answer was not
// as expected.
func isAnswer(err error) bool {
	_, ok := rueidis.IsRedisErr(err)
	return ok || rueidis.IsParseErr(err)
}

// isLogin reports whether err is the server's answer to a wrong or missing password.
func isLogin(err error) bool {
	e, ok := rueidis.IsRedisErr(err)
	return ok && rightserver.IsRefusal(e.Error())
}

// Memory describes the memory settings of a server.
type Memory struct {
	Address   string
	Policy    string // maxmemory-policy, such as noeviction
	Max, Used int64  // Max is maxmemory in bytes, 0 for none; Used is the current use
	Evicted   int64  // how many keys it has evicted since its start
}

// Evicts reports whether the server evicts keys before they expire, which gives
// exhausted keys their whole limit back.
func (m *Memory) Evicts() bool { return m.Policy != "" && m.Policy != "noeviction" }

// Memory queries every server with INFO. The error of one that answers and does not tell,
// such as when the user may not ask, wraps store.ErrRefused.
func (s *Store) Memory(ctx context.Context) ([]Memory, error) {
	var list []Memory // not shared once call returns without an error
	err := s.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		for address, node := range client.Nodes() {
			text, err := node.Do(ctx, node.B().Info().Section("memory").Build()).ToString()
			more := ""
			if err == nil {
				more, err = node.Do(ctx, node.B().Info().Section("stats").Build()).ToString()
			}
			if isAnswer(err) && !isLogin(err) {
				return fmt.Errorf("%w: %w", store.ErrRefused, err)
			}
			if err != nil {
				return err
			}
			list = append(list, memoryOf(address, text+more))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b Memory) int { return strings.Compare(a.Address, b.Address) })
	return list, nil
}

// memoryOf parses an answer to INFO.
func memoryOf(address, info string) Memory {
	m := Memory{Address: address, Policy: fieldOf(info, "maxmemory_policy")}
	m.Max, _ = strconv.ParseInt(fieldOf(info, "maxmemory"), 10, 64)
	m.Evicted, _ = strconv.ParseInt(fieldOf(info, "evicted_keys"), 10, 64)
	m.Used, _ = strconv.ParseInt(fieldOf(info, "used_memory"), 10, 64)
	return m
}
