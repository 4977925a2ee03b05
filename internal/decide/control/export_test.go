package control

// Decode is decode.
func Decode(text string) (*Entry, error) { return decode(text) }

// NameOf returns the name of an entry in the table.
func NameOf(e *Entry) string { return e.name() }
