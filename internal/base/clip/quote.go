package clip

import (
	"fmt"
	"strings"
)

// Quote returns text in quotes for a message, cut if it is long.
func Quote(text string) string {
	const most = 60
	if len(text) > most {
		return fmt.Sprintf("%q…", strings.ToValidUTF8(text[:most], ""))
	}
	return fmt.Sprintf("%q", text)
}
