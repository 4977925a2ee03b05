package redis

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// ErrForbidden is wrapped by the error of a call that Redis has refused because the user
// may not run a command or use a key. The user needs the permissions in docs/run/redis.md.
var ErrForbidden = errors.New("the user lacks a permission")

// needed returns the commands of the scripts, those of the tables of headgate serve
// among them. KEY is a key.
func (s *Store) needed() []string {
	all := []string{
		"EVAL x 1 KEY", "EVALSHA x 1 KEY",
		"GET KEY", "SET KEY v", "GETRANGE KEY 0 0", "SETRANGE KEY 0 v", "DEL KEY",
		"PTTL KEY", "PEXPIRE KEY 1", "PEXPIREAT KEY 1", "PEXPIRETIME KEY", "PERSIST KEY", "TIME",
		"HDEL KEY f", "HEXISTS KEY f", "HGET KEY f", "HINCRBY KEY f 1", "HLEN KEY", "HMGET KEY f", "HSET KEY f v",
		"ZADD KEY 1 m", "ZCARD KEY", "ZRANGEBYSCORE KEY 0 1", "ZREM KEY m", "ZREMRANGEBYRANK KEY 0 0", "ZREVRANGE KEY 0 0", "ZSCORE KEY m",
	}
	if s.options.KeyTimes {
		all = append(all, "EXISTS KEY")
	}
	return all
}

// ExchangeNeeds returns what an [Exchange] runs on the servers of its own region that
// nothing else does, for [Store.Lacks].
func ExchangeNeeds() []string { return []string{"XADD KEY * f v", "HGETALL KEY"} }

// Lacks returns the commands that headgate serve runs on keys of the Store, and those of
// also, that the user may not run. known is false if the server cannot tell: before Redis 7.0.
func (s *Store) Lacks(ctx context.Context, also ...string) (commands []string, known bool, err error) {
	answer, err := s.evaluate(ctx, newScript("rights"), []string{s.options.Prefix + ":{%rights}"}, append(s.needed(), also...)...)
	if err != nil {
		return nil, false, err
	}
	list, err := answer.AsStrSlice()
	if err != nil || slices.Equal(list, []string{"?"}) {
		return nil, false, err
	}
	for _, text := range list {
		name, _, _ := strings.Cut(text, " ")
		commands = append(commands, name)
	}
	return commands, true, nil
}
