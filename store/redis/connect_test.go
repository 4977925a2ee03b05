package redis_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

var one = store.Op{Key: "k", Rule: headgate.PerHour(3).Rule(), Cost: 1}

// documented returns the permissions of an ACL user in docs/run/redis.md: those of the
// store, and those that headgate serve needs in addition.
func documented(t *testing.T) (store, serve []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/run/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile("An ACL user needs `([^`]+)` on `~hg:\\*`.*`headgate serve` also needs `([^`]+)`.*with `([^`]+)` it can warn").FindStringSubmatch(string(text))
	if line == nil {
		t.Fatal("docs/run/redis.md does not say what an ACL user needs")
	}
	return strings.Fields(line[1]), strings.Fields(line[2] + " " + line[3])
}

// TestUsersAndPrefixes: an ACL user with only the documented permissions, on keys of
// its own prefix.
func TestUsersAndPrefixes(t *testing.T) {
	server := redistest.Standalone(t)
	needs, besides := documented(t)
	user := append([]string{"ACL", "SETUSER", "gate", "on", ">secret", "resetkeys", "~team1:*", "-@all"}, needs...)
	if answer := server.Do(user...); answer != "OK" {
		t.Fatal(answer)
	}
	options := redis.Options{Addresses: []string{server.Addr}, Username: "gate", Password: "secret", Prefix: "team1", Timeout: patient}
	db := open(t, options)
	if err := db.Ping(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, limit := range eachLimit(3, time.Hour) {
		op := one
		op.Rule = limit.Rule()
		take(t, db, op)
		op.Kind = store.KindReset
		take(t, db, op)
		op.Kind, op.Cost = store.KindRefund, 1
		take(t, db, op)
	}
	if answer := server.Do(append([]string{"ACL", "SETUSER", "gate"}, besides...)...); answer != "OK" {
		t.Fatal(answer)
	}
	if _, err := db.Secrets().All(context.Background()); err != nil {
		t.Error(err)
	}
	table := db.Table("test")
	row := redis.TableRow{Name: "a", Value: "1", Until: time.Now().Add(time.Hour)}
	if err := table.Put(context.Background(), row, 1); err != nil {
		t.Error(err)
	}
	if _, err := table.Restore(context.Background(), []redis.TableRow{row}); err != nil {
		t.Error(err)
	}
	if _, _, err := table.Since(context.Background(), 0, 1); err != nil {
		t.Error(err)
	}
	server.Do("CONFIG", "SET", "maxmemory", "100mb")
	server.Do("CONFIG", "SET", "maxmemory-policy", "volatile-ttl")
	list, err := db.Memory(context.Background())
	if err != nil || len(list) != 1 || !list[0].Evicts() || list[0].Max != 100<<20 || list[0].Used == 0 {
		t.Errorf("%+v, %v", list, err)
	}
	server.Do("ACL", "SETUSER", "gate", "-info")
	if _, err := db.Memory(context.Background()); !errors.Is(err, store.ErrRefused) {
		t.Errorf("without +info: %v", err)
	}
	take(t, db, one) // everything else works
	// A window also works without PEXPIRETIME, which does not exist before Redis 7.0.
	server.Do("ACL", "SETUSER", "gate", "-pexpiretime")
	window := store.Op{Key: "window", Rule: headgate.Per(3, 7*24*time.Hour).WithAlgorithm(store.FixedWindow).Rule(), Cost: 1}
	for _, left := range []int64{2, 1} {
		if d := take(t, db, window); d.Remaining != left {
			t.Errorf("without +pexpiretime: %+v, want %d left", d, left)
		}
	}
	options.Prefix = "team2"
	other := open(t, options)
	if _, err := store.Execute(context.Background(), other, one); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("keys of another prefix: error %v, want ErrUnavailable", err)
	}
	options.Password = "wrong"
	if db, err := redis.New(context.Background(), options); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("wrong password: error %v, want ErrUnavailable", err)
		_ = db.Close()
	}
}

