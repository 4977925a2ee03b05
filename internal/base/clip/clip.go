// Package clip shortens texts of others for messages and logs.
package clip

import "strings"

// Text returns text, or of one that is longer its first most bytes at most, at a
// letter's end, and an ellipsis. Bytes that are no UTF-8 are taken out of a text
// that is shortened, and left in others.
func Text(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
