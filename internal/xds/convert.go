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

	"github.com/headgate/headgate/rules"
)

// SourcePrefix begins the names of rule files that came over xDS; the name of
// the resource follows.
const SourcePrefix = "xds:"

// maxDepth is how deep descriptors may be nested.
const maxDepth = 32

// Sources turns the resources of one snapshot into rule files of the descriptor
// form, sorted by name, since control planes send them in any order.
func Sources(resources []*anypb.Any) ([]rules.Source, error) {
	sources := make([]rules.Source, 0, len(resources))
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
	slices.SortStableFunc(sources, func(a, b rules.Source) int { return cmp.Compare(a.Name, b.Name) })
	return sources, nil
}

// unpack returns the configuration in r, which a control plane may have wrapped
// once more to give it a name or a version.
func unpack(r *anypb.Any) (*conf.RateLimitConfig, error) {
	if r.MessageIs((*discovery.Resource)(nil)) {
		var wrapper discovery.Resource
		if err := r.UnmarshalTo(&wrapper); err != nil {
			return nil, err
		}
		r = wrapper.GetResource()
	}
	if r.GetTypeUrl() != TypeURL {
		return nil, fmt.Errorf("it is a %q, want %s", r.GetTypeUrl(), TypeURL)
	}
	config := new(conf.RateLimitConfig)
	if err := r.UnmarshalTo(config); err != nil {
		return nil, err
	}
	return config, nil
}

// toSource writes config as a rule file.
func toSource(config *conf.RateLimitConfig) (rules.Source, error) {
	name := SourcePrefix + cmp.Or(config.GetName(), config.GetDomain())
	w := writer{}
	w.printf(0, "domain: %s\n", quoted(config.GetDomain()))
	if err := w.descriptors(config.GetDescriptors(), 0); err != nil {
		return rules.Source{}, fmt.Errorf("%s: %w", name, err)
	}
	return rules.Source{Name: name, Data: w.text.Bytes()}, nil
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
			return errors.New("there is an empty descriptor")
		}
		w.printf(depth, "  - key: %s\n", quoted(d.GetKey()))
		w.field(depth, "value", d.GetValue())
		if limit := d.GetRateLimit(); limit != nil {
			w.limit(limit, depth)
		}
		w.modes(d, depth)
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

// modes writes the switches that are on.
func (w *writer) modes(d *conf.RateLimitDescriptor, depth int) {
	for _, mode := range []struct {
		key string
		on  bool
	}{
		{"shadow_mode", d.GetShadowMode()}, {"detailed_metric", d.GetDetailedMetric()}, {"quota_mode", quotaMode(d)},
	} {
		if mode.on {
			w.printf(depth, "    %s: true\n", mode.key)
		}
	}
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
	switch u {
	case conf.RateLimitUnit_SECOND:
		return "second"
	case conf.RateLimitUnit_MINUTE:
		return "minute"
	case conf.RateLimitUnit_HOUR:
		return "hour"
	case conf.RateLimitUnit_DAY:
		return "day"
	case 5:
		return "month"
	case 6:
		return "year"
	case 7:
		return "week"
	case conf.RateLimitUnit_UNKNOWN:
	}
	return quoted(strconv.Itoa(int(u)))
}

// quotaField is quota_mode in a descriptor; it is newer than the generated
// code, which keeps it among the fields it does not know.
const quotaField protowire.Number = 7

// quotaMode finds quota_mode. Of a field that is there twice the last counts.
func quotaMode(m proto.Message) (set bool) {
	unknown := []byte(m.ProtoReflect().GetUnknown())
	for len(unknown) > 0 {
		number, kind, n := protowire.ConsumeTag(unknown)
		if n < 0 {
			return set
		}
		value := unknown[n:]
		size := protowire.ConsumeFieldValue(number, kind, value)
		if size < 0 {
			return set
		}
		if number == quotaField && kind == protowire.VarintType {
			v, _ := protowire.ConsumeVarint(value)
			set = v != 0
		}
		unknown = value[size:]
	}
	return set
}
