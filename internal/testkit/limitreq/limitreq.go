// Package limitreq is the arithmetic of nginx's limit_req, which tests compare with
// limits of Headgate.
package limitreq

// Zone is the state of one key: that of ngx_http_limit_req_lookup and _account. Excess
// is in thousandths of a request, and times are in milliseconds.
type Zone struct {
	Rate, Burst, Delay int64 // thousandths per second, thousandths, thousandths

	excess, last int64
	known        bool
}

// Request returns how long a request at ms has to wait, or false if it is refused.
func (z *Zone) Request(ms int64) (wait int64, ok bool) {
	excess := int64(0)
	if z.known {
		excess = max(z.excess-z.Rate*(ms-z.last)/1000+1000, 0)
		if excess > z.Burst {
			return 0, false
		}
	}
	z.excess, z.last, z.known = excess, ms, true
	if excess <= z.Delay {
		return 0, true
	}
	return (excess - z.Delay) * 1000 / z.Rate, true
}
