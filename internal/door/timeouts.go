package door

import "time"

// Timeouts bound how slow callers over HTTP may be, so that those who send a
// letter a minute, or nothing, do not keep connections for ever. Zero values
// mean the defaults: 10 s, 10 s, 20 s (2 minutes at the admin door, for
// profiles) and 2 minutes.
type Timeouts struct {
	// Header is how long the header of a request may take to arrive, Read the
	// whole request, and Write everything from there to the end of the answer.
	// Read and Write are not for the proxy, whose bodies may last for hours.
	Header, Read, Write time.Duration
	// Idle is how long a connection may be without a request.
	Idle time.Duration
	// Body is how long a client of the proxy may be silent in the middle of a
	// body; 0 leaves it to the configuration.
	Body time.Duration
}
