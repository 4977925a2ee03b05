package door

import (
	"errors"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/transport/certs"
)

// ClientFiles are those that t names.
func ClientFiles(t *config.UpstreamTLS) certs.ClientFiles {
	return certs.ClientFiles{CA: t.CA, Cert: t.Cert, Key: t.Key, ServerName: t.ServerName, MinVersion: t.MinVersion}
}

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
