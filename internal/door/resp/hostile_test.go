package resp_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/door/resp"
	"github.com/headgate/headgate/internal/transport/membound"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

func hasty(o *resp.Options) {
	o.ReadTimeout, o.WriteTimeout = 50*time.Millisecond, 50*time.Millisecond
}

// A command that arrives byte by byte has to be complete in time.
func TestSlowLoris(t *testing.T) {
	t.Parallel()
	w := open(t, hasty).dial(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.ends()
	}()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for _, err := io.WriteString(w, "*1\r\n$1000\r\n"); err == nil; _, err = w.Write([]byte{'x'}) {
		<-tick.C
	}
	<-ended
}

// By default a client may be idle between commands for any time. The read timeout starts
// with the next command.
func TestSilenceBetweenCommands(t *testing.T) {
	t.Parallel()
	d := open(t, hasty)
	w, busy := d.dial(t), d.dial(t)
	w.do("PING")
	// busy is closed each time for an incomplete command, so the timeout has passed
	// for w as well.
	for range 3 {
		busy.send("PIN")
		busy.ends()
		busy = d.dial(t)
	}
	if got := w.do("PING"); got != "+PONG" {
		t.Error(got)
	}
}

func TestIdleTimeout(t *testing.T) {
	t.Parallel()
	w := open(t, func(o *resp.Options) { o.IdleTimeout = 50 * time.Millisecond }).dial(t)
	w.do("PING")
	w.ends()
}

// A client has to give the password in time.
func TestStrangersMayNotStay(t *testing.T) {
	t.Parallel()
	d := open(t, hasty, func(o *resp.Options) { o.Password = "secret" })
	silent, chatty := d.dial(t), d.dial(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, chatty.r)
	}()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for _, err := io.WriteString(chatty, "PING\r\n"); err == nil; _, err = io.WriteString(chatty, "PING\r\n") {
		<-tick.C
	}
	<-ended
	silent.ends()
}

// A client that sends commands and does not read the answers is disconnected, and the
// memory for it is bounded.
func TestClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	w := open(t, hasty).dial(t)
	flood := []byte(strings.Repeat("COMMAND\r\n", 10_000))
	var err error
	for err == nil {
		_, err = w.Write(flood)
	}
	if n, ok := errors.AsType[net.Error](err); ok && n.Timeout() {
		t.Errorf("the server still reads: %v", err)
	}
}

// Many large commands that are half sent share a bounded memory.
func TestLargeCommandsShareMemory(t *testing.T) {
	t.Parallel()
	d := open(t, func(o *resp.Options) { o.Buffers, o.MaxBulk = membound.New(membound.Options{Most: 1 << 20}), 1<<20 })
	refused := 0
	half := "*2\r\n$4\r\nECHO\r\n$500000\r\n" + strings.Repeat("x", 200_000)
	var conns []*wire
	for range 10 {
		w := d.dial(t)
		conns = append(conns, w)
		// It may be refused and closed before all is written.
		_, _ = io.WriteString(w, half)
	}
	for _, w := range conns {
		_, err := io.WriteString(w, strings.Repeat("x", 300_000)+"\r\n")
		if err == nil {
			if answer, err := readAnswer(w.r); err == nil && strings.HasPrefix(answer, `"xxx`) {
				continue
			} else if err == nil && !strings.HasPrefix(answer, "-ERR too many large commands") {
				t.Errorf("answer %.60s", answer)
			}
		}
		refused++
	}
	if refused == 0 || refused == 10 {
		t.Errorf("%d of 10 were refused", refused)
	}
	// Their memory is free again.
	for _, w := range conns {
		_ = w.Close()
	}
	for d.Stats().Connections > 0 {
		runtime.Gosched()
	}
	w := d.dial(t)
	w.send(command("ECHO", strings.Repeat("y", 500_000)))
	if got := w.answer(); !strings.HasPrefix(got, `"yyy`) {
		t.Errorf("%.60s", got)
	}
}

