package spelling

// Form says what a text stands in, and so in how many ways it can be spelt.
type Form uint8

// The forms.
const (
	Plain Form = iota // a text with one spelling
	// InField is the value of a header field, InCredentials that of one with
	// credentials, InCookie that of a cookie.
	InField
	InCredentials
	InCookie
)

// FormOf returns the form of a header field's value, by its canonical name.
func FormOf(field string) Form {
	if IsCredentials(field) {
		return InCredentials
	}
	return InField
}

// Reading is what servers read in a text.
type Reading struct {
	Text string // what it means, in its one form
	// Clarity says how far servers agree on that.
	Clarity Clarity
	form    Form
	sent    string
}

// Read returns how servers read a text that was sent.
func (f Form) Read(sent string) Reading {
	r := Reading{Text: sent, form: f, sent: sent}
	switch f {
	case Plain:
	case InField:
		r.Text, r.Clarity = Field(sent), ClarityOfField(sent)
	case InCredentials:
		r.Text, r.Clarity = Credentials(sent), ClarityOfCredentials(sent)
	case InCookie:
		r.Text = Cookie(sent)
		switch {
		case !IsClearCookie(sent):
			r.Clarity = Unclear
		case IsNeedless(sent, r.Text):
			r.Clarity = Several
		}
	}
	return r
}

// AppendOthers appends to dst what some servers read instead of Text.
func (r *Reading) AppendOthers(dst []string) []string {
	switch {
	case r.Clarity == Clear || r.form == Plain:
		return dst
	case r.form == InCookie:
		return AppendCookies(dst, r.sent)
	case r.form == InCredentials:
		return AppendCredentials(dst, r.sent)
	}
	return AppendFields(dst, r.sent)
}

// One returns what to count a text by for those who have one count for a request,
// and false for credentials in which servers that nobody knows may read anything.
func (r *Reading) One() (text string, ok bool) {
	switch {
	case r.form != InCredentials || r.Clarity == Clear:
		return r.Text, true
	case r.Clarity == Several:
		return AppendCredentials(nil, r.sent)[0], true
	}
	return "", false
}

// Clarity says how far servers agree on what a text means.
type Clarity uint8

// From the best to the worst.
const (
	Clear   Clarity = iota // a text that all servers read alike
	Several                // one in which some servers read something else, all of which is known
	Unclear                // one in which servers that nobody knows may read anything
)
