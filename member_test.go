package headgate_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// TestMemberOfIsSipHash: the numbers are those of the paper's reference implementation,
// of which a Member is the first 52 bits. They must never change: stores keep them.
func TestMemberOfIsSipHash(t *testing.T) {
	var secret [16]byte
	for i := range secret {
		secret[i] = byte(i)
	}
	text := make([]byte, 64)
	for i := range text {
		text[i] = byte(i)
	}
	for length, want := range map[int][8]byte{
		0:  {0x31, 0x0e, 0x0e, 0xdd, 0x47, 0xdb, 0x6f, 0x72},
		1:  {0xfd, 0x67, 0xdc, 0x93, 0xc5, 0x39, 0xf8, 0x74},
		7:  {0x37, 0xd1, 0x01, 0x8b, 0xf5, 0x00, 0x02, 0xab},
		8:  {0x62, 0x24, 0x93, 0x9a, 0x79, 0xf5, 0xf5, 0x93},
		15: {0xe5, 0x45, 0xbe, 0x49, 0x61, 0xca, 0x29, 0xa1},
		63: {0x72, 0x45, 0x06, 0xeb, 0x4c, 0x32, 0x8a, 0x95},
	} {
		if got := store.MemberOf(secret, string(text[:length])); got != binary.LittleEndian.Uint64(want[:])>>12 {
			t.Errorf("%d bytes: %x", length, got)
		}
	}
	if n := testing.AllocsPerRun(100, func() { store.MemberOf(secret, "somebody@example.com") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestMembersDiffer: values that are alike, and a value under two secrets.
func TestMembersDiffer(t *testing.T) {
	seen := map[uint64]string{}
	for i := range 100_000 {
		value := fmt.Sprint(i)
		m := store.MemberOf([16]byte{}, value)
		if was, ok := seen[m]; ok || m == 0 || m >= 1<<52 {
			t.Fatalf("%q is %d, as %q", value, m, was)
		}
		seen[m] = value
	}
	if store.MemberOf([16]byte{1}, "a") == store.MemberOf([16]byte{2}, "a") {
		t.Error("the secret makes no difference")
	}
}

func TestAllowMember(t *testing.T) {
	ctx, limit := t.Context(), headgate.PerDay(2).WithAlgorithm(headgate.Distinct)
	limiter := headgate.New(memory.New(), headgate.WithSecret([16]byte{9}))
	for i, want := range []struct {
		value   string
		allowed bool
		granted int64
	}{{"ann", true, 1}, {"bob", true, 1}, {"ann", true, 0}, {"eve", false, 0}, {"bob", true, 0}, {"", false, 0}} {
		d, err := limiter.AllowMember(ctx, "203.0.113.7", want.value, limit)
		if err != nil || d.Allowed != want.allowed || d.Granted != want.granted {
			t.Errorf("request %d, of %q: %+v, %v", i, want.value, d, err)
		}
	}
	if d, err := limiter.AllowMember(ctx, "203.0.113.8", "", limit); err != nil || d.Granted != 1 {
		t.Errorf("the empty value is a value: %+v, %v", d, err)
	}
}

// shared is a store that other processes may use too.
type shared struct{ store.Store }

// TestSharedValuesNeedASecret: a program that forgets the secret learns it from the first
// call, whatever its failure policy.
func TestSharedValuesNeedASecret(t *testing.T) {
	limit := headgate.PerDay(2).WithAlgorithm(headgate.Distinct)
	d, err := headgate.New(shared{memory.New()}).AllowMember(t.Context(), "k", "ann", limit)
	if !errors.Is(err, store.ErrNoSecret) || d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
	d, err = headgate.New(shared{memory.New()}, headgate.WithSecret([16]byte{9})).AllowMember(t.Context(), "k", "ann", limit)
	if err != nil || !d.Allowed {
		t.Errorf("with a secret: %+v, %v", d, err)
	}
	if _, err := headgate.New(nil).AllowMember(t.Context(), "k", "ann", limit); !errors.Is(err, store.ErrNoStore) {
		t.Errorf("without a store: %v", err)
	}
}

// TestLimitOfValuesWithoutAValue: a program that forgets the value gets an error and a
// refusal, not a limit that counts everybody as one.
func TestLimitOfValuesWithoutAValue(t *testing.T) {
	limiter := headgate.New(memory.New())
	for range 2 {
		d, err := limiter.Allow(t.Context(), "203.0.113.7", headgate.PerDay(2).WithAlgorithm(headgate.Distinct))
		if !errors.Is(err, store.ErrNoMember) || d.Allowed || d.Reason != headgate.ReasonFailClosed {
			t.Errorf("%+v, %v", d, err)
		}
	}
}

func ExampleLimiter_AllowMember() {
	signups := headgate.PerDay(2).WithAlgorithm(headgate.Distinct)
	limiter := headgate.New(memory.New())
	for _, account := range []string{"ann", "ann", "bob", "eve", "ann"} {
		d, _ := limiter.AllowMember(context.Background(), "203.0.113.7", account, signups)
		fmt.Println(account, d.Allowed, d.Remaining)
	}
	// Output:
	// ann true 1
	// ann true 1
	// bob true 0
	// eve false 0
	// ann true 0
}