// A huge argument is skipped without being kept in memory.
func TestHugeArgumentIsNotKept(t *testing.T) { //nolint:paralleltest // others would need memory too
	if testing.Short() {
		t.Skip("128 MiB through loopback")
	}
	w := open(t).dial(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const size = 128 << 20
	w.send(fmt.Sprintf("*2\r\n$4\r\nECHO\r\n$%d\r\n", size))
	chunk := bytes.Repeat([]byte{'x'}, 1<<20)
	for range size / len(chunk) {
		if _, err := w.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	w.send("\r\nPING\r\n")
	if got, want := w.answer(), fmt.Sprintf("-ERR an argument has %d bytes, at most 65536 are allowed", size); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := w.answer(); got != "+PONG" {
		t.Error(got)
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > size/2 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
}

// Many silent connections fill the server to its limit. Active clients are answered all
// the time, and so are new ones.
func TestFloodOfConnections(t *testing.T) {
	t.Parallel()
	d := open(t, func(o *resp.Options) { o.MaxConnections = 20 })
	regular := d.dial(t)
	silent := make([]*wire, 200)
	for i := range silent {
		silent[i] = d.dial(t)
		if got := regular.do("PING"); got != "+PONG" {
			t.Fatalf("the active client, with %d silent ones: %s", i, got)
		}
		if i%10 == 0 {
			newcomer := d.dial(t)
			if got := newcomer.do("PING"); got != "+PONG" {
				t.Fatalf("a new client, with %d silent ones: %s", i, got)
			}
		}
		if s := d.Stats(); s.Connections > 20 {
			t.Fatalf("%d connections are open", s.Connections)
		}
	}
	for _, w := range silent[:150] { // closed to make space for later ones
		w.ends()
	}
	if s := d.Stats(); s.Rejected > 0 || s.Evicted < 180 {
		t.Errorf("%+v", s)
	}
}

// stuck is a store that blocks until it is released.
type stuck struct {
	store.Store
	asked, answer chan struct{}
}

func (s stuck) Do(_ context.Context, b *store.Batch) {
	b.Each(func([]store.Op, []store.Decision, store.Mode) error {
		s.asked <- struct{}{}
		<-s.answer
		return headgate.ErrUnavailable
	})
}

// Connections that are being answered are not closed; if all are, new ones are refused.
func TestNoRoomAmongThoseAtWork(t *testing.T) {
	t.Parallel()
	store := stuck{memory.New(), make(chan struct{}), make(chan struct{})}
	d := open(t, func(o *resp.Options) { o.MaxConnections, o.Store = 1, store })
	busy := d.dial(t)
	busy.send("CL.THROTTLE k 1 1 1\r\n")
	<-store.asked
	late := d.dial(t)
	if got := late.answer(); got != "-ERR max number of clients reached" {
		t.Error(got)
	}
	late.ends()
	close(store.answer)
	if got := busy.answer(); !strings.HasPrefix(got, "-") {
		t.Errorf("%s, want the error of the store", got)
	}
}

// Connections that end in any way leave nothing behind.
func TestConnectionsVanish(t *testing.T) {
	t.Parallel()
	d := open(t)
	for i, last := range []string{"", "PING\r\n", "*2\r\n$4\r\nEC", "*1\r\n$600\r\n" + strings.Repeat("x", 100), strings.Repeat("CL.THROTTLE k 1 1 1\r\n", 5000)} {
		for range 20 {
			w := d.dial(t)
			_, _ = io.WriteString(w, last)
			if i%2 == 0 {
				if c, ok := w.Conn.(*net.TCPConn); ok {
					_ = c.SetLinger(0) // a reset
				}
			}
			_ = w.Close()
		}
	}
	for d.Stats().Connections > 0 { // until the test's own timeout
		runtime.Gosched()
	}
}

func TestShutdownAnswersWhatHasArrived(t *testing.T) {
	t.Parallel()
	d := open(t)
	idle, half := d.dial(t), d.dial(t)
	idle.do("PING")
	half.send("PING\r\nPIN")
	if got := half.answer(); got != "+PONG" {
		t.Error(got)
	}
	if err := d.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	idle.ends()
	half.ends()
	if _, err := net.Dial("tcp", d.addr); err == nil {
		t.Error("it still listens")
	}
}

// A command sent before Shutdown is answered, even if the server has not read it yet.
func TestShutdownAnswersWhatWasSent(t *testing.T) {
	t.Parallel()
	for range 20 {
		d := open(t)
		var peers [8]*wire
		for i := range peers {
			peers[i] = d.dial(t)
			peers[i].do("PING")
		}
		for _, w := range peers {
			w.send("PING\r\n")
		}
		if err := d.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		for _, w := range peers {
			if got := w.answer(); got != "+PONG" {
				t.Fatal(got)
			}
			w.ends()
		}
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	cert, pool := certificate(t)
	config := &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool, MinVersion: tls.VersionTLS13}
	d := open(t, hasty, func(o *resp.Options) { o.TLS = config })
	plain := d.dial(t)
	d.tls = &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS13}
	w := d.dial(t)
	w.send(strings.Repeat("CL.THROTTLE k 1 1 60\r\n", 3) + "*x\r\n")
	for _, want := range []string{"[0 2 1 -1 60]", "[0 2 0 -1 120]", "[1 2 0 60 120]", "-ERR Protocol error: invalid multibulk length"} {
		if got := w.answer(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	w.ends()
	// A client without a TLS handshake is disconnected, and its commands are ignored.
	_, _ = io.Copy(io.Discard, plain.r)
	plain = (&door{addr: d.addr}).dial(t)
	plain.send("CL.THROTTLE k 1 1 60\r\n")
	if rest, _ := io.ReadAll(plain.r); bytes.Contains(rest, []byte("*5")) {
		t.Errorf("plain text was answered: %q", rest)
	}
}

func TestMutualTLS(t *testing.T) {
	t.Parallel()
	cert, pool := certificate(t)
	config := &tls.Config{
		Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	}
	d := open(t, func(o *resp.Options) { o.TLS = config })
	d.tls = &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS13}
	nobody := d.dial(t)
	_, _ = io.WriteString(nobody, "PING\r\n")
	if got, err := readAnswer(nobody.r); err == nil {
		t.Errorf("without a certificate: %s", got)
	}
	d.tls.Certificates = []tls.Certificate{cert}
	if got := d.dial(t).do("PING"); got != "+PONG" {
		t.Error(got)
	}
}

// certificate returns a self-signed certificate for localhost.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// letter is a connection whose input is fixed and arrives in pieces, and that accepts
// every answer. ServeConn serves it in the caller's goroutine: with sockets, fuzzing ran
// out of ports and mistook scheduling for new coverage.
type letter struct {
	input  []byte
	piece  int
	answer bytes.Buffer
}

func (l *letter) Read(p []byte) (int, error) {
	if len(l.input) == 0 {
		return 0, io.EOF
	}
	n := copy(p, l.input[:min(l.piece, len(l.input))])
	l.input = l.input[n:]
	return n, nil
}

func (l *letter) Write(p []byte) (int, error) { return l.answer.Write(p) }
func (*letter) Close() error                  { return nil }
func (*letter) CloseWrite() error             { return nil }
func (*letter) LocalAddr() net.Addr           { return &net.TCPAddr{IP: net.IPv6loopback, Port: 6380} }

func (*letter) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv6loopback, Port: 4711} }
func (*letter) SetDeadline(time.Time) error      { return nil }
func (*letter) SetReadDeadline(time.Time) error  { return nil }
func (*letter) SetWriteDeadline(time.Time) error { return nil }

// Whatever a client sends, in whatever pieces, it gets complete answers, and the server
// still answers the next client.
func FuzzServer(f *testing.F) {
	d := open(f, func(o *resp.Options) { o.MaxBulk, o.MaxCommand, o.MaxArgs = 64, 256, 16 })
	for _, input := range asRedis {
		f.Add([]byte(input), uint16(4096))
	}
	f.Add([]byte(command("CL.THROTTLE", "k", "1", "2", "3", "4")), uint16(1))
	f.Add([]byte(command("HG.MCHECK", "2", "api", "5", "4", "api", "1", "user", "ann")), uint16(7))
	f.Add([]byte("HELLO 3 AUTH default x\r\nHG.CHECK api client_ip ::1\r\nCLIENT LIST\r\nINFO\r\n"), uint16(20))
	f.Fuzz(func(t *testing.T, input []byte, piece uint16) {
		l := &letter{input: input, piece: 1 + int(piece)}
		d.ServeConn(l)
		r := bufio.NewReader(&l.answer)
		for _, end := r.Peek(1); end == nil; _, end = r.Peek(1) {
			if _, err := readAnswer(r); err != nil {
				t.Fatalf("%.100q: %v", input, err)
			}
		}
		next := &letter{input: []byte("PING\r\n"), piece: 6}
		if d.ServeConn(next); next.answer.String() != "+PONG\r\n" {
			t.Errorf("after %.100q: %q", input, &next.answer)
		}
	})
}

// Announced lengths take no memory before the data arrives, and clients that send
// nothing more are disconnected.
func TestAnnouncementsCostNothing(t *testing.T) {
	d := open(t, hasty, func(o *resp.Options) { o.ReadTimeout = 2 * time.Second })
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var all []*wire
	for range 50 {
		for _, head := range []string{
			"*1048576\r\n", "*1\r\n$536870912\r\n", "*3\r\n$11\r\nCL.THROTTLE\r\n$536870912\r\nk", "*1048576\r\n$4\r\nPING\r\n$536870912\r\nabc", "*2\r\n$4\r\nPI",
		} {
			w := d.dial(t)
			w.send(head)
			all = append(all, w)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 32<<20 {
		t.Errorf("%d connections take %d MiB", len(all), grown>>20)
	}
	if got := d.dial(t).do("PING"); got != "+PONG" {
		t.Errorf("with them: %s", got)
	}
	for _, w := range all {
		// Some get an error first.
		if rest, err := io.ReadAll(w.r); err != nil && !errors.Is(err, syscall.ECONNRESET) || len(rest) > 200 {
			t.Errorf("%d bytes, %v", len(rest), err)
		}
	}
}

// A pipeline is answered in order up to QUIT; what follows is ignored.
func TestQuitInThePipeline(t *testing.T) {
	t.Parallel()
	w := open(t).dial(t)
	var many strings.Builder
	for i := range 10_000 {
		many.WriteString(command("ECHO", fmt.Sprint(i)))
	}
	go func() {
		_, _ = io.WriteString(w, many.String()+command("QUIT")+many.String()) // it may fail after QUIT
	}()
	for i := range 10_000 {
		if got, want := w.answer(), fmt.Sprintf("%q", fmt.Sprint(i)); got != want {
			t.Fatalf("answer %d: %s", i, got)
		}
	}
	if got := w.answer(); got != "+OK" {
		t.Error(got)
	}
	w.ends()
}
