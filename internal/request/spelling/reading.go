package spelling

// Form is where a text is from, which decides how it can be spelled.
type Form uint8

// The forms.
const (
	Plain Form = iota // has one spelling
	// InField is the value of a header field, InCredentials of one with credentials,
	// InCookie of a cookie.
	InField
	InCredentials
	InCookie
)

// FormOf returns the form of the values of a header field, by its canonical name.
func FormOf(field string) Form {
	if IsCredentials(field) {
		return InCredentials
	}
	return InField
}

// Reading is what servers read in a text.
type Reading struct {
	Text string // the meaning, in one form
	// Clarity is how far servers agree on Text.
	Clarity Clarity
	form    Form
	sent    string
}

// Read returns how servers read a text as it was sent.
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

// One returns the text to count by for callers with a single count per request. It
// returns false for credentials in which some server may read anything.
func (r *Reading) One() (text string, ok bool) {
	switch {
	case r.form != InCredentials || r.Clarity == Clear:
		return r.Text, true
	case r.Clarity == Several:
		return AppendCredentials(nil, r.sent)[0], true
	}
	return "", false
}

// Clarity is how far servers agree on the meaning of a text.
type Clarity uint8

// From best to worst.
const (
	Clear   Clarity = iota // all servers read the same
	Several                // servers read different things, all of them known
	Unclear                // some servers may read anything
)
