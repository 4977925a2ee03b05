package rls

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/engine"
)

// encodeMetadata writes dynamic_metadata: the request, the exhausted quotas, and the
// metadata of the rules of descriptors that are within their limit. The format is that
// of envoyproxy/ratelimit.
func (c *call) encodeMetadata(v *engine.Verdict) {
	r := &c.request
	descriptors := make([]any, len(r.descriptors))
	for i := range r.descriptors {
		descriptors[i] = r.descriptors[i].metadata()
	}
	fields := map[string]any{"domain": r.domain, "descriptors": descriptors}
	if r.hits != 0 {
		fields["hitsAddend"] = r.hits
	}
	switch outcome := v.Outcome(); outcome {
	case engine.Delayed, engine.ShadowBanned, engine.Queued:
		fields["action"] = outcome.Action()
		if delay := v.Delay; delay > 0 {
			fields["delay_ms"] = answer.Milliseconds(delay)
		}
	case engine.Allowed, engine.Refused, engine.ShadowRefused, engine.Marked, engine.Outcomes:
	}
	quotaFields(fields, v.Parts())
	told, err := structpb.NewStruct(fields)
	if err != nil {
		return // see below
	}
	if merged := passedMetadata(v); len(merged.GetFields()) > 0 {
		told.Fields["metadata"] = structpb.NewStructValue(merged)
	}
	b, err := proto.Marshal(told)
	if err != nil {
		return // cannot happen: loading the rules checked their metadata
	}
	c.out = protowire.AppendTag(c.out, 6, protowire.BytesType)
	c.out = protowire.AppendBytes(c.out, b)
}

// quotaFields adds whether any limit that applies is in quota mode, and the indexes of
// the descriptors whose quotas have run out.
func quotaFields(fields map[string]any, parts []engine.Verdict) {
	enabled := false
	var violations []any
	for i := range parts {
		over := false
		for _, r := range parts[i].Results() {
			if quota := r.Rule.QuotaMode && !r.Rule.Limit.Rule().Unlimited && !r.Hidden(); quota {
				enabled, over = true, over || !r.Decision.Allowed
			}
		}
		if over {
			violations = append(violations, i)
		}
	}
	fields["quotaModeEnabled"] = enabled
	if len(violations) > 0 {
		fields["quotaModeViolations"] = violations
	}
}

func (d *descriptor) metadata() map[string]any {
	entries := make([]any, len(d.Given.Entries))
	for i, e := range d.Given.Entries {
		entries[i] = strings.ToValidUTF8(e.Key+"="+e.Value, "\uFFFD")
	}
	fields := map[string]any{"entries": entries}
	if o := &d.override; o.there {
		fields["limit"] = o.String()
	}
	if d.hasHits {
		fields["hitsAddend"] = d.hits
	}
	return fields
}

// String returns o in protobuf's text form, such as requests_per_unit:5 unit:MINUTE.
func (o *override) String() string {
	var b strings.Builder
	if o.requests != 0 { // protobuf leaves out 0
		fmt.Fprintf(&b, "requests_per_unit:%d ", o.requests)
	}
	b.WriteString("unit:" + unitOf(o.unit).name)
	if o.hasMultiplier {
		fmt.Fprintf(&b, " unit_multiplier:%d", o.multiplier)
	}
	return b.String()
}

// passedMetadata merges the metadata of the rules of all allowed descriptors. If they
// contradict each other, the first counts.
func passedMetadata(v *engine.Verdict) *structpb.Struct {
	merged := &structpb.Struct{}
	parts := v.Parts()
	for i := range parts {
		if !parts[i].Allowed {
			continue
		}
		for _, r := range parts[i].Results() {
			if len(r.Rule.Metadata) == 0 {
				continue
			}
			if m, err := structpb.NewStruct(r.Rule.Metadata); err == nil {
				merge(merged, m)
			}
		}
	}
	return merged
}

// merge adds the fields of src that dst does not have.
func merge(dst, src *structpb.Struct) {
	for key, value := range src.GetFields() {
		have, ok := dst.GetFields()[key]
		switch {
		case !ok:
			if dst.Fields == nil {
				dst.Fields = map[string]*structpb.Value{}
			}
			dst.Fields[key] = value
		case have.GetStructValue() != nil && value.GetStructValue() != nil:
			merge(have.GetStructValue(), value.GetStructValue())
		}
	}
}
