package simulate

import (
	"sync"

	"github.com/headgate/headgate/internal/decide/engine"
)

// books carries verdicts from where they are made, one after another, to where
// they are counted, so that the former does not wait for the latter.
type books struct {
	open  *page
	full  chan *page
	empty chan *page
	group sync.WaitGroup
	close func() // waits until all is counted
}

// page is a number of verdicts. Their keys are in the memory of batches, which
// stays as it is.
type page struct {
	verdicts []verdict
	results  []engine.Result
}

// verdict is what is counted of one, beside what its rules said.
type verdict struct {
	at                            int64
	results                       int // how many are its
	allowed, delayed, wouldRefuse bool
}

const (
	// pageVerdicts is how many verdicts are handed over at once.
	pageVerdicts = 256
	// maxPages bounds how far counting may be behind.
	maxPages = 4
)

// newBooks begins to count in t.
func newBooks(t *tally) *books {
	b := &books{open: new(page), full: make(chan *page, maxPages), empty: make(chan *page, maxPages+1)}
	for range maxPages {
		b.empty <- new(page)
	}
	b.group.Go(func() {
		for p := range b.full {
			t.add(p)
			p.verdicts, p.results = p.verdicts[:0], p.results[:0]
			b.empty <- p
		}
	})
	b.close = sync.OnceFunc(func() {
		b.full <- b.open
		close(b.full)
		b.group.Wait()
	})
	return b
}

// enter takes down a verdict.
func (b *books) enter(at int64, v *engine.Verdict) {
	results := v.Results()
	p := b.open
	p.verdicts = append(p.verdicts, verdict{at, len(results), v.Allowed, v.Delay > 0, v.WouldRefuse > 0})
	p.results = append(p.results, results...)
	if len(p.verdicts) >= pageVerdicts {
		b.full <- p
		b.open = <-b.empty
	}
}
