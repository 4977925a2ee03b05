// Package xds receives rules from a control plane, such as Envoy Gateway, over
// the aggregated discovery service of xDS in its state-of-the-world form. It is
// what envoyproxy/ratelimit calls CONFIG_TYPE=GRPC_XDS_SOTW.
//
// A [Client] follows the stream, turns every snapshot into the text of rule
// files and hands it to its Apply. What Apply accepts is acknowledged; what it
// refuses is refused to the control plane too, with the reason, and whatever
// was in force stays so.
//
// See docs/xds.md.
package xds
