package announce

import "net/http"

// Look looks at once.
func (a *Announcer) Look() { a.checkDeliveries() }

// Through sends messages through t.
func (a *Announcer) Through(t http.RoundTripper) { a.sender.client.Transport = t }

// Send sends a message.
func (a *Announcer) Send(body []byte) { a.sender.add(body) }
