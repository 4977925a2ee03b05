package rls

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	envoy "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store/memory"
)

func fuzzed(t testing.TB) *Service {
	t.Helper()
	rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "f.yaml", Data: []byte(`
domain: api
limits:
  - {name: user, match: {attributes: {user: {present: true}}}, key: [user, client_ip], rate: 3/minute}
  - {name: path, match: {path: /a/**}, key: [path], rate: 2/second, algorithm: sliding_window}
`)})
	if rs == nil {
		t.Fatalf("rules: %v", diagnostics)
	}
	clients, err := client.New(client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return New(Options{
		Asker:           admission.Asker{Engine: engine.New(memory.New(memory.WithMaxKeys(1000)), rs), Clients: clients, Logger: slog.New(slog.DiscardHandler)},
		DynamicMetadata: true, Legacy: &LegacyHeaders{Limit: "RateLimit-Limit"},
	})
}

func seeds(f *testing.F) (wire, text [][]byte) {
	f.Helper()
	d := &common.RateLimitDescriptor{
		Entries:        []*common.RateLimitDescriptor_Entry{{Key: "user", Value: "ann"}, {Key: "remote_address", Value: "::1"}},
		Limit:          &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5, Unit: 2, UnitMultiplier: wrapperspb.UInt32(3)},
		HitsAddend:     wrapperspb.UInt64(math.MaxUint64),
		IsNegativeHits: true,
	}
	path := &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: "path", Value: "/a/../b"}, {}}}
	for _, r := range []*envoy.RateLimitRequest{
		{Domain: "api", Descriptors: []*common.RateLimitDescriptor{d, path, {}}, HitsAddend: 7},
		{Domain: "api", Descriptors: []*common.RateLimitDescriptor{path}},
		{Domain: "other", Descriptors: []*common.RateLimitDescriptor{{}}},
		{},
	} {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		j, err := protojson.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		wire, text = append(wire, b), append(text, j)
	}
	wire = append(wire, []byte{0x0a, 1, 0xff}, []byte{0x12, 4, 0x1a, 0, 0x1a, 0}, []byte{0x13, 0x14}, []byte{0x1d, 1, 2, 3, 4}, []byte("\xc0\xc0\xc0\xc000"),
		[]byte("\n\x03api\x12\x0b\n\x09\n\x04user\x12\x01\xff"))
	return wire, text
}

// FuzzDecode compares decode with protobuf: both accept the same messages with the same
// values, except that decode has limits.
func FuzzDecode(f *testing.F) {
	wire, _ := seeds(f)
	for _, b := range wire {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var want envoy.RateLimitRequest
		wrong := proto.Unmarshal(b, &want)
		var got request
		err := got.decode(bytes.Clone(b))
		if err != nil {
			entries := 0
			for _, d := range want.GetDescriptors() {
				entries += len(d.GetEntries())
			}
			if wrong == nil && len(want.GetDescriptors()) <= maxDescriptors && entries <= maxEntries {
				t.Fatalf("refused what protobuf accepts: %v", err)
			}
			return
		}
		if wrong != nil {
			if !holdsBytes(&got) {
				t.Fatalf("accepted what protobuf refuses: %v", wrong)
			}
			return
		}
		if got.domain != want.GetDomain() || got.hits != want.GetHitsAddend() || len(got.descriptors) != len(want.GetDescriptors()) {
			t.Fatalf("%+v, want %v", got, &want)
		}
		for i := range got.descriptors {
			compareDescriptor(t, &got.descriptors[i], want.GetDescriptors()[i])
		}
	})
}

// holdsBytes reports whether a value is not valid UTF-8, which protobuf rejects in Go and
// only warns about in Envoy.
func holdsBytes(r *request) bool {
	for i := range r.descriptors {
		for _, e := range r.descriptors[i].Given.Entries {
			if !utf8.ValidString(e.Value) {
				return true
			}
		}
	}
	return false
}

