//go:build linux

package redis_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/regions"
)

// island is a network namespace with a server, and a cable to it.
type island struct {
	*testing.T
	space, inside, addr string
}

// newIsland makes an island, or skips the test where that is not allowed.
func newIsland(t *testing.T) *island {
	t.Helper()
	n := os.Getpid() % 10_000
	i := &island{T: t, space: fmt.Sprintf("hgns%d", n), inside: fmt.Sprintf("hgi%d", n)}
	outside, net4 := fmt.Sprintf("hgo%d", n), fmt.Sprintf("10.%d.%d", 200+n/256%50, n%256)
	if out, err := exec.Command("ip", "netns", "add", i.space).CombinedOutput(); err != nil {
		t.Skipf("no network namespaces: %v %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", i.space).Run() }) // with the cable
	for _, args := range [][]string{
		{"link", "add", outside, "type", "veth", "peer", "name", i.inside},
		{"link", "set", i.inside, "netns", i.space},
		{"addr", "add", net4 + ".1/24", "dev", outside},
		{"link", "set", outside, "up"},
		{"-n", i.space, "addr", "add", net4 + ".2/24", "dev", i.inside},
		{"-n", i.space, "link", "set", i.inside, "up"},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Skipf("ip %v: %v %s", args, err, out)
		}
	}
	server := exec.Command("ip", "netns", "exec", i.space, redistest.Bin(t), "--port", "6379", "--bind", net4+".2", "--protected-mode", "no", "--save", "", "--dir", t.TempDir())
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	i.addr = net4 + ".2:6379"
	for end := time.Now().Add(comeback); ; wait(20 * time.Millisecond) {
		if conn, err := net.DialTimeout("tcp", i.addr, time.Second); err == nil {
			_ = conn.Close()
			return i
		}
		if time.Now().After(end) {
			t.Fatal("the server does not answer")
		}
	}
}

// cable plugs the cable in, or out: then packets vanish, and nobody gets a reset.
func (i *island) cable(state string) {
	i.Helper()
	if out, err := exec.Command("ip", "-n", i.space, "link", "set", i.inside, state).CombinedOutput(); err != nil {
		i.Fatalf("%v %s", err, out)
	}
}

// TestRegionsNoticeASilentCut: a Redis whose packets vanish is noticed soon,
// the other region keeps its part at its own speed, and both share again afterwards.
func TestRegionsNoticeASilentCut(t *testing.T) {
	t.Parallel()
	const n = 2000
	i := newIsland(t)
	home := redistest.Standalone(t)
	limit := headgate.LimitOf(headgate.Per(n, 30*24*time.Hour).WithAlgorithm(store.FixedWindow).Rule().InRegions(store.Regions{}))
	c := &continent{T: t, cost: newCosts("eu", "us"), stores: map[string][]*regions.Store{}}
	for name, at := range map[string][2]string{"eu": {home.Addr, i.addr}, "us": {i.addr, home.Addr}} {
		other := map[string]string{"eu": "us", "us": "eu"}[name]
		c.stores[name] = []*regions.Store{newRegion(t, name, redis.Options{Addresses: at[:1], Timeout: time.Second}, map[string]redis.Options{other: {Addresses: at[1:]}})}
	}
	eu := c.stores["eu"][0]
	stop, wg := make(chan struct{}), new(sync.WaitGroup)
	c.load("eu", limit, time.Millisecond, stop, wg)
	c.await(n/4, comeback) // a half of its part
	i.cable("down")
	began := time.Now()
	for eu.Stats()[0].Cut == 0 && time.Since(began) < comeback {
		wait(5 * time.Millisecond)
	}
	noticed := time.Since(began) // two seconds on an idle machine
	if noticed >= comeback {
		t.Errorf("the cut was not noticed within %s", comeback)
	}
	c.await(n/2, comeback)
	during := c.total()
	i.cable("up")
	began = time.Now()
	for eu.Stats()[0].Cut > 0 && time.Since(began) < 2*comeback {
		wait(5 * time.Millisecond)
	}
	back := time.Since(began)
	c.await(n, 2*comeback)
	wait(500 * time.Millisecond)
	close(stop)
	wg.Wait()
	if got := c.total(); got > n || got < n*9/10 || during < n/2 {
		t.Errorf("%d of %d were admitted, %d before the cure", got, n, during)
	}
	t.Logf("noticed after %s, back after %s, %d before the cure, %d of %d in all", noticed.Round(time.Millisecond), back.Round(time.Millisecond), during, c.total(), n)
}
