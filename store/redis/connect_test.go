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
	stores "github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

var one = headgate.Op{Key: "k", Limit: headgate.PerHour(3), Cost: 1}

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
	store := open(t, options)
	if err := store.Ping(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, limit := range eachLimit(3, time.Hour) {
		op := one
		op.Limit = limit
		take(t, store, op)
		op.Kind = headgate.Reset
		take(t, store, op)
		op.Kind, op.Cost = headgate.Refund, 1
		take(t, store, op)
	}
	if answer := server.Do(append([]string{"ACL", "SETUSER", "gate"}, besides...)...); answer != "OK" {
		t.Fatal(answer)
	}
	if _, err := store.Secrets().All(context.Background()); err != nil {
		t.Error(err)
	}
	table := store.Table("test")
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
	list, err := store.Memory(context.Background())
	if err != nil || len(list) != 1 || !list[0].Evicts() || list[0].Max != 100<<20 || list[0].Used == 0 {
		t.Errorf("%+v, %v", list, err)
	}
	server.Do("ACL", "SETUSER", "gate", "-info")
	if _, err := store.Memory(context.Background()); !errors.Is(err, stores.ErrRefused) {
		t.Errorf("without +info: %v", err)
	}
	take(t, store, one) // everything else works
	// A window also works without PEXPIRETIME, which does not exist before Redis 7.0.
	server.Do("ACL", "SETUSER", "gate", "-pexpiretime")
	window := headgate.Op{Key: "window", Limit: headgate.Per(3, 7*24*time.Hour).Using(headgate.FixedWindow), Cost: 1}
	for _, left := range []int64{2, 1} {
		if d := take(t, store, window); d.Remaining != left {
			t.Errorf("without +pexpiretime: %+v, want %d left", d, left)
		}
	}
	options.Prefix = "team2"
	other := open(t, options)
	if _, err := headgate.Execute(context.Background(), other, one); !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("keys of another prefix: error %v, want ErrUnavailable", err)
	}
	options.Password = "wrong"
	if store, err := redis.New(context.Background(), options); !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("wrong password: error %v, want ErrUnavailable", err)
		_ = store.Close()
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
	store := open(t, redis.Options{Addresses: []string{secure}, TLS: &tls.Config{RootCAs: pool}, Timeout: patient})
	if d := take(t, store, one); d.Remaining != 2 {
		t.Errorf("remaining %d, want 2", d.Remaining)
	}
	distrusting := open(t, redis.Options{Addresses: []string{secure}, TLS: &tls.Config{}, Timeout: patient})
	if _, err := headgate.Execute(context.Background(), distrusting, one); !errors.Is(err, headgate.ErrUnavailable) {
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
	store := open(t, redis.Options{
		Addresses: []string{secure}, Timeout: patient, TLS: &tls.Config{},
		Login:      func() (string, string, error) { return "gate", *password.Load(), nil },
		CurrentTLS: current.Load,
	})
	take(t, store, one)
	refused := func(why string) {
		t.Helper()
		server.Do("CLIENT", "KILL", "USER", "gate")
		for deadline := time.Now().Add(comeback); ; {
			_, err := headgate.Execute(t.Context(), store, one)
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
	awaitTake(t, store)
	current.Store(&tls.Config{RootCAs: x509.NewCertPool()})
	refused("x509")
	current.Store(&tls.Config{RootCAs: pool})
	awaitTake(t, store)
}

// TestTLSUnderFaults breaks an encrypted connection in every way, including during
// handshakes: calls end at their deadline, the store recovers, and no count is lost or
// doubled.
func TestTLSUnderFaults(t *testing.T) {
	_, secure, pool := encrypted(t)
	proxy := redistest.NewProxy(t, secure)
	store := open(t, redis.Options{Addresses: []string{proxy.Addr}, TLS: &tls.Config{RootCAs: pool}, Timeout: 500 * time.Millisecond})
	op := headgate.Op{Key: "k", Limit: headgate.PerDay(1_000_000).Using(headgate.FixedWindow), Cost: 1}
	ctx := context.Background()
	await(t, store, headgate.Op{Key: "first", Limit: headgate.PerHour(1000), Cost: 1})
	sent, unknown := int64(0), int64(0) // a call without an answer may have counted
	ask := func() error {
		_, err := headgate.Execute(ctx, store, op)
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
			if err := ask(); err != nil && !errors.Is(err, headgate.ErrUnavailable) {
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
	op.Kind, op.Cost = headgate.Peek, 0
	d := take(t, store, op)
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
			store := open(t, o)
			began := time.Now()
			if _, err := headgate.Execute(context.Background(), store, one); !errors.Is(err, headgate.ErrUnavailable) {
				t.Errorf("error %v, want ErrUnavailable", err)
			}
			if took := time.Since(began); took > patient { // otherwise it would try for ever
				t.Errorf("took %s", took)
			}
			if mode != redis.Standalone {
				return
			}
			server.Restart()
			awaitTake(t, store)
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
	store := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: timeout})
	awaitTake(t, store)
	server.Pause()
	short, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := headgate.Execute(short, store, one); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("at its own deadline: error %v", err)
	}
	worst := longest(callers, func(i int) {
		op := one
		op.Key = strconv.Itoa(i)
		if _, err := headgate.Execute(context.Background(), store, op); !errors.Is(err, headgate.ErrUnavailable) {
			t.Errorf("error %v, want ErrUnavailable", err)
		}
	})
	if t.Logf("the longest of %d calls took %s", callers, worst); worst > 100*timeout {
		t.Errorf("the longest call took %s, want %s", worst, timeout)
	}
	server.Resume()
	awaitTake(t, store)
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
func await(t *testing.T, store *redis.Store, op headgate.Op) {
	t.Helper()
	for deadline := time.Now().Add(comeback); ; {
		if _, err := headgate.Execute(context.Background(), store, op); err == nil {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("still %v", err)
		}
	}
}

// TestForeignValue: a key written by another client is an error and is not changed.
func TestForeignValue(t *testing.T) {
	server := redistest.Standalone(t)
	store := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	for _, limit := range eachLimit(3, time.Hour) {
		op := one
		op.Limit = limit
		key := redis.KeyOf("hg", &op)
		for _, write := range [][]string{{"SET", key, "hello"}, {"HSET", key, "a", "b"}} {
			server.Do("DEL", key)
			server.Do(write...)
			if _, err := headgate.Execute(context.Background(), store, op); !errors.Is(err, headgate.ErrUnavailable) {
				t.Errorf("%s on a foreign %s: error %v, want ErrUnavailable", limit, write[0], err)
			}
			if server.Do("PTTL", key) != "-1" {
				t.Errorf("%s: the foreign key was changed", limit)
			}
		}
		op.Kind = headgate.Reset
		server.Do("DEL", key)
		take(t, store, op)
	}
}

// TestCalendarSkew: a client whose clock is months off learns the server's time and
// tries again.
func TestCalendarSkew(t *testing.T) {
	server := redistest.Standalone(t)
	asked := 0
	store := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient, Clock: func() time.Time {
		asked++
		return time.Unix(1e9, 0)
	}})
	op := one
	op.Limit = headgate.PerCalendar(3, headgate.Hour, time.UTC)
	ops := []headgate.Op{op, one, op}
	out := make([]headgate.Decision, 3)
	if d := take(t, store, op); d.Remaining != 2 {
		t.Errorf("remaining %d, want 2", d.Remaining)
	}
	if err := headgate.ExecuteAll(context.Background(), store, ops, out, headgate.AllOrNothing); err != nil {
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
