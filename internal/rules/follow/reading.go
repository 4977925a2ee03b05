package follow

import (
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules"
)

// Reading says which rules have been read, the live ones or a candidate's, and how
// that went.
type Reading struct {
	Rules    *rules.Ruleset // nil if there have been none that are right
	LoadedAt time.Time
	FailedAt time.Time // of the last failure
	Failure  error     // nil if the last attempt went well

	Succeeded, Failed uint64
}

// FirstOf returns err in one line: the first problem and how many more. Of nil
// that is empty.
func FirstOf(err error) string {
	if err == nil {
		return ""
	}
	var problems diagnostic.Problems
	if !errors.As(err, &problems) {
		return err.Error()
	}
	var first *diagnostic.Diagnostic
	more := -1
	for i := range problems {
		if problems[i].Severity == diagnostic.SeverityError {
			if first == nil {
				first = &problems[i]
			}
			more++
		}
	}
	switch {
	case first == nil:
		return err.Error()
	case more > 0:
		return fmt.Sprintf("%s (and %d more; see headgate check)", first, more)
	}
	return first.String()
}