// TestSentinel finds the primary through its sentinels.
func TestSentinel(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts six servers")
	}
	set := redistest.Sentinel(t)
	store := open(t, redis.Options{
		Addresses: set.Addrs(), Mode: redis.Sentinel, MasterName: redistest.MasterName, Timeout: patient,
	})
	if d := take(t, store, one); d.Remaining != 2 {
		t.Errorf("remaining %d, want 2", d.Remaining)
	}
	if got := set.Primary.Do("EXISTS", redis.KeyOf("hg", &one)); got != "1" {
		t.Error("the key is not on the primary")
	}
}

// encrypted returns a server that also speaks TLS, its TLS address, and what a client
// must trust. It skips the test if the server was built without TLS.
func encrypted(t *testing.T) (server *redistest.Server, address string, pool *x509.CertPool) {
	t.Helper()
	server = redistest.Standalone(t)
	dir := t.TempDir()
	pool = selfSigned(t, dir)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(address)
	for _, pair := range [][2]string{
		{"tls-cert-file", filepath.Join(dir, "cert.pem")},
		{"tls-key-file", filepath.Join(dir, "key.pem")},
		{"tls-auth-clients", "no"},
		{"tls-port", port},
	} {
		if _, err := server.Command("CONFIG", "SET", pair[0], pair[1]); err != nil {
			t.Skipf("a server without TLS: %v", err)
		}
	}
	return server, address, pool
}

// TestTLS speaks TLS with a server whose certificate is trusted only through the
// options.
func TestTLS(t *testing.T) {
	_, secure, pool := encrypted(t)
	db := open(t, redis.Options{Addresses: []string{secure}, TLS: &tls.Config{RootCAs: pool}, Timeout: patient})
	if d := take(t, db, one); d.Remaining != 2 {
		t.Errorf("remaining %d, want 2", d.Remaining)
	}
	distrusting := open(t, redis.Options{Addresses: []string{secure}, TLS: &tls.Config{}, Timeout: patient})
	if _, err := store.Execute(context.Background(), distrusting, one); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("an unknown certificate: error %v, want ErrUnavailable", err)
	}
}

// TestSecretsAreReadAgain: each connection uses the login and the certificates of its
// time.
func TestSecretsAreReadAgain(t *testing.T) {
	server, secure, pool := encrypted(t)
	server.Do("ACL", "SETUSER", "gate", "on", ">first", "~*", "+@all")
	var password atomic.Pointer[string]
	var current atomic.Pointer[tls.Config]
	enter := func(p string) { password.Store(&p) }
	enter("first")
	current.Store(&tls.Config{RootCAs: pool})
	db := open(t, redis.Options{
		Addresses: []string{secure}, Timeout: patient, TLS: &tls.Config{},
		Login:      func() (string, string, error) { return "gate", *password.Load(), nil },
		CurrentTLS: current.Load,
	})
	take(t, db, one)
	refused := func(why string) {
		t.Helper()
		server.Do("CLIENT", "KILL", "USER", "gate")
		for deadline := time.Now().Add(comeback); ; {
			_, err := store.Execute(t.Context(), db, one)
			if err != nil && strings.Contains(err.Error(), why) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%v, want %s", err, why)
			}
		}
	}
	server.Do("ACL", "SETUSER", "gate", "resetpass", ">second")
	refused("WRONGPASS")
	enter("second")
	awaitTake(t, db)
	current.Store(&tls.Config{RootCAs: x509.NewCertPool()})
	refused("x509")
	current.Store(&tls.Config{RootCAs: pool})
	awaitTake(t, db)
}

