package config

import "strings"

// insteadOf returns what to use instead of a setting that has ended; empty for others. The
// rows are keys, sections, or with a * the ends of keys.
func insteadOf(key string) string {
	for _, ended := range [][2]string{
		{"*.tls.min_version", "set tls.min_version, which is for all doors"},
		{"*.tls.client_name", "set client_names, which takes a single name too"},
	} {
		tail, anywhere := strings.CutPrefix(ended[0], "*")
		if key == ended[0] || strings.HasPrefix(key, ended[0]+".") || anywhere && strings.HasSuffix(key, tail) {
			return ended[1]
		}
	}
	return ""
}
