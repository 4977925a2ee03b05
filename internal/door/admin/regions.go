package admin

import (
	"net/http"

	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/store/regions"
)

// Regions is the answer of GET /v1/regions: the regions that limits are shared with.
type Regions struct {
	Region string         `json:"region"`          // that of this process; empty without regions
	Acts   bool           `json:"acts"`            // this process gives and receives tokens for its region
	Asked  int64          `json:"asked"`           // tokens that this process has asked for and that have not come yet
	Others []RegionStatus `json:"others"`          // the other regions
	Rules  []RegionRule   `json:"rules"`           // those whose limits are shared
	Homes  []HomeStatus   `json:"homes,omitempty"` // the regions that count limits for this one
}

// HomeStatus is a region that counts limits for this one.
type HomeStatus struct {
	Region    string `json:"region"`          // the region whose Redis counts
	Reachable bool   `json:"reachable"`       // whether its Redis answers
	Failed    uint64 `json:"failed"`          // requests that it did not answer, since this process started
	Unasked   uint64 `json:"unasked"`         // requests that were not sent because it did not answer
	Error     string `json:"error,omitempty"` // why it cannot be reached
}

// RegionStatus is another region, as this process sees it.
type RegionStatus struct {
	Region         string     `json:"region"`          // its name
	State          string     `json:"state"`           // reachable, cut, or unknown: this process does not act for its region, or has not read the other one's messages yet
	News           *int64     `json:"news_ms"`         // how long ago its messages were last read, in milliseconds; null if never by this process
	Lag            int64      `json:"lag_ms"`          // how old they were, in milliseconds
	Cut            int64      `json:"cut_ms"`          // for how long they could not be read, in milliseconds
	Given          int64      `json:"given"`           // tokens given to the region, since this process started
	Received       int64      `json:"received"`        // tokens received from it
	Unacknowledged int64      `json:"unacknowledged"`  // tokens given and not confirmed yet
	Unconfirmed    int64      `json:"unconfirmed"`     // tokens given that it did not confirm in time: they may be lost
	Error          string     `json:"error,omitempty"` // what is wrong
	Keys           RegionKeys `json:"keys"`            // what this process has read of its bans, overrides, grants and resets
}

// RegionKeys is what a process has read of what another region says of keys.
type RegionKeys struct {
	Read     *int64 `json:"read_ms"`         // how long ago, in milliseconds; null if never
	Received int64  `json:"received"`        // changes that were made here too
	Left     int64  `json:"left"`            // changes that were not: unreadable, no space, too late, or no such rule
	Error    string `json:"error,omitempty"` // why they cannot be read
}

func regionKeys(f *control.Followed) (is RegionKeys) {
	is.Received, is.Left = f.Received, f.Unreadable+f.Full+f.Late+f.Failed
	if f.HasRead {
		is.Read = new(f.Read.Milliseconds())
	}
	if f.Err != nil {
		is.Error = f.Err.Error()
	}
	return is
}

// RegionRule is a rule whose limit regions share. A rule with tiers has one for each.
type RegionRule struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	File   string `json:"file"`
	Line   int    `json:"line"`
	Rate   string `json:"rate"` // which tells tiers apart

	httpapi.Regions
}

// The states of a region.
const (
	regionReachable = "reachable"
	regionCut       = "cut"
	regionUnknown   = "unknown"
)

// listRegions answers GET /v1/regions.
func (d reports) listRegions(http.ResponseWriter, *http.Request) (any, error) {
	out := Regions{Region: d.Region, Others: []RegionStatus{}, Rules: []RegionRule{}}
	if d.Homes != nil {
		for _, h := range d.Homes() {
			out.Homes = append(out.Homes, HomeStatus{Region: h.Region, Reachable: h.Reachable, Failed: h.Failures, Unasked: h.FailedFast, Error: h.Err})
		}
	}
	if d.Among != nil {
		for _, rule := range d.Engine.Rules().Rules() {
			if r := httpapi.RegionsOf(rule.Limit, d.Among); r != nil {
				out.Rules = append(out.Rules, RegionRule{Domain: rule.Domain, Rule: rule.Name, File: rule.File, Line: rule.Line, Rate: rateText(rule.Limit), Regions: *r})
			}
		}
	}
	if d.Regions == nil {
		return out, nil
	}
	out.Asked = d.RegionsAsked()
	keys := make(map[string]RegionKeys)
	for _, f := range d.Followed() {
		keys[f.Region] = regionKeys(&f)
	}
	for _, r := range d.Regions() {
		out.Acts = out.Acts || r.Acts
		is := regionStatus(&r)
		is.Keys = keys[r.Region]
		out.Others = append(out.Others, is)
	}
	return out, nil
}

func regionStatus(r *regions.Stats) RegionStatus {
	is := RegionStatus{
		Region: r.Region, State: regionUnknown, Given: r.Given, Received: r.Received,
		Unacknowledged: r.Unacknowledged, Unconfirmed: r.Unconfirmed,
	}
	if r.HasRead {
		ms := r.Read.Milliseconds()
		is.State, is.News, is.Lag = regionReachable, &ms, r.Lag.Milliseconds()
	}
	if r.Cut > 0 {
		is.State, is.Cut = regionCut, max(r.Cut.Milliseconds(), 1)
	}
	if r.Err != nil {
		is.Error = r.Err.Error()
	}
	return is
}
