package redis_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

func TestParseURL(t *testing.T) {
	type want struct {
		mode                 redis.Mode
		addresses, user      string
		password, masterName string
		db                   int
		tls                  bool
		timeout              time.Duration
		prefix               string
	}
	cases := map[string]want{
		"redis://":                                      {addresses: "127.0.0.1:6379"},
		"redis://h":                                     {addresses: "h:6379"},
		"valkey://h:1/2":                                {addresses: "h:1", db: 2},
		"redis://:p@h":                                  {addresses: "h:6379", password: "p"},
		"rediss://u:p%40ss@h:7?timeout=20ms":            {addresses: "h:7", user: "u", password: "p@ss", tls: true, timeout: 20 * time.Millisecond},
		"redis://[::1]:7?prefix=team":                   {addresses: "[::1]:7", prefix: "team"},
		"redis+sentinel://a,b:2/main/3":                 {mode: redis.Sentinel, addresses: "a:26379 b:2", masterName: "main", db: 3},
		"rediss+cluster://u:p@a:1,b:2,c":                {mode: redis.Cluster, addresses: "a:1 b:2 c:6379", user: "u", password: "p", tls: true},
		"valkeys://h?insecure_skip_verify=true":         {addresses: "h:6379", tls: true},
		"redis+sentinel://h/main?sentinel_password=a@b": {mode: redis.Sentinel, addresses: "h:26379", masterName: "main"},
		"redis+standalone://h?strict_atomic=yes":        {},
	}
	for text, w := range cases {
		o, err := redis.ParseURL(text)
		if w.addresses == "" {
			if err == nil {
				t.Errorf("%s: no error", text)
			}
			continue
		}
		if w.timeout == 0 {
			w.timeout = redis.DefaultTimeout
		}
		if w.prefix == "" {
			w.prefix = redis.DefaultPrefix
		}
		got := want{
			o.Mode, strings.Join(o.Addresses, " "), o.Username, o.Password, o.MasterName, o.DB, o.TLS != nil, o.Timeout, o.Prefix,
		}
		if err != nil || got != w {
			t.Errorf("%s:\n got %+v, %v\nwant %+v", text, got, err, w)
		}
	}
}

func TestParseURLErrors(t *testing.T) {
	for _, text := range []string{
		"", "h:6379", "redis:h:6379", "redis:u:hunter2@h", "redis://h#x", "redis://h/1#hunter2", "http://h", "redis+ring://h", "redis://h/x", "redis://h/1/2", "redis://h/-1", "redis://a,b", "redis+sentinel://h",
		"redis+cluster://h/1", "redis://h?timeout=fast", "redis://h?timeout=-1s", "redis://h?colour=red", "redis://h?prefix={}",
		"redis://h?insecure_skip_verify=true", "redis://u:hunter2@h:port", "redis://u:hunter2@h%zz",
		"redis://:hunter2/x@h:1", "redis://:hunter2#x@h:1", "redis://:hunter2?x@h:1", "redis://user:1/hunter2@h", "redis://u:hunter2/==@h", "redis://h:hunter2",
	} {
		_, err := redis.ParseURL(text)
		if err == nil {
			t.Errorf("%q: no error", text)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the error tells the password: %v", text, err)
		}
	}
}

// TestRawCharactersInPasswords: the error says what to write, and nothing of the rest.
func TestRawCharactersInPasswords(t *testing.T) {
	for raw, escape := range map[string]string{
		"[": "%5B", "]": "%5D", "^": "%5E", " ": "%20", "|": "%7C", "%": "%25", "%z1": "%25", "%4": "%25", "{": "%7B", "ü": "%C3%BC", "\"": "%22",
	} {
		_, err := redis.ParseURL("redis://u:hunter" + raw + "2@h:1")
		if raw == "%4" {
			_, err = redis.ParseURL("redis://u:hunter2%4@h:1")
		}
		if err == nil || !strings.HasSuffix(err.Error(), ": write it as "+escape) || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%q: %v", raw, err)
		}
		if o, err := redis.ParseURL("redis://u:a" + escape + "b@h:1"); err != nil || len(o.Password) < 3 {
			t.Errorf("%q, escaped: %+v, %v", raw, o, err)
		}
	}
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	for name, o := range map[string]redis.Options{
		"two addresses":    {Addresses: []string{"a:1", "b:2"}},
		"no port":          {Addresses: []string{"a"}},
		"no master":        {Addresses: []string{"a:1"}, Mode: redis.Sentinel},
		"stray master":     {Addresses: []string{"a:1"}, MasterName: "m"},
		"cluster database": {Addresses: []string{"a:1"}, Mode: redis.Cluster, DB: 1},
		"negative timeout": {Addresses: []string{"a:1"}, Timeout: -1},
		"braces":           {Addresses: []string{"a:1"}, Prefix: "a{b"},
		"unknown mode":     {Addresses: []string{"a:1"}, Mode: 9},
	} {
		if db, err := redis.New(context.Background(), o); err == nil || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: error %v", name, err)
			if db != nil {
				_ = db.Close()
			}
		}
	}
}
