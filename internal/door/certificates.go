package door

import (
	"errors"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/transport/certs"
)

// CertificateError names the key of the file that is wrong, in a section of the
// configuration.
func CertificateError(section string, err error) error {
	source := section
	if wrong, ok := errors.AsType[*certs.Error](err); ok {
		source += "." + wrong.Key
		err = &certs.Error{Key: wrong.File, Err: wrong.Err}
	}
	return &config.SourceError{Source: source, Message: err.Error()}
}
