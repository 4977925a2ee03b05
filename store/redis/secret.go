package redis

import (
	"context"
	"crypto/rand"

	"github.com/redis/rueidis"
)

// secretLua returns the secret, which is the one given if there was none.
const secretLua = `redis.call('SET', KEYS[1], ARGV[1], 'NX') return redis.call('GET', KEYS[1])` //nolint:gosec // no secret in it

// Secret returns a random text that all who use the same servers and Prefix
// have in common: the first who asks makes it. It is kept for good, under the
// name prefix:secret. Who can read it can change the counts as well.
func (s *Store) Secret(ctx context.Context) ([]byte, error) {
	client, call, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	own := rand.Text() + rand.Text()
	secret, err := client.Do(call, eval(client, s.options.Prefix+":secret", own)).AsBytes()
	if err := s.end(ctx, call, err); err != nil {
		return nil, err
	}
	return secret, nil
}

func eval(client rueidis.Client, key, arg string) rueidis.Completed {
	return client.B().Eval().Script(secretLua).Numkeys(1).Key(key).Arg(arg).Build()
}
