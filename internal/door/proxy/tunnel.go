package proxy

import (
	"errors"
	"io"
)

// tunnel is the upstream's side of an upgraded connection. When either side has
// ended, both are closed, as in nginx. httputil passes the end of one side on as
// the end of that direction only, and waits for the other side to end by itself:
// an upstream that never does would hold the client's place after it has gone,
// and the other way round.
type tunnel struct {
	upstream io.ReadWriteCloser
}

// errTunnelEnded ends the tunnel after everything the upstream sent was passed on.
var errTunnelEnded = errors.New("the upstream has ended the tunnel")

// Read implements io.Reader.
func (t tunnel) Read(p []byte) (int, error) {
	n, err := t.upstream.Read(p)
	if errors.Is(err, io.EOF) {
		err = errTunnelEnded // httputil half-closes the client's side at io.EOF
	}
	return n, err
}

// Write implements io.Writer.
func (t tunnel) Write(p []byte) (int, error) { return t.upstream.Write(p) }

// Close implements io.Closer. There is no CloseWrite: without it, httputil ends
// the tunnel when the client's side has ended.
func (t tunnel) Close() error { return t.upstream.Close() }
