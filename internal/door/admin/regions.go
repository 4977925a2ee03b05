package admin

import (
	"net/http"
	"time"
)

// Regions is the answer of GET /v1/regions: the regions that limits are shared with.
type Regions struct {
	Region string         `json:"region"` // that of this process; empty without regions
	Acts   bool           `json:"acts"`   // this process gives and receives tokens for its region
	Others []RegionStatus `json:"others"`
}

// RegionStatus is another region, as this process sees it.
type RegionStatus struct {
	Region string `json:"region"`
	// News is how long ago its messages were last read, in milliseconds; nil if never by
	// this process.
	News *int64 `json:"news_ms"`
	// Given and Received are tokens, since this process started.
	Given    int64  `json:"given"`
	Received int64  `json:"received"`
	Error    string `json:"error,omitempty"` // why its messages cannot be read
}

// listRegions answers GET /v1/regions.
func (d reports) listRegions(http.ResponseWriter, *http.Request) (any, error) {
	out := Regions{Region: d.Region, Others: []RegionStatus{}}
	if d.Regions == nil {
		return out, nil
	}
	for _, r := range d.Regions() {
		is := RegionStatus{Region: r.Region, Given: r.Given, Received: r.Received}
		out.Acts = out.Acts || r.Acts
		if r.HasRead {
			ms := int64(r.Read / time.Millisecond)
			is.News = &ms
		}
		if r.Err != nil {
			is.Error = r.Err.Error()
		}
		out.Others = append(out.Others, is)
	}
	return out, nil
}
