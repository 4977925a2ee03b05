package measure

import (
	"cmp"
	"os"
	"runtime"
	"slices"
	"strings"
)

// Median returns the median of a figure of samples, of which there is one.
func Median[S any, T cmp.Ordered](samples []S, of func(S) T) T {
	values := make([]T, len(samples))
	for i, s := range samples {
		values[i] = of(s)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// Processor names the machine's, as far as it says.
func Processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