// TestTLSUnderFaults breaks an encrypted connection in every way, including during
// handshakes: calls end at their deadline, the store recovers, and no count is lost or
// doubled.
func TestTLSUnderFaults(t *testing.T) {
	_, secure, pool := encrypted(t)
	proxy := redistest.NewProxy(t, secure)
	db := open(t, redis.Options{Addresses: []string{proxy.Addr}, TLS: &tls.Config{RootCAs: pool}, Timeout: 500 * time.Millisecond})
	op := store.Op{Key: "k", Rule: headgate.PerDay(1_000_000).WithAlgorithm(store.FixedWindow).Rule(), Cost: 1}
	ctx := context.Background()
	await(t, db, store.Op{Key: "first", Rule: headgate.PerHour(1000).Rule(), Cost: 1})
	sent, unknown := int64(0), int64(0) // a call without an answer may have counted
	ask := func() error {
		_, err := store.Execute(ctx, db, op)
		if err == nil {
			sent++
		} else {
			unknown++
		}
		return err
	}
	for _, fault := range []struct {
		name  string
		begin func()
	}{
		{"cut", proxy.Cut},
		{"stall", proxy.Stall},
		{"reset", proxy.Reset},
		{"half open", proxy.HalfOpen},
		{"delay", func() { proxy.Delay(2 * time.Second) }}, // handshakes do not finish in time
	} {
		fault.begin()
		for range 3 {
			if err := ask(); err != nil && !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: %v", fault.name, err)
			}
		}
		proxy.Heal()
		for deadline := time.Now().Add(30 * time.Second); ask() != nil; {
			if time.Now().After(deadline) {
				t.Fatalf("%s: the store did not come back", fault.name)
			}
		}
	}
	op.Kind, op.Cost = store.KindPeek, 0
	d := await(t, db, op) // another connection may still have to come back
	if counted := 1_000_000 - d.Remaining; counted < sent || counted > sent+unknown {
		t.Errorf("%d counted, %d answered and %d not", counted, sent, unknown)
	}
}

// selfSigned writes a certificate and its key for 127.0.0.1.
func selfSigned(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, data := range map[string][]byte{
		"cert.pem": cert, "key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return pool
}

// TestServerComesLate: a store created before its server returns ErrUnavailable at
// once, and works when the server is up.
func TestServerComesLate(t *testing.T) {
	for _, mode := range []redis.Mode{redis.Standalone, redis.Sentinel, redis.Cluster} {
		t.Run(mode.String(), func(t *testing.T) {
			server := redistest.Standalone(t)
			server.Kill()
			o := redis.Options{Addresses: []string{server.Addr}, Mode: mode}
			if mode == redis.Sentinel {
				o.MasterName = "none"
			}
			db := open(t, o)
			began := time.Now()
			if _, err := store.Execute(context.Background(), db, one); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("error %v, want ErrUnavailable", err)
			}
			if took := time.Since(began); took > patient { // otherwise it would try for ever
				t.Errorf("took %s", took)
			}
			if mode != redis.Standalone {
				return
			}
			server.Restart()
			awaitTake(t, db)
		})
	}
}

// TestStalledServer: without failsafe, no call waits for the server beyond the timeout or
// its own deadline, however many are waiting, and the store works again when the server
// continues. (How exactly they keep the timeout depends on the machine: of 6,000 calls the
// longest takes some tens of milliseconds more on an idle one.)
func TestStalledServer(t *testing.T) {
	const (
		callers = 6000 // more than the slots in a connection's queue
		timeout = 100 * time.Millisecond
	)
	server := redistest.Standalone(t)
	db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: timeout})
	awaitTake(t, db)
	server.Pause()
	short, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := store.Execute(short, db, one); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("at its own deadline: error %v", err)
	}
	worst := longest(callers, func(i int) {
		op := one
		op.Key = strconv.Itoa(i)
		if _, err := store.Execute(context.Background(), db, op); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("error %v, want ErrUnavailable", err)
		}
	})
	if t.Logf("the longest of %d calls took %s", callers, worst); worst > 100*timeout {
		t.Errorf("the longest call took %s, want %s", worst, timeout)
	}
	server.Resume()
	awaitTake(t, db)
}

// longest runs f in n goroutines and returns how long the slowest took.
func longest(n int, f func(i int)) (worst time.Duration) {
	took := make(chan time.Duration, n)
	for i := range n {
		go func() {
			began := time.Now()
			f(i)
			took <- time.Since(began)
		}()
	}
	for range n {
		worst = max(worst, <-took)
	}
	return worst
}

