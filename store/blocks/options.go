package blocks

import "time"

// Options configure a [Store]. The zero value is good for production.
type Options struct {
	// Keys is how many busy keys can have blocks at a time; others are decided by the
	// store. The default is 65,536, and takes 1.5 MiB. It is rounded up to a power of two.
	Keys int
	// ReturnTimeout limits how long Close waits for blocks to be given back. The default
	// is a second.
	ReturnTimeout time.Duration
}

const (
	defaultKeys   = 1 << 16
	returnTimeout = time.Second
)

func (o Options) withDefaults() Options {
	if o.Keys < 1 {
		o.Keys = defaultKeys
	}
	if o.ReturnTimeout <= 0 {
		o.ReturnTimeout = returnTimeout
	}
	return o
}
