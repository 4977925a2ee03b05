package redis_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/redis"
)

// A user with the documented permissions lacks nothing. One without a command that a
// script runs lacks exactly that one.
func TestLacks(t *testing.T) {
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		needs, besides := documented(t)
		server.Do(slices.Concat([]string{"ACL", "SETUSER", "gate", "on", ">secret", "resetkeys", "~hg:*", "-@all"}, needs, besides)...)
		store := open(t, redis.Options{Addresses: []string{server.Addr}, Username: "gate", Password: "secret", Timeout: patient})
		lacks := func() string {
			t.Helper()
			list, known, err := store.Lacks(t.Context())
			if err != nil || !known {
				t.Fatalf("%t, %v", known, err)
			}
			return strings.Join(list, " ")
		}
		if got := lacks(); got != "" {
			t.Errorf("with the documented permissions it lacks %s", got)
		}
		before := server.Do("DBSIZE")
		for _, command := range commandsOfScripts(t) {
			if command == "EXISTS" { // of key_times
				continue
			}
			server.Do("ACL", "SETUSER", "gate", "-"+strings.ToLower(command))
			if got := lacks(); got != command {
				t.Errorf("without %s it lacks %q", command, got)
			}
			server.Do("ACL", "SETUSER", "gate", "+"+strings.ToLower(command))
		}
		if got := server.Do("DBSIZE"); got != before {
			t.Errorf("%s keys, before %s", got, before)
		}
	})
}

// commandsOfScripts returns the commands in lua/.
func commandsOfScripts(t *testing.T) (all []string) {
	t.Helper()
	files, err := filepath.Glob("lua/*.lua")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`call\('([A-Z]+)'`).FindAllStringSubmatch(string(text), -1) {
			all = append(all, found[1])
		}
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) < 20 {
		t.Fatal(all)
	}
	return all
}
