package xds_test

import (
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	conf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/rules/xds"
)

func packed(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// full has everything that the message can say.
func full() *conf.RateLimitConfig {
	quota := &conf.RateLimitDescriptor{Key: "tenant", RateLimit: &conf.RateLimitPolicy{Unit: 6, RequestsPerUnit: 5}}
	quota.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 7, protowire.VarintType), 1))
	return &conf.RateLimitConfig{Name: "all", Domain: "shop: #1", Descriptors: []*conf.RateLimitDescriptor{
		{
			Key: "path", Value: "/api/\"quoted\"/*", ShadowMode: true, DetailedMetric: true,
			RateLimit: &conf.RateLimitPolicy{
				Unit: conf.RateLimitUnit_SECOND, RequestsPerUnit: 4294967295, Name: "yes",
				Replaces: []*conf.RateLimitReplace{{Name: "a"}, {Name: "- b"}},
			},
			Descriptors: []*conf.RateLimitDescriptor{{
				Key: "remote_address", Value: "10",
				Descriptors: []*conf.RateLimitDescriptor{{Key: "x", RateLimit: &conf.RateLimitPolicy{Unlimited: true}}},
			}},
		},
		quota,
		{Key: "closed", RateLimit: &conf.RateLimitPolicy{Unit: conf.RateLimitUnit_DAY}},
	}}
}

const fullText = `domain: "shop: #1"
descriptors:
  - key: "path"
    value: "/api/\"quoted\"/*"
    rate_limit: {unit: second, requests_per_unit: 4294967295, name: "yes", replaces: [{name: "a"}, {name: "- b"}]}
    shadow_mode: true
    detailed_metric: true
    descriptors:
      - key: "remote_address"
        value: "10"
        descriptors:
          - key: "x"
            rate_limit: {unlimited: true}
  - key: "tenant"
    rate_limit: {unit: year, requests_per_unit: 5}
    quota_mode: true
  - key: "closed"
    rate_limit: {unit: day, requests_per_unit: 0}
`

func TestSourcesAreRuleFiles(t *testing.T) {
	sources, err := xds.Sources([]*anypb.Any{
		packed(t, &discovery.Resource{Name: "wrapped", Resource: packed(t, full())}),
		packed(t, &conf.RateLimitConfig{Domain: "empty"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(sources) != 2 || sources[0].Name != "xds:all" || string(sources[0].Data) != fullText {
		t.Errorf("%s:\n%s\nwant xds:all:\n%s", sources[0].Name, sources[0].Data, fullText)
	}
	set, diagnostics := rulefile.Parse(sources...)
	if set == nil {
		t.Fatal(diagnostic.Problems(diagnostics))
	}
	var quota, shadow int
	for _, r := range set.Rules() {
		if r.QuotaMode {
			quota++
		}
		if r.Mode == rules.Shadow {
			shadow++
		}
	}
	if quota != 1 || shadow != 1 || len(set.Rules()) != 4 || len(set.Domains()) != 2 {
		t.Errorf("%d rules, %d in quota mode, %d shadowed, domains %q", len(set.Rules()), quota, shadow, set.Domains())
	}
}

func TestWrongResources(t *testing.T) {
	deep := &conf.RateLimitDescriptor{Key: "k"}
	for range 100 {
		deep = &conf.RateLimitDescriptor{Key: "k", Descriptors: []*conf.RateLimitDescriptor{deep}}
	}
	rows := []struct {
		resource *anypb.Any
		want     string
	}{
		{packed(t, &core.Node{}), "resource 0: the type is"},
		{packed(t, &discovery.Resource{}), `resource 0: the type is ""`},
		{nil, `resource 0: the type is ""`},
		{&anypb.Any{TypeUrl: xds.TypeURL, Value: []byte{0xff}}, "resource 0: "},
		{packed(t, &conf.RateLimitConfig{Name: "n", Descriptors: []*conf.RateLimitDescriptor{deep}}), "xds:n: descriptors are nested deeper than 32"},
	}
	for _, row := range rows {
		if _, err := xds.Sources([]*anypb.Any{row.resource}); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%v, want %q", err, row.want)
		}
	}
}

// What the rules refuse names the resource and what in it.
func TestRulesRefuseByName(t *testing.T) {
	limit := func(p *conf.RateLimitPolicy) *conf.RateLimitConfig {
		return &conf.RateLimitConfig{Name: "n", Domain: "d", Descriptors: []*conf.RateLimitDescriptor{{Key: "user", RateLimit: p}}}
	}
	rows := []struct {
		config *conf.RateLimitConfig
		want   string
	}{
		{limit(&conf.RateLimitPolicy{RequestsPerUnit: 1}), `"unit" is missing`},
		{limit(&conf.RateLimitPolicy{Unit: 99, RequestsPerUnit: 1}), `99`},
		{limit(&conf.RateLimitPolicy{Unit: conf.RateLimitUnit_DAY, Unlimited: true}), `unlimited`},
		{limit(&conf.RateLimitPolicy{Unit: conf.RateLimitUnit_DAY, Replaces: []*conf.RateLimitReplace{{}}}), `name`},
		{&conf.RateLimitConfig{Name: "n"}, "domain"},
		{&conf.RateLimitConfig{Name: "n", Domain: "d", Descriptors: []*conf.RateLimitDescriptor{{}}}, "key"},
	}
	for _, row := range rows {
		sources, err := xds.Sources([]*anypb.Any{packed(t, row.config)})
		if err != nil {
			t.Fatal(err)
		}
		set, diagnostics := rulefile.Parse(sources...)
		text := diagnostic.Problems(diagnostics).Error()
		if set != nil || !strings.Contains(text, row.want) || !strings.HasPrefix(text, "xds:n:") {
			t.Errorf("%v: %q, want xds:n: and %q", row.config, text, row.want)
		}
	}
}

// Whatever the bytes, there is an error or text, and the rules do not fall
// over it.
func FuzzSources(f *testing.F) {
	for _, c := range []*conf.RateLimitConfig{full(), config("a", "b", 1), bad("a", "b"), {}} {
		data, err := proto.Marshal(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		sources, err := xds.Sources([]*anypb.Any{{TypeUrl: xds.TypeURL, Value: data}})
		if err != nil {
			return
		}
		set, diagnostics := rulefile.Parse(sources...)
		if set == nil && len(diagnostics) == 0 {
			t.Error("refused without a reason")
		}
		for _, d := range diagnostics {
			if strings.Contains(d.Message, "not valid YAML") {
				t.Errorf("text of ours that is no YAML: %s\n%s", d, sources[0].Data)
			}
		}
	})
}
