package xds

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	conf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/headgate/headgate/internal/rules/rulefile"
)

// SourcePrefix is the prefix of the names of rule files from xDS; the name of the
// resource follows.
const SourcePrefix = "xds:"

// maxDepth is how deeply descriptors may be nested.
const maxDepth = 32

// Sources turns the resources of one snapshot into rule files of the descriptor
// form, sorted by name, since control planes send them in any order.
func Sources(resources []*anypb.Any) ([]rulefile.Source, error) {
	sources := make([]rulefile.Source, 0, len(resources))
	for i, r := range resources {
		config, err := unpack(r)
		if err != nil {
			return nil, fmt.Errorf("resource %d: %w", i, err)
		}
		source, err := toSource(config)
		if err != nil {
			return nil, err
		}
		sources = append(sources, source)
	}
	slices.SortStableFunc(sources, func(a, b rulefile.Source) int { return cmp.Compare(a.Name, b.Name) })
	return sources, nil
}

// unpack returns the configuration in r, which a control plane may have wrapped to give
// it a name or a version.
func unpack(r *anypb.Any) (*conf.RateLimitConfig, error) {
	if r.MessageIs((*discovery.Resource)(nil)) {
		var wrapper discovery.Resource
		if err := r.UnmarshalTo(&wrapper); err != nil {
			return nil, err
		}
		r = wrapper.GetResource()
	}
	if r.GetTypeUrl() != TypeURL {
		return nil, fmt.Errorf("the type is %q, want %s", r.GetTypeUrl(), TypeURL)
	}
	config := new(conf.RateLimitConfig)
	if err := r.UnmarshalTo(config); err != nil {
		return nil, err
	}
	return config, nil
}

// toSource writes config as a rule file.
func toSource(config *conf.RateLimitConfig) (rulefile.Source, error) {
	name := SourcePrefix + cmp.Or(config.GetName(), config.GetDomain())
	w := writer{}
	w.printf(0, "domain: %s\n", quoted(config.GetDomain()))
	if err := w.descriptors(config.GetDescriptors(), 0); err != nil {
		return rulefile.Source{}, fmt.Errorf("%s: %w", name, err)
	}
	return rulefile.Source{Name: name, Data: w.text.Bytes()}, nil
}

// writer writes YAML.
type writer struct{ text bytes.Buffer }

func (w *writer) printf(depth int, format string, args ...any) {
	w.text.WriteString(strings.Repeat("    ", depth))
	fmt.Fprintf(&w.text, format, args...)
}

// quoted returns s as a YAML string; a JSON string is one.
func quoted(s string) string {
	text, err := json.Marshal(s)
	if err != nil { // it never is: s is a string
		return strconv.Quote(s)
	}
	return string(text)
}

// descriptors writes a list of descriptors and all below them.
func (w *writer) descriptors(list []*conf.RateLimitDescriptor, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("descriptors are nested deeper than %d", maxDepth)
	}
	if len(list) == 0 {
		w.printf(depth, "descriptors: []\n")
		return nil
	}
	w.printf(depth, "descriptors:\n")
	for _, d := range list {
		if d == nil {
			return errors.New("empty descriptor")
		}
		w.printf(depth, "  - key: %s\n", quoted(d.GetKey()))
		w.field(depth, "value", d.GetValue())
		if limit := d.GetRateLimit(); limit != nil {
			w.limit(limit, depth)
		}
		if err := w.modes(d, depth); err != nil {
			return fmt.Errorf("descriptor %q: %w", d.GetKey(), err)
		}
		if len(d.GetDescriptors()) > 0 {
			if err := w.descriptors(d.GetDescriptors(), depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *writer) field(depth int, key, value string) {
	if value != "" {
		w.printf(depth, "    %s: %s\n", key, quoted(value))
	}
}

// modes writes the switches that are on, and the metadata, in JSON, which is
// YAML.
func (w *writer) modes(d *conf.RateLimitDescriptor, depth int) error {
	more, err := newerOf(d)
	if err != nil {
		return err
	}
	for _, mode := range []struct {
		key string
		on  bool
	}{
		{"shadow_mode", d.GetShadowMode()}, {"detailed_metric", d.GetDetailedMetric()}, {"quota_mode", more.quota},
	} {
		if mode.on {
			w.printf(depth, "    %s: true\n", mode.key)
		}
	}
	if more.metadata == nil {
		return nil
	}
	text, err := more.metadata.MarshalJSON()
	if err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	w.printf(depth, "    metadata: %s\n", text)
	return nil
}

// limit writes a rate_limit on one line. In a message 0 and absent are the
// same, so a limit without a number refuses everything, as Envoy's service has
// it.
func (w *writer) limit(limit *conf.RateLimitPolicy, depth int) {
	var parts []string
	if limit.GetUnit() != conf.RateLimitUnit_UNKNOWN {
		parts = append(parts, "unit: "+unit(limit.GetUnit()))
	}
	if n := limit.GetRequestsPerUnit(); n > 0 || !limit.GetUnlimited() {
		parts = append(parts, "requests_per_unit: "+strconv.FormatUint(uint64(n), 10))
	}
	if limit.GetUnlimited() {
		parts = append(parts, "unlimited: true")
	}
	if limit.GetName() != "" {
		parts = append(parts, "name: "+quoted(limit.GetName()))
	}
	if len(limit.GetReplaces()) > 0 {
		names := make([]string, len(limit.GetReplaces()))
		for i, r := range limit.GetReplaces() {
			names[i] = "{name: " + quoted(r.GetName()) + "}"
		}
		parts = append(parts, "replaces: ["+strings.Join(names, ", ")+"]")
	}
	w.printf(depth, "    rate_limit: {%s}\n", strings.Join(parts, ", "))
}

// unit returns the name of a unit. The last three are newer than the generated
// code; a number that means nothing is left for the rules to refuse.
func unit(u conf.RateLimitUnit) string {
	names := [...]string{1: "second", 2: "minute", 3: "hour", 4: "day", 5: "month", 6: "year", 7: "week"}
	if u > conf.RateLimitUnit_UNKNOWN && int(u) < len(names) {
		return names[u]
	}
	return quoted(strconv.Itoa(int(u)))
}

// Fields of a descriptor that are newer than the generated code, which keeps
// them among those it does not know.
const (
	quotaField    protowire.Number = 7
	metadataField protowire.Number = 8
)

// newer has the fields that the generated code does not know.
type newer struct {
	quota    bool
	metadata *structpb.Struct // nil without
}

// newerOf finds them. The last of repeated switches counts; repeated messages are
// merged.
func newerOf(m proto.Message) (n newer, err error) {
	unknown := []byte(m.ProtoReflect().GetUnknown())
	for len(unknown) > 0 {
		number, kind, size := protowire.ConsumeTag(unknown)
		if size < 0 {
			return n, protowire.ParseError(size)
		}
		value := unknown[size:]
		if size = protowire.ConsumeFieldValue(number, kind, value); size < 0 {
			return n, protowire.ParseError(size)
		}
		switch {
		case number == quotaField && kind == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(value)
			n.quota = v != 0
		case number == metadataField && kind == protowire.BytesType:
			b, _ := protowire.ConsumeBytes(value)
			if n.metadata == nil {
				n.metadata = new(structpb.Struct)
			}
			if err := (proto.UnmarshalOptions{Merge: true}).Unmarshal(b, n.metadata); err != nil {
				return n, fmt.Errorf("metadata: %w", err)
			}
		}
		unknown = value[size:]
	}
	return n, nil
}
