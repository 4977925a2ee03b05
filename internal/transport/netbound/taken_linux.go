package netbound

import (
	"net"

	"golang.org/x/sys/unix"
)

// taken returns how many bytes the peer of a TCP connection has acknowledged so far, or
// false if that is not known.
func taken(nc net.Conn) (n uint64, known bool) {
	tcp, ok := Layer[*net.TCPConn](nc)
	if !ok {
		return 0, false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0, false
	}
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			n, known = info.Bytes_acked, true
		}
	})
	return n, known
}
