package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/replay/simulate"
)

// allowance is how many requests may newly be refused.
type allowance struct {
	set   bool
	count int64
	share float64 // of all requests, if it is not negative
	text  string
}

// parseAllowance reads the flag max-new-refusals: a number, a share such as
// 0.1%, or nothing.
func parseAllowance(flag string) (allowance, error) {
	if flag == "" {
		return allowance{}, nil
	}
	if text, ok := strings.CutSuffix(flag, "%"); ok {
		share, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err == nil && share >= 0 && share <= 100 {
			return allowance{set: true, share: share / 100, text: flag}, nil
		}
	} else if n, err := strconv.ParseInt(flag, 10, 64); err == nil && n >= 0 {
		return allowance{set: true, count: n, share: -1, text: flag}, nil
	}
	return allowance{}, &usageError{fmt.Sprintf("--max-new-refusals: %q is neither a number nor a share", flag), "such as 100 or 0.1%"}
}

// exceeded says what is wrong if more of all requests than may would newly be
// refused; otherwise it returns an empty text.
func (a *allowance) exceeded(refused, all int64) string {
	most := a.count
	if a.share >= 0 {
		most = int64(math.Floor(a.share * float64(all)))
	}
	if !a.set || refused <= most {
		return ""
	}
	return fmt.Sprintf("%s would newly be refused, more than --max-new-refusals %s", simulate.Plural(refused, "request"), a.text)
}