// awaitTake calls the store until it answers.
func awaitTake(t *testing.T, store *redis.Store) {
	t.Helper()
	await(t, store, one)
}

// await calls the store until it answers: then there is a connection.
func await(t *testing.T, db *redis.Store, op store.Op) store.Decision {
	t.Helper()
	for deadline := time.Now().Add(comeback); ; {
		if d, err := store.Execute(context.Background(), db, op); err == nil {
			return d
		} else if time.Now().After(deadline) {
			t.Fatalf("still %v", err)
		}
	}
}

// TestForeignValue: a key written by another client is an error and is not changed.
func TestForeignValue(t *testing.T) {
	server := redistest.Standalone(t)
	db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	for _, limit := range eachLimit(3, time.Hour) {
		op := one
		op.Rule = limit.Rule()
		key := redis.KeyOf("hg", &op)
		for _, write := range [][]string{{"SET", key, "hello"}, {"HSET", key, "a", "b"}} {
			server.Do("DEL", key)
			server.Do(write...)
			if _, err := store.Execute(context.Background(), db, op); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s on a foreign %s: error %v, want ErrUnavailable", limit, write[0], err)
			}
			if server.Do("PTTL", key) != "-1" {
				t.Errorf("%s: the foreign key was changed", limit)
			}
		}
		op.Kind = store.KindReset
		server.Do("DEL", key)
		take(t, db, op)
	}
}

// TestCalendarSkew: a client whose clock is months off learns the server's time and
// tries again.
func TestCalendarSkew(t *testing.T) {
	server := redistest.Standalone(t)
	asked := 0
	db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient, Clock: func() time.Time {
		asked++
		return time.Unix(1e9, 0)
	}})
	op := one
	op.Rule = headgate.PerCalendar(3, store.Hour, time.UTC).Rule()
	ops := []store.Op{op, one, op}
	out := make([]store.Decision, 3)
	if d := take(t, db, op); d.Remaining != 2 {
		t.Errorf("remaining %d, want 2", d.Remaining)
	}
	if err := store.ExecuteAll(context.Background(), db, ops, out, store.AllOrNothing); err != nil {
		t.Fatal(err)
	}
	if out[2].Remaining != 0 || out[2].ResetAfter > time.Hour || asked == 0 {
		t.Errorf("%+v, clock read %d times", out[2], asked)
	}
}

// TestSecrets: all processes share one secret; if the server loses it, those that know
// it write it back, and a secret created in the meantime is also valid.
func TestSecrets(t *testing.T) {
	server := redistest.Standalone(t)
	secrets := func() *redis.Secrets {
		return open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient}).Secrets()
	}
	all := func(k *redis.Secrets) string {
		t.Helper()
		if err := k.Return(context.Background()); err != nil {
			t.Fatal(err)
		}
		list, err := k.Known(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s", list)
	}
	first, second := secrets(), secrets()
	want := all(first)
	if got := all(second); got != want || len(got) < 50 {
		t.Errorf("%s and %s", got, want)
	}
	server.Do("FLUSHALL")
	if err := second.Return(context.Background()); err != nil {
		t.Error(err)
	}
	if got := all(secrets()); got != want {
		t.Errorf("a third has %s, want %s", got, want)
	}
	server.Do("FLUSHALL")
	hasty := secrets()
	own := all(hasty)
	if own == want {
		t.Error("the server has lost nothing")
	}
	both := fmt.Sprintf("%s %s]", want[:len(want)-1], own[1:len(own)-1])
	if got := all(first); got != both {
		t.Errorf("the first has %s, want %s", got, both)
	}
	if got := all(hasty); len(got) != len(both) {
		t.Errorf("the hasty one has %s", got)
	}
	for range 30 {
		server.Do("FLUSHALL")
		all(secrets())
		all(first)
	}
	if got := server.Do("ZCARD", "hg:secrets"); got != "16" {
		t.Errorf("%s secrets are kept", got)
	}
}
