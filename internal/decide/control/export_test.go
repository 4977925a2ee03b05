package control

// Decode is decode.
func Decode(text string) (*Entry, error) { return decode(text) }
