package upgrade_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/regions"
)

// silence is an exchange with regions that never say anything.
type silence struct{}

func (silence) Lead(context.Context, time.Duration) (store.Leadership, error) {
	return store.Leadership{}, nil
}
func (silence) Saw(context.Context, string, time.Time) error { return nil }
func (silence) Publish(context.Context, []byte) error        { return nil }
func (silence) Read(context.Context, string, string) (store.Messages, error) {
	return store.Messages{}, nil
}

// newSession returns a server with the rules of a version, in one of two regions.
func newSession(t *testing.T, folder string, counts store.Store, table control.Table, secret engine.Option) *session {
	t.Helper()
	rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte(read(t, folder, "rules.yaml"))})
	if rs == nil {
		t.Fatal(diagnostics)
	}
	parts, err := regions.New(counts, regions.Options{Name: "eu", Others: []string{"us"}, Exchange: silence{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = parts.Close() }) // and counts
	s := &session{engine: engine.New(parts, rs, secret), counts: parts, tokens: map[string]string{}}
	s.control = control.New(control.Options{
		Table: table, Engine: s.engine, Clock: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	return s
}

// ofMemory returns a server with a memory store.
func ofMemory(t *testing.T, folder string) *session {
	t.Helper()
	counts := memory.New(memory.WithClock(func() time.Time { return start }))
	path := filepath.Join(t.TempDir(), "control")
	if old := filepath.Join(folder, "memory.control"); exists(old) { // or this is about to write it
		path = copied(t, old)
	}
	table, err := control.OpenLocal(path, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	secret := []byte("of the version that wrote this")
	s := newSession(t, folder, counts, table, engine.WithSecret(func(context.Context) ([]byte, error) { return secret, nil }))
	s.saveTo = func(t *testing.T, tokens string) {
		write(t, folder, "memory.tokens", tokens)
		write(t, folder, "memory.control", read(t, "", path))
		if err := counts.SaveFile(filepath.Join(folder, "memory.snapshot")); err != nil {
			t.Fatal(err)
		}
	}
	s.loadFrom = func(t *testing.T) string {
		if err := counts.LoadFile(filepath.Join(folder, "memory.snapshot")); err != nil {
			t.Fatal(err)
		}
		return read(t, folder, "memory.tokens")
	}
	return s
}

// ofRedis returns a server with counts in Redis.
func ofRedis(t *testing.T, folder string, server *redistest.Server) *session {
	t.Helper()
	counts, err := redis.New(t.Context(), redis.Options{Addresses: []string{server.Addr}, Timeout: 10 * time.Second, CallerTime: true, KeyTimes: true})
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(t, folder, counts, counts.Table("control"), engine.WithSecrets(counts.Secrets()))
	s.saveTo = func(t *testing.T, tokens string) {
		write(t, folder, "redis.tokens", tokens)
		write(t, folder, "redis.keys", dumped(t, server))
	}
	s.loadFrom = func(t *testing.T) string {
		restore(t, server, read(t, folder, "redis.keys"))
		return read(t, folder, "redis.tokens")
	}
	return s
}

const week = 7 * 24 * time.Hour

// weekOf returns the number of the week on the server's clock.
func weekOf(t *testing.T, server *redistest.Server) int64 {
	t.Helper()
	seconds, _, _ := strings.Cut(server.Do("TIME"), "\n")
	return number(t, seconds) / int64(week.Seconds())
}

// short is the form of a window that ends when its key does.
var short = regexp.MustCompile(`^[0-9]{1,4}$`)

// dumped returns commands that write all keys of a server, one a line, with quoted
// words. They do not expire, apart from short windows, which are those of the rule
// weekly: they end with the week.
func dumped(t *testing.T, server *redistest.Server) string {
	t.Helper()
	keys := list(t, server, "KEYS", "*")
	slices.Sort(keys)
	var text strings.Builder
	line := func(words ...string) {
		for i, word := range words {
			if i > 0 {
				text.WriteByte(' ')
			}
			text.WriteString(strconv.QuoteToASCII(word))
		}
		text.WriteByte('\n')
	}
	for _, key := range keys {
		switch kind := server.Do("TYPE", key); kind {
		case "string":
			value := server.Do("GET", key)
			if short.MatchString(value) && strings.HasSuffix(key, ":f") {
				line("SET", key, value, "PXAT", "end of the week")
			} else {
				line("SET", key, value)
			}
		case "hash":
			line(append([]string{"HSET", key}, list(t, server, "HGETALL", key)...)...)
		case "zset":
			members := list(t, server, "ZRANGE", key, "0", "-1", "WITHSCORES")
			for i := 0; i < len(members); i += 2 {
				members[i], members[i+1] = members[i+1], members[i]
			}
			line(append([]string{"ZADD", key}, members...)...)
		case "set":
			line(append([]string{"SADD", key}, list(t, server, "SMEMBERS", key)...)...)
		case "list":
			line(append([]string{"RPUSH", key}, list(t, server, "LRANGE", key, "0", "-1")...)...)
		case "stream":
			dumpStream(t, server, key, line)
		default:
			t.Fatalf("%s is a %s", key, kind)
		}
	}
	return text.String()
}

// dumpStream writes a stream and its groups, which have read nothing.
func dumpStream(t *testing.T, server *redistest.Server, key string, line func(...string)) {
	t.Helper()
	for _, message := range asked(t, server, "XRANGE", key, "-", "+") {
		line(append([]string{"XADD", key}, words(message)...)...)
	}
	for _, group := range asked(t, server, "XINFO", "GROUPS", key) {
		line("XGROUP", "CREATE", key, words(group)[1], "0", "MKSTREAM")
	}
}

// asked returns the elements of a server's answer.
func asked(t *testing.T, server *redistest.Server, command ...string) []any {
	t.Helper()
	reply, err := server.Command(command...)
	if err != nil {
		t.Fatal(err)
	}
	elements, ok := reply.([]any)
	if !ok {
		t.Fatalf("%v is answered by %v", command, reply)
	}
	return elements
}

// words returns the texts of an answer, whatever they are in.
func words(reply any) (all []string) {
	elements, ok := reply.([]any)
	if !ok {
		return []string{fmt.Sprint(reply)}
	}
	for _, e := range elements {
		all = append(all, words(e)...)
	}
	return all
}

// list returns the words of a server's answer.
func list(t *testing.T, server *redistest.Server, command ...string) []string {
	t.Helper()
	return words(asked(t, server, command...))
}

// restore runs the commands of dumped.
func restore(t *testing.T, server *redistest.Server, commands string) {
	t.Helper()
	end := (weekOf(t, server) + 1) * week.Milliseconds()
	for line := range strings.Lines(commands) {
		var command []string
		for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimSpace(rest) {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			word, err := strconv.Unquote(quoted)
			if err != nil {
				t.Fatal(err)
			}
			command, rest = append(command, word), rest[len(quoted):]
		}
		if last := &command[len(command)-1]; *last == "end of the week" {
			*last = strconv.FormatInt(end, 10)
		}
		server.Do(command...)
	}
}
