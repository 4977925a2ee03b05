package doctor_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testkit/redistest"
)

const (
	readerUser = "ACL SETUSER headgate-reader on >secret resetkeys ~hg:{%regions}:news ~hg:{%tcontrol}:* resetchannels -@all +xrange +get +hmget +hlen +zcard +zrangebyscore +zmscore +time +ping +hello"
	homeUser   = "ACL SETUSER headgate-us on >secret resetkeys ~hg:{[^%]* ~hg:{%[h027]* resetchannels -@all +evalsha +eval +get +set +getrange +setrange +pttl +pexpire +pexpireat +pexpiretime +del +time +ping +hello"
)

// Doctor says whether other regions can be read, and whether homes count.
func TestRegions(t *testing.T) {
	t.Parallel()
	us, eu := redistest.Standalone(t), redistest.Standalone(t)
	eu.Do(strings.Fields(readerUser)...)
	eu.Do(strings.Fields(homeUser)...)
	is := func(regions string, want ...string) {
		t.Helper()
		expect(t, inspect(t, url("redis", us.Addr)+"regions: {name: us, "+regions+"}\n", 0), want...)
	}
	is(`peers: {eu: "redis://headgate-reader:secret@`+eu.Addr+`"}, homes: {eu: "redis://headgate-us:secret@`+eu.Addr+`"}`,
		"ok regions: region eu can be read in ", "ok regions: region eu counts limits for this one, and answers in ", "!fail")
	is(`peers: {eu: "redis://headgate-reader:wrong@`+eu.Addr+`"}, homes: {eu: "redis://headgate-us:wrong@`+eu.Addr+`"}`,
		"fail regions: cannot read the messages of region eu: ", "fail regions: region eu: ", "WRONGPASS")
	is(`peers: {eu: "http://`+eu.Addr+`"}, homes: {eu: "http://`+eu.Addr+`"}`,
		": regions.peers: region eu: ", ": regions.homes: region eu: ", "want redis, rediss, redis+sentinel or redis+cluster")
	is(`peers: {eu: "redis://headgate-us:secret@`+eu.Addr+`"}, homes: {eu: "redis://headgate-reader:secret@`+eu.Addr+`"}`,
		"fail regions: cannot read the messages of region eu: ", "fail regions: region eu does not count: ")
	// With another prefix this region would read nothing, and hear nothing, for ever.
	is(`peers: {eu: "redis://headgate-reader:secret@`+eu.Addr+`?prefix=bb"}`,
		`fail regions: regions.peers: region eu: all regions have the same prefix of keys, and that of this one is "hg"`)
	eu.Do("ACL", "SETUSER", "headgate-reader", "-hmget")
	is(`peers: {eu: "redis://headgate-reader:secret@`+eu.Addr+`"}`, "fail regions: cannot read the bans, overrides, grants and resets of region eu: ")
	eu.Kill()
	is(`peers: {eu: "redis://headgate-reader:secret@`+eu.Addr+`"}, homes: {eu: "redis://headgate-us:secret@`+eu.Addr+`"}`,
		"fail regions: cannot read the messages of region eu: ", "fail regions: region eu does not count: ")
}

// TestOwnRights: between regions the user of the own servers needs more.
func TestOwnRights(t *testing.T) {
	t.Parallel()
	us, eu := redistest.Standalone(t), redistest.Standalone(t)
	us.Do(strings.Fields("ACL SETUSER gate on >secret resetkeys ~hg:* resetchannels +@all -xadd -hgetall")...)
	own := strings.Replace(url("redis", us.Addr), "redis://", "redis://gate:secret@", 1)
	expect(t, inspect(t, own, 0), "ok permissions: ")
	expect(t, inspect(t, own+"regions: {name: us, homes: {eu: \"redis://"+eu.Addr+"\"}}\n", 0), "ok permissions: ")
	expect(t, inspect(t, own+"regions: {name: us, peers: {eu: \"redis://"+eu.Addr+"\"}}\n", 0),
		"fail permissions: the user may not run XADD, HGETALL on keys with the prefix")
	us.Do(strings.Fields("ACL SETUSER gate +xadd +hgetall")...)
	expect(t, inspect(t, own+"regions: {name: us, peers: {eu: \"redis://"+eu.Addr+"\"}}\n", 0), "ok permissions: ")
}
