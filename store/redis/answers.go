package redis

import (
	"strings"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/store"
)

// answerOf returns what a server that is up and answers others says by err: that
// it has no room (store.ErrFull), that it writes nothing for now
// (store.ErrReadOnly), or that it does not want this question
// (store.ErrRefused). It is nil for any other error, also for those of a
// server that answers nobody, such as LOADING, BUSY and NOAUTH.
func answerOf(err error) error {
	e, ok := rueidis.IsRedisErr(err)
	if !ok {
		return nil
	}
	text := e.Error()
	// What a script ran into has a code of its own, up to Redis 6 in the middle.
	script := strings.HasPrefix(text, "ERR ") && strings.Contains(text, "user_script:")
	for _, known := range [...]struct {
		code  string
		means error
	}{
		{"OOM ", store.ErrFull},
		{"READONLY ", store.ErrReadOnly},
		{"MISCONF ", store.ErrReadOnly},
		{"NOREPLICAS ", store.ErrReadOnly},
		{"WRONGTYPE ", store.ErrRefused},
		{"HEADGATE ", store.ErrRefused},
		{"TRYAGAIN ", store.ErrRefused}, // of a slot that is being moved
	} {
		if strings.HasPrefix(text, known.code) || script && strings.Contains(text, known.code) {
			return known.means
		}
	}
	// A user may be allowed some keys, or none of the commands.
	if script || strings.HasPrefix(text, "NOPERM ") && strings.Contains(text, " to access ") {
		return store.ErrRefused
	}
	return nil
}
