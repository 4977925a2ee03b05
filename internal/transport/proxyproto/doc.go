// Package proxyproto is the receiving side of the PROXY protocol, versions 1
// and 2: a load balancer that forwards connections, not requests, says in the
// first bytes of each who the client is.
//
// See https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt. Headgate has
// its own reader because those to be had do not check the checksum of version
// 2, or demand that a header arrives in a single packet, or are configured by
// variables of the whole process.
package proxyproto
