package client

// Trusts reports whether the peer at remoteAddr, as in an http.Request, is a
// proxy whose word about its clients is believed.
func (r *Resolver) Trusts(remoteAddr string) bool { return r.trusts(0, parseNode(remoteAddr)) }

// Reading returns a Resolver that differs from r only in what it reads where r
// reads [Either]: one of the two header fields, for peers that are known to
// write that one and to let the other pass from whoever sent it.
func (r *Resolver) Reading(source Source) *Resolver {
	out := *r
	if r.source == Either {
		out.source = source
	}
	return &out
}