// Envoy passes on the bytes of a client's header field unchanged. Invalid UTF-8 is counted
// like any other value, and the limits of other descriptors apply.
func TestValuesOfAnyBytes(t *testing.T) {
	s := fuzzed(t)
	ask := func(value string) (string, bool) {
		entry := append([]byte{0x0a, 4}, "user"...)
		entry = append(append(entry, 0x12, byte(len(value))), value...)
		descriptor := append([]byte{0x0a, byte(len(entry))}, entry...)
		b := append([]byte{0x0a, 3}, "api"...)
		b = append(append(b, 0x12, byte(len(descriptor))), descriptor...)
		c, _ := s.calls.Get().(*call)
		defer c.release()
		c.wrong = c.request.decode(b)
		if err := s.answer(t.Context(), c); err != nil {
			t.Fatalf("%q: %v", value, err)
		}
		var response envoy.RateLimitResponse
		if err := proto.Unmarshal(c.out, &response); err != nil {
			t.Fatalf("%q: the answer is no message: %v", value, err)
		}
		told := fmt.Sprint(response.GetDynamicMetadata().GetFields()["descriptors"])
		return told, response.GetOverallCode() == envoy.RateLimitResponse_OK
	}
	for _, value := range []string{"a\xff", "a\xfe"} {
		passed := 0
		for range 10 {
			if told, ok := ask(value); ok {
				passed++
			} else if !strings.Contains(told, "user=a\uFFFD") {
				t.Errorf("metadata: %s", told)
			}
		}
		if passed != 3 {
			t.Errorf("%q: %d passed, want 3", value, passed)
		}
	}
}

func compareDescriptor(t *testing.T, got *descriptor, want *common.RateLimitDescriptor) {
	t.Helper()
	l, o := want.GetLimit(), &got.override
	if len(got.Given.Entries) != len(want.GetEntries()) || got.negative != want.GetIsNegativeHits() ||
		got.hasHits != (want.GetHitsAddend() != nil) || got.hits != want.GetHitsAddend().GetValue() ||
		o.there != (l != nil) || o.requests != l.GetRequestsPerUnit() || o.unit != int32(l.GetUnit()) ||
		o.hasMultiplier != (l.GetUnitMultiplier() != nil) || o.multiplier != l.GetUnitMultiplier().GetValue() {
		t.Fatalf("%+v, want %v", got, want)
	}
	for i, e := range want.GetEntries() {
		if got.Given.Entries[i].Key != e.GetKey() || got.Given.Entries[i].Value != e.GetValue() {
			t.Fatalf("entry %d is %+v, want %v", i, got.Given.Entries[i], e)
		}
	}
}

// FuzzDoor sends anything to the service: it answers each descriptor or returns an error,
// and the answer is a valid message.
func FuzzDoor(f *testing.F) {
	wire, _ := seeds(f)
	for _, b := range wire {
		f.Add(b)
	}
	s := fuzzed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		c, _ := s.calls.Get().(*call)
		defer c.release()
		c.wrong = c.request.decode(bytes.Clone(b))
		if err := s.answer(context.Background(), c); err != nil {
			return
		}
		var response envoy.RateLimitResponse
		if err := proto.Unmarshal(c.out, &response); err != nil {
			t.Fatalf("the answer is no message: %v", err)
		}
		if len(response.GetStatuses()) != len(c.request.descriptors) || response.GetOverallCode() == envoy.RateLimitResponse_UNKNOWN {
			t.Fatalf("%v for %d descriptors", &response, len(c.request.descriptors))
		}
		// Fields are in order, and defaults are not encoded.
		again, err := proto.MarshalOptions{Deterministic: true}.Marshal(&response)
		if err != nil || len(again) != len(c.out) {
			t.Fatalf("%x, want %x (%v)", c.out, again, err)
		}
	})
}

// FuzzJSON posts anything to /json.
func FuzzJSON(f *testing.F) {
	_, text := seeds(f)
	for _, b := range text {
		f.Add(b)
	}
	f.Add([]byte(`{"domain":"api","descriptors":[{"entries":[{"key":"user"}],"hitsAddend":"1"}]}`))
	h := fuzzed(f).JSON(nil)
	f.Fuzz(func(t *testing.T, b []byte) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/json", bytes.NewReader(b)))
		switch w.Code {
		case http.StatusOK, http.StatusTooManyRequests:
			var response envoy.RateLimitResponse
			if err := protojson.Unmarshal(w.Body.Bytes(), &response); err != nil {
				t.Fatalf("%s: %v", w.Body, err)
			}
			if over := response.GetOverallCode() == envoy.RateLimitResponse_OVER_LIMIT; over != (w.Code == http.StatusTooManyRequests) {
				t.Fatalf("%d for %s", w.Code, response.GetOverallCode())
			}
		case http.StatusBadRequest:
		default:
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
	})
}
