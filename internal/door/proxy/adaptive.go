package proxy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/adaptive"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// class is the class of a request at the upstream.
type class struct {
	adaptive.Class
	name string
}

// classed are the classes of a domain.
type classed struct {
	by      *rules.Priorities // whose, nil if it has none
	classes []class
}

// classes returns the classes of a domain, the highest first. A class may use what is kept for it
// and for those below it, on top of what the lowest may.
func classes(headroom []Kept, by *rules.Priorities) ([]class, error) {
	const source = "proxy.adaptive.headroom"
	names := []string{rules.DefaultClass}
	if by != nil {
		names = by.Classes
	} else if len(headroom) > 0 {
		return nil, &config.SourceError{Source: source, Message: "set, but the domain of the proxy has no \"priorities\"", Hint: "add priorities: {classes: [critical, default, sheddable]} to its rules"}
	}
	all, left := make([]class, len(names)), float64(store.Whole)
	for i, name := range names {
		all[i] = class{Class: adaptive.Class{Index: i, More: left}, name: name}
		for _, k := range headroom {
			if k.Class == name {
				left -= float64(k.Part)
			}
		}
	}
	for _, k := range headroom {
		switch i := slices.Index(names, k.Class); {
		case i < 0:
			return nil, &config.SourceError{Source: source, Message: fmt.Sprintf("the domain of the proxy has no class %q%s", k.Class, nearest.DidYouMean(k.Class, names)), Hint: "its classes are " + strings.Join(names, ", ")}
		case i == len(names)-1:
			return nil, &config.SourceError{Source: source, Message: fmt.Sprintf("no class is below %q, so nothing can be kept for it", k.Class), Hint: "remove it"}
		}
	}
	for i := range all {
		all[i].More = all[i].More/left - 1
	}
	return all, nil
}

// classOf returns the class of a request, which no limit has been asked about.
func (p *Proxy) classOf(x *exchange) class {
	q := p.query(x)
	known := p.classed(q.Domain)
	if known.by == nil {
		return known.classes[0]
	}
	if x.matches == nil {
		x.matches = new(rules.Matches)
	}
	return known.classes[x.pass.Class(x.in.Context(), &p.options.Asker, q, known.by, x.matches).Index]
}

// classed returns the classes of a domain, as its rules are now.
func (p *Proxy) classed(domain string) *classed {
	by := p.options.Engine.Rules().Priorities(domain)
	known := p.classes.Load()
	if known == nil || known.by != by {
		all, err := classes(p.options.Headroom, by)
		if err != nil { // which was found when the rules were read
			all, _ = classes(nil, by)
		}
		known = &classed{by, all}
		p.classes.Store(known)
	}
	return known
}

// state tells operators of the upstream.
func (p *Proxy) state() metrics.Upstream {
	l := p.options.Adaptive
	s := l.State()
	u := metrics.Upstream{InFlight: s.InFlight, Service: s.Service, Shadow: l.Shadow(), WouldShed: s.Refused}
	for _, c := range p.classed(p.options.Domain()).classes {
		u.Classes = append(u.Classes, metrics.UpstreamClass{Name: c.name, Limit: c.Of(s.Limit)})
	}
	return u
}

// full reports whether the upstream has no place for a request whose limits have not been asked. If a
// rule may let it wait, it is not known yet whether it needs one.
func (p *Proxy) full(x *exchange) bool {
	l := p.options.Adaptive
	if l == nil {
		return false
	}
	x.class = p.classOf(x)
	if p.options.Engine.Rules().Waits(p.options.Domain()) || !l.Refuses(x.at.UnixNano(), x.class.Class) {
		return false
	}
	p.overloaded(l, x.at, false)
	return true
}

// overloaded logs when requests begin to be shed.
func (p *Proxy) overloaded(l *adaptive.Limiter, now time.Time, shadow bool) {
	if p.shedding.fails(now) {
		p.options.Logger.Warn("the upstream is overloaded", "upstream", p.options.Upstream.Redacted(), "limit", l.State().Limit, "shadow", shadow)
	}
}

// enter takes a place at the upstream for a request. It reports false if there is none.
func (p *Proxy) enter(x *exchange) bool {
	l := p.options.Adaptive
	if l == nil {
		return true
	}
	now := p.options.Clock() // limits may have taken long
	taken, ok, full := l.Take(now.UnixNano(), x.class.Class)
	if full {
		p.overloaded(l, now, ok)
	}
	if !ok {
		return false
	}
	var body adaptive.Body
	if x.upload != nil {
		body = x.upload
	}
	x.place = l.Hold(taken, body, p.options.Clock)
	return true
}

// leave gives the place of a request back when the header of an answer arrives. An upstream that
// fails fast is not a fast one, one that answers before it has all of the request is in a dialogue,
// and a tunnel ends when its client likes.
func (x *exchange) leave(now time.Time, res *http.Response) {
	switch {
	case fails(res):
		x.place.Done(now, adaptive.Failed)
	case res.StatusCode == http.StatusSwitchingProtocols, x.upload != nil && x.upload.arrived().IsZero():
		x.place.Cancel()
	default:
		x.place.Done(now, adaptive.Answered)
	}
}

// leaveUnanswered gives the place of a request back that has no answer.
func (x *exchange) leaveUnanswered(now time.Time, err error) {
	switch {
	case unreached(err):
		x.place.Cancel()
	case x.in.Context().Err() != nil || isTimeout(err):
		x.place.Done(now, adaptive.GaveUp)
	default:
		x.place.Done(now, adaptive.Failed)
	}
}

// shed answers a request for which the upstream has no place. It is no refusal of a limit,
// and has no fields about limits.
func (p *Proxy) shed(w http.ResponseWriter, x *exchange) {
	if p.options.Shed != nil {
		p.options.Shed(x.class.name)
	}
	defer answer.Unwanted(w, x.in, whole(x.in.Body))()
	answer.Overloaded(w, "the upstream is overloaded; this request was not sent to it")
}

// AdaptiveMetrics returns the metrics of a limiter.
func AdaptiveMetrics(l *adaptive.Limiter) prometheus.Collector {
	mode := "on"
	if l.Shadow() {
		mode = "shadow"
	}
	m := new(metrics.Asked)
	shed := m.Counter("headgate_adaptive_shed_total", "Requests answered 503 because the upstream cannot work on more, by mode: on, or shadow (would have been).", "mode")
	limit := m.Gauge("headgate_adaptive_limit", "Requests that may wait for the header of the upstream's answer at once, or be sent by their clients, without what is kept for classes.")
	inFlight := m.Gauge("headgate_adaptive_in_flight", "Requests that wait for the header of the upstream's answer, or that clients are still sending.")
	service := m.Gauge("headgate_adaptive_service_seconds", "Time that the upstream takes without load, as last measured.")
	probes := m.Counter("headgate_adaptive_probes_total", "Probes that measured it.")
	m.Ask(func(out chan<- prometheus.Metric) {
		s := l.State()
		shed(out, float64(s.Refused), mode)
		limit(out, float64(s.Limit))
		inFlight(out, float64(s.InFlight))
		service(out, s.Service)
		probes(out, float64(s.Probes))
	})
	return m
}
