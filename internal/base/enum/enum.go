// Package enum names the values of enumerations.
package enum

import "fmt"

// Name returns the name of v. names has the names of all values from 0 on. Any other
// value becomes kind and number, such as level(7).
func Name[T ~uint8](v T, kind string, names ...string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", kind, uint8(v))
}

// Value is a value of an enumeration.
type Value interface {
	~uint8
	fmt.Stringer
}

// Parse returns the value from 0 to last whose name is text, and false if there is
// none.
func Parse[T Value](text string, last T) (T, bool) {
	for v := range last + 1 {
		if v.String() == text {
			return v, true
		}
	}
	return 0, false
}
