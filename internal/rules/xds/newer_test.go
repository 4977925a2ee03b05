package xds_test

import (
	"strings"
	"testing"

	conf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/rules/xds"
)

// TestMetadataOfADescriptor: field 8, which the generated code does not know.
func TestMetadataOfADescriptor(t *testing.T) {
	metadata, err := structpb.NewStruct(map[string]any{"plan": "free", "n": 3, "deep": map[string]any{"list": []any{true, "a: b"}}})
	if err != nil {
		t.Fatal(err)
	}
	wire, err := proto.Marshal(metadata)
	if err != nil {
		t.Fatal(err)
	}
	snapshot := func(content []byte) []*anypb.Any {
		d := &conf.RateLimitDescriptor{Key: "k", RateLimit: &conf.RateLimitPolicy{Unit: conf.RateLimitUnit_DAY, RequestsPerUnit: 5}}
		d.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 8, protowire.BytesType), content))
		r, err := anypb.New(&conf.RateLimitConfig{Domain: "d", Descriptors: []*conf.RateLimitDescriptor{d}})
		if err != nil {
			t.Fatal(err)
		}
		return []*anypb.Any{r}
	}
	sources, err := xds.Sources(snapshot(wire))
	if err != nil {
		t.Fatal(err)
	}
	set, diagnostics := rulefile.Parse(sources...)
	if set == nil {
		t.Fatal(diagnostics)
	}
	got, err := structpb.NewStruct(set.Rules()[0].Metadata)
	if err != nil || !proto.Equal(got, metadata) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := xds.Sources(snapshot([]byte{0xff})); err == nil || !strings.Contains(err.Error(), "metadata") {
		t.Errorf("a damaged message: %v", err)
	}
}
