package history

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Fault is an error in the history of a key.
type Fault struct {
	Key  string
	What string // the error, in a sentence
}

// Report is the result of Check.
type Report struct {
	Keys, Ops int
	// Undecided are keys for which the search for an order took too long. They passed the
	// checks that need none.
	Undecided []string
	Faults    []Fault
}

// Options configure Check.
type Options struct {
	Patience time.Duration // how long to search for the order of one key
	Pictures string        // folder for a page per key without an order; none if empty
}

// Check checks h against the model.
func Check(h *History, o Options) (Report, error) {
	var report Report
	for _, p := range h.parts() {
		report.Keys++
		report.Ops += len(p.steps)
		report.Faults = append(report.Faults, p.bounds(h)...)
		ops := p.operations()
		switch porcupine.CheckOperationsTimeout(p.model.porcupine(), ops, o.Patience) {
		case porcupine.Ok:
			continue
		case porcupine.Unknown:
			report.Undecided = append(report.Undecided, p.key)
			continue
		case porcupine.Illegal:
		}
		fault := Fault{Key: p.key, What: "no order of these calls explains their answers"}
		if o.Pictures != "" {
			file, err := p.draw(ops, o)
			if err != nil {
				return report, err
			}
			fault.What += ": " + file
		}
		report.Faults = append(report.Faults, fault)
	}
	return report, nil
}

// part is the history of one key.
type part struct {
	key   string
	model *keyModel
	steps []*step
}

// parts divides the ops by key. What happened to the store happened to every key.
func (h *History) parts() []*part {
	byKey := make(map[string]*part)
	var all []*part
	for i := range h.Ops {
		if op := &h.Ops[i]; op.Key != "" && byKey[op.Key] == nil {
			p := &part{key: op.Key, model: &keyModel{jumps: len(h.Clock) > 0, memory: h.Memory, reach: h.Reach}}
			byKey[op.Key] = p
			all = append(all, p)
		}
	}
	for i := range h.Ops {
		op := &h.Ops[i]
		least, most := h.shifted(op.Call, op.Return)
		at := moment{op.Call - h.Slack + least, op.Return + h.Slack + most}
		if op.Key == "" {
			for _, p := range all {
				p.steps = append(p.steps, &step{Op: op, at: at})
			}
			continue
		}
		p := byKey[op.Key]
		in := &step{Op: op, at: at, crossed: h.crossed(op), lossy: h.lossy(op)}
		for _, name := range op.Limits {
			l := h.limit(name)
			j := slices.Index(p.model.limits, l)
			if j < 0 {
				j, p.model.limits = len(p.model.limits), append(p.model.limits, l)
			}
			in.mine = append(in.mine, j)
		}
		p.steps = append(p.steps, in)
	}
	for _, p := range all {
		slices.SortStableFunc(p.steps, func(a, b *step) int { return cmp.Compare(a.Call, b.Call) })
		peak := int64(0)
		for _, in := range p.steps {
			if in.Answer != nil {
				peak = max(peak, in.at.hi)
			}
			in.peak = peak
		}
	}
	return all
}

// crossed reports whether the store's clock was set after the op that this op settles.
func (h *History) crossed(op *Op) bool {
	if op.Of == 0 || len(h.Clock) == 0 {
		return false
	}
	of := slices.IndexFunc(h.Ops, func(o Op) bool { return o.ID == op.Of })
	return slices.ContainsFunc(h.Clock, func(s Shift) bool {
		return of < 0 || s.From >= h.Ops[of].Call && s.From <= op.Return
	})
}

// lossy reports whether the store was losing things during an op.
func (h *History) lossy(op *Op) bool {
	return slices.ContainsFunc(h.Ops, func(o Op) bool {
		return o.Kind == Lost && o.Call <= op.Return && op.Call <= o.Return
	})
}

// operations returns the steps for the checker. A step with an unknown end that only makes
// answers less certain comes as early as possible. A settlement that may refund something
// later than itself comes at any time.
func (p *part) operations() []porcupine.Operation {
	ops := make([]porcupine.Operation, len(p.steps))
	for i, in := range p.steps {
		ops[i] = porcupine.Operation{ClientId: in.Client, Input: in, Call: in.Call, Return: in.Return}
		if in.Answer == nil && (in.Key != "" || in.Kind == Lost) && !(in.Of != 0 && p.model.reach > 0) {
			ops[i].Return = in.Call
		}
	}
	return ops
}

// draw writes the page that shows how far an order can be found.
func (p *part) draw(ops []porcupine.Operation, o Options) (string, error) {
	model := p.model.porcupine()
	_, info := porcupine.CheckOperationsVerbose(model, ops, o.Patience)
	if err := os.MkdirAll(o.Pictures, 0o750); err != nil {
		return "", err
	}
	file := filepath.Join(o.Pictures, regexp.MustCompile(`[^a-z0-9-]`).ReplaceAllString(p.key, "_")+".html")
	return file, porcupine.VisualizePath(model, info, file)
}
