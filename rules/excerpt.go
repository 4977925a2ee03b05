package rules

// Excerpt returns the line of src that d is about, with its number and a caret
// below the column, or an empty string if d has no line.
func Excerpt(src []byte, d Diagnostic) string { return "" }
